//go:build unix

package main_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// result is what --result writes.
type result struct {
	Outcome   string
	Key       string
	Token     string
	Owner     string
	ExitCode  int    `json:"exit_code"`
	ChildCode *int   `json:"child_code"`
	Signal    string `json:"child_signal"`
	Released  bool
	Error     string
	StartedMS float64 `json:"started_ms"`
	WaitedMS  float64 `json:"waited_ms"`
}

func (h *host) result(name string) result {
	h.t.Helper()
	return parse[result](h.t, h.read(name))
}

func parse[T any](t *testing.T, s string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(s), &v); err != nil {
		t.Fatalf("%v: %q", err, s)
	}
	return v
}

func TestResult(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	three, zero := 3, 0
	check := func(p *process, want result) {
		t.Helper()
		want.ExitCode, want.Key = p.wait(), "key"
		got := h.result("result")
		if got.Error != "" {
			got.Error = "some"
		}
		got.Token, got.Owner, got.StartedMS, got.WaitedMS = "", "", 0, 0
		if g, w := fmt.Sprintf("%+v", deref(got)), fmt.Sprintf("%+v", deref(want)); g != w {
			t.Errorf("%v:\n got %s\nwant %s", p.Args[1:], g, w)
		}
	}
	check(h.locked("exit 3", "--result", "result").start(), result{Outcome: "ran", ChildCode: &three, Released: true})
	check(h.locked("kill -9 $$", "--result", "result").start(), result{Outcome: "ran", Signal: "killed", Released: true})
	check(h.locked("sleep 60", "--result", "result", "--max-hold", "50ms").start(),
		result{Outcome: "max-hold", Signal: "terminated", Released: true})
	check(h.locker("run", "--local", "--result", "result", "key", "--", "no-such-command").start(), result{Outcome: "error", Error: "some"})
	holder := h.holding()
	check(h.locked("true", "--result", "result", "-n").start(), result{Outcome: "held", Error: "some"})
	check(h.locked("true", "--result", "result", "-n", "-E", "0").start(), result{Outcome: "held", Error: "some"})
	check(h.locked("true", "--result", "result", "-w", "1s").start(), result{Outcome: "timeout", Error: "some"})
	p := h.locked("true", "--result", "result", "-v").start()
	eventually(t, "it waits", func() bool { return strings.Contains(p.stderr.String(), "waiting: held by") })
	p.signal(syscall.SIGTERM)
	check(p, result{Outcome: "interrupted", Error: "some"})
	holder.signal(syscall.SIGTERM)
	holder.ended(143)

	// A descriptor is a file, too; and --json says the same on stderr.
	p = h.locked("true", "--result", "/dev/stdout", "--json").want(0)
	if r := parse[result](t, p.stdout.String()); r.Outcome != "ran" || *r.ChildCode != zero {
		t.Errorf("%+v", r)
	}
	if p.stdout.String() != p.stderr.String() {
		t.Errorf("--result %s, --json %s", p.stdout, p.stderr)
	}
}

// deref makes the pointer printable.
func deref(r result) any {
	code := "none"
	if r.ChildCode != nil {
		code = fmt.Sprint(*r.ChildCode)
	}
	r.ChildCode = nil
	return struct {
		result
		code string
	}{r, code}
}

// What others have written through a descriptor stays, and so does what follows.
func TestResultOnADescriptor(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"/dev/fd/3", "/proc/self/fd/3", "/dev/stdout", "/dev/fd/1", "/dev/stderr", "/dev/fd/../fd/2"} {
		h := newHost(t)
		h.command("sh", "-c", fmt.Sprintf(
			`exec 3>>log 1>&3 2>&3; echo before; %q run --local --result %s key -- echo command; echo after`, binary, name)).want(0)
		lines := strings.Split(h.read("log"), "\n")
		if len(lines) != 5 || lines[0] != "before" || lines[1] != "command" || lines[3] != "after" {
			t.Fatalf("%s: got %q", name, lines)
		}
		if r := parse[result](t, lines[2]); r.Outcome != "ran" {
			t.Errorf("%s: %+v", name, r)
		}
	}
	h := newHost(t)
	for _, name := range []string{"/dev/fd/3", "/dev/fd/9", "/dev/stdin"} { // closed, or only to be read
		p := h.locked("touch ran", "--result", name).want(125)
		contains(t, name, p.stderr.String(), "open "+name+": bad file descriptor")
	}
	if h.exists("ran") {
		t.Error("the command has run")
	}
}

