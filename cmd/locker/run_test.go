//go:build unix

package main_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// flock(1) and every wrapper before it: success is silent, and the command's own exit
// code comes through.
func TestSilentOnSuccess(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.locked("true").want(0).silent()
}

// consul lock loses the command's exit code.
func TestExitCodeIsTheCommands(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for _, code := range []int{0, 1, 2, 77, 121, 125, 255} {
		h.locked(fmt.Sprintf("exit %d", code)).want(code)
	}
	h.locked("kill -TERM $$").want(128 + int(syscall.SIGTERM))
	h.locked("kill -KILL $$").want(128 + int(syscall.SIGKILL))
}

// etcdctl lock does not connect standard input, and cannot give up waiting.
func TestInputIsPassedThrough(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.locked("cat")
	p.Stdin = strings.NewReader("from outside")
	p.want(0)
	if got, want := p.stdout.String(), "from outside"; got != want {
		t.Errorf("stdout: got %q, want %q", got, want)
	}
}

// Other descriptors than the standard three belong to the command, too: systemd passes
// sockets from 3 on.
func TestDescriptorsArePassedThrough(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.locked("echo hello >&3; echo hello >&5")
	for _, name := range []string{"three", "four", "five"} {
		f, err := os.Create(h.file(name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		p.ExtraFiles = append(p.ExtraFiles, f)
	}
	p.want(0)
	if got := h.read("three") + h.read("five"); got != "hello\nhello\n" {
		t.Errorf("got %q", got)
	}
	// Nor does locker take one that scripts use.
	if got := h.locked("for n in 3 4 5 6 7 8 9; do (: >&$n) 2>/dev/null && echo $n is open; done; true").want(0).stdout.String(); got != "" {
		t.Error(got)
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.env = append(h.env, "LOCKER_TOKEN=999", "OTHER=kept")
	p := h.locked(`echo "$LOCKER_KEY/$LOCKER_TOKEN/$LOCKER_OWNER/$LOCKER_TTL/$OTHER"`, "--owner", "me", "--ttl", "20s").want(0)
	if got, want := p.stdout.String(), "key/1/me/20/kept\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	p = h.locked(`echo $LOCKER_TOKEN`).want(0)
	if got, want := p.stdout.String(), "2\n"; got != want {
		t.Errorf("the next token: got %q, want %q", got, want)
	}
}

// A command that cannot run takes the key from nobody.
func TestNotExecutable(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	holder := h.holding()
	plain := h.file("plain")
	if err := os.WriteFile(plain, []byte("true"), 0o644); err != nil {
		t.Fatal(err)
	}
	for command, code := range map[string]int{
		"no-such-command": 127, h.file("no/such/file"): 127, plain: 126, h.home: 126,
	} {
		p := h.locker("run", "--local", "key", "--", command).want(code)
		if s := p.stderr.String(); !strings.HasPrefix(s, "locker: ") || strings.Count(s, "\n") != 1 {
			t.Errorf("%s: want one line, got %q", command, s)
		}
	}
	holder.signal(syscall.SIGTERM)
	holder.ended(128 + int(syscall.SIGTERM))

	// Only exec itself finds out: the key is given back.
	lost := h.file("lost-interpreter")
	if err := os.WriteFile(lost, []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	h.locker("run", "--local", "key", "--", lost).want(127)
	h.free()
}

// What locker itself is short of says nothing about the command.
func TestTooFewDescriptors(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	codes := map[int]int{}
	for limit := 20; limit > 7; limit-- { // with less Go does not start
		p := h.command("sh", "-c", fmt.Sprintf(`ulimit -n %d; exec %q run --local key -- sh -c 'exit 3'`, limit, binary))
		code := p.run()
		if codes[code]++; code != 3 && code != 125 {
			t.Errorf("%d descriptors: exit code %d, want 3 or 125\n%s", limit, code, p.stderr)
		}
	}
	if codes[3] == 0 || codes[125] == 0 {
		t.Errorf("want some that suffice and some that do not, got %v", codes)
	}
	h.free()
}

// execvp(3), and so flock(1) and every shell, runs a script without #! with sh.
func TestScriptWithoutInterpreter(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	if err := os.WriteFile(h.file("script"), []byte("echo $1; exit 5\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	p := h.locker("run", "--local", "key", "--", "./script", "argument").want(5)
	if got, want := p.stdout.String(), "argument\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWrongUse(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	long := strings.Repeat("x", 2000)
	for _, c := range []struct {
		args, says string
	}{
		{"run", "want a key and a command"},
		{"run --local key", "want -- between"},
		{"run --local key true", "want -- between"},
		{"run --local key sh -c true", "want -- between"},
		{"run --local key sh --login", "want -- between"},
		{"run --local key -x -- true", "unknown shorthand flag"},
		{"run --local -- true", "no key before --"},
		{"run --local a b -- true", `want one key before --, not ["a" "b"]`},
		{"run --local key --", "no command after --"},
		{"run --local -w later key -- true", "want zero or a positive duration"},
		{"run --local -w -1 key -- true", "want zero or a positive duration"},
		{"run --local --ttl 0 key -- true", "want a positive duration"},
		{"run --local --max-hold 0 key -- true", "want a positive duration"},
		{"run --local --owner " + long + " key -- true", "locker: --owner: want at most"},
		{"run --local --note " + long + " key -- true", "--note: want at most"},
		{"run --url= key -- true", "the URL is empty"},
		{"status --url= key", "the URL is empty"},
		{"run -u MEM://x key -- true", "excludes nobody"},
		{"run -u file:///tmp#x key -- true", "what stands behind #"},
		{"status -u file:///tmp#x key", "what stands behind #"},
		{"completion tcsh", `unknown command "tcsh"`},
		{"statsu key", "status"},
		{"help statsu", "status"},
		{"run --local -E 256 key -- true", "want 0 to 255"},
		{"run --local -n -w 1s key -- true", "exclude each other"},
		{"run --local -u file:///tmp key -- true", "exclude each other"},
		{"run --local --on-loss shrug key -- true", "want term, kill or ignore"},
		{"run --local --ttl 3s --kill-after 1s key -- true", "less than a third"},
		{"run --local --kill-after 10s key -- true", "less than a third"},
		{"run --local --min-hold 2s --max-hold 1s key -- true", "longer than"},
		{"run --local --ttl 1ns key -- true", "ttl"},
		{"run --local --result /no/such/place key -- true", "/no/such/place"},
		{"run -u mem://x key -- true", "excludes nobody"},
		{"run -u /var/lib/locks key -- true", "file:///var/lib/locks"},
		{"run -u gopher://x key -- true", "no backend for gopher://, only for file://"},
		{"run -u file:///tmp?tll=3s key -- true", `locker: open file:///tmp?tll=xxxxx: unknown parameter "tll": did you mean "ttl"`},
		{"run --colour key -- true", "unknown flag"},
		{"frobnicate", "unknown command"},
		{"status", "want one key"},
		{"ls --local a b", `want one prefix at most, not ["a" "b"]: locker ls [PREFIX]`},
		{"break key", "token"},
		{"break key --token x", "--token"},
	} {
		p := h.locker(strings.Fields(c.args)...).want(125)
		contains(t, c.args, p.stderr.String(), c.says)
	}
	h.free()
}

func TestMinHold(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.locked("echo $$ > ran", "--min-hold", "1m").start()
	pid := h.pid("ran")
	eventually(t, "the command has ended", func() bool { return !alive(pid) })
	h.locked("true", "-n").want(123)
	p.signal(syscall.SIGTERM) // the command has done its work: its code counts
	p.ended(0)
	h.free()

	begun := time.Now()
	h.locked("true", "--min-hold", "300ms").want(0)
	if got, want := time.Since(begun), 300*time.Millisecond; got < want {
		t.Errorf("held for less than %v: %v", want, got)
	}
}

func TestMaxHold(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.locked("echo $$ > pid; exec sleep 60", "--max-hold", "300ms").want(121)
	contains(t, "stderr", p.stderr.String(), "--max-hold")
	if alive(h.pid("pid")) {
		t.Error("the command still runs")
	}
	h.free()
	// One that does not listen is killed.
	h.locked(`trap "" TERM; while :; do sleep 0.1; done`, "--max-hold", "200ms", "--kill-after", "200ms").want(121)
	h.free()
}

// A second run of the same key inside the first would wait for itself.
func TestNestedUseIsRefused(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	nested := func(key, then string) string { return fmt.Sprintf("%q run --local %s -- %s", binary, key, then) }
	p := h.locked(nested("key", "true")).want(123)
	contains(t, "stderr", p.stderr.String(), "wait for itself")
	h.locked(nested("other", nested("key", "true"))).want(123)
	h.locked(nested("other", nested("third", "true"))).want(0)
	h.locked("true", "-n").want(0)

	// An environment that has outlived its lock forbids nothing.
	h.locked(`env > environment`).want(0)
	for line := range strings.Lines(h.read("environment")) {
		if strings.HasPrefix(line, "LOCKER_") {
			h.env = append(h.env, strings.TrimSpace(line))
		}
	}
	h.locked("true").want(0)
}

// Many processes, one counter that is not safe by itself.
func TestMutualExclusion(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	const workers, rounds = 4, 6
	var all []*process
	for range workers {
		script := fmt.Sprintf(`for i in $(seq %d); do
			%q run --local key -- sh -c 'read n < counter; sleep 0.01; echo $((n + 1)) > counter' || exit
		done`, rounds, binary)
		all = append(all, h.command("sh", "-c", script))
	}
	if err := os.WriteFile(h.file("counter"), []byte("0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		p.start()
	}
	for _, p := range all {
		p.ended(0)
	}
	if got, want := h.read("counter"), fmt.Sprintf("%d\n", workers*rounds); got != want {
		t.Errorf("counter: got %q, want %q", got, want)
	}
}