// A result is this run's, also when there was nothing to run.
func TestResultOfARefusedRun(t *testing.T) {
	t.Parallel()
	for _, flags := range []string{
		"--result result -u gopher://x key", "-u mem://x --result=result key", "--local -n -w 5 --result result key",
		"--local --on-loss foo --result result key", "--local --min-hold 2s --max-hold 1s --result result key",
		"--local --ttl later --result result key", "--local --result result --colour key", "--local -E 999 --result=result key",
		"--local --result result", "--result result -u file:///tmp?tll=3s key", "--url= --result result key",
		"--local --kill-after 10s --result result key",
	} {
		h := newHost(t)
		h.locked("true", "--result", "result").want(0)
		p := h.locker(append(append([]string{"run", "--json"}, strings.Fields(flags)...), "--", "true")...).want(125)
		got := h.result("result")
		if got.Outcome != "error" || got.ExitCode != 125 || got.Error == "" {
			t.Errorf("%s: %+v", flags, got)
		}
		for line := range strings.Lines(p.stderr.String()) {
			parse[map[string]any](t, line)
		}
		if !strings.HasSuffix(p.stderr.String(), h.read("result")) {
			t.Errorf("%s: --result %s, --json %s", flags, h.read("result"), p.stderr)
		}
	}
	h := newHost(t)
	h.locker("run", "--local", "--result", "result", "", "--", "true").want(125)
	contains(t, "empty key", h.result("result").Error, "the key is empty")
	// Without a -- it may be the command's own file.
	h.locker("run", "--local", "key", "mytool", "--result", "its").want(125)
	if h.exists("its") {
		t.Error("another program's file was written")
	}
}

// What cannot be written is told, and changes nothing else.
func TestResultOnAFullDevice(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.locked("exit 3", "--result", "/dev/full").want(3)
	contains(t, "stderr", p.stderr.String(), "the result cannot be written")
}

// --kill-after that does not fit the ttl must not cost a wait and a grant.
func TestKillAfterIsCheckedBeforeTheWait(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.holding()
	for _, args := range [][]string{{"--local", "--kill-after", "10s"}, {"--kill-after", "4s", "-u", "file://" + h.file(".local/state/locker") + "?ttl=9s"}} {
		p := h.locker(append(append([]string{"run"}, args...), "key", "--", "true")...).want(125)
		contains(t, "stderr", p.stderr.String(), "less than a third")
	}
}

// A job that starts each minute and is refused while the one before still runs must not
// spoil that one's result.
func TestResultFileOfTwoRuns(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.locked("echo $$ > holder; read line", "--result", "result")
	in, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.start()
	h.pid("holder")
	h.locked("true", "-n", "--result", "result").want(123)
	if got := h.result("result"); got.Outcome != "held" {
		t.Errorf("got %+v", got)
	}
	// The longer one comes first: nothing of it must be left behind the other's end.
	h.locked("true", "--"+strings.Repeat("long", 100), "--result", "result").want(125)
	longer := h.read("result")
	if _, err := in.Write([]byte("go on\n")); err != nil {
		t.Fatal(err)
	}
	p.ended(0)
	if len(h.read("result")) >= len(longer) {
		t.Fatalf("want a shorter one than %q", longer)
	}
	if got := h.result("result"); got.Outcome != "ran" || !got.Released {
		t.Errorf("got %+v", got)
	}
}
