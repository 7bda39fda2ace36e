//go:build unix

package main_test

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// state is a key as --json shows it.
type state struct {
	Key         string
	Held        bool
	Broken      bool
	Token       string
	Owner       string
	Note        string
	HeldForMS   *int64 `json:"held_for_ms"`
	ExpiresInMS *int64 `json:"expires_in_ms"`
	Waiters     *int
}

func TestStatus(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.locker("status", "--local", "key").want(0)
	if got, want := p.stdout.String(), "key: free\n"; got != want {
		t.Errorf("never used: got %q, want %q", got, want)
	}
	holder := h.holding("--owner", "web-3", "--note", "OPS-12")
	p = h.locker("status", "--local", "key").want(0)
	contains(t, "status", p.stdout.String(), "key: held by web-3 (token 1)")
	contains(t, "status", p.stdout.String(), "OPS-12")
	s := parse[state](t, h.locker("status", "--local", "--json", "key").want(0).stdout.String())
	if !s.Held || s.Broken || s.Key != "key" || s.Token != "1" || s.Owner != "web-3" || s.Note != "OPS-12" ||
		s.ExpiresInMS == nil || *s.ExpiresInMS <= 0 || *s.ExpiresInMS > 30_500 {
		t.Errorf("%+v", s)
	}
	holder.signal(syscall.SIGTERM)
	holder.ended(143)
	p = h.locker("status", "--local", "key").want(0)
	if got, want := p.stdout.String(), "key: free (last token 1)\n"; got != want {
		t.Errorf("released: got %q, want %q", got, want)
	}
	if s = parse[state](t, h.locker("status", "--local", "--json", "key").want(0).stdout.String()); s.Held || s.ExpiresInMS != nil {
		t.Errorf("%+v", s)
	}
}

// What other people call themselves must not move the cursor.
func TestOwnerIsPrintable(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.holding("--owner", "evil\x1b[2Jname\n")
	for _, args := range [][]string{{"status", "--local", "key"}, {"ls", "--local"}} {
		if s := h.locker(args...).want(0).stdout.String(); strings.ContainsRune(s, '\x1b') || !strings.Contains(s, `evil\x1b`) {
			t.Errorf("%v: %q", args, s)
		}
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.locker("ls", "--local").want(0).silent()
	for _, key := range []string{"backup/b", "backup/a", "nightly"} {
		name := strings.ReplaceAll(key, "/", "-")
		h.locker("run", "--local", key, "--", "sh", "-c", "echo $$ > "+name+"; exec sleep 60").start()
		h.pid(name)
	}
	h.locked("true").want(0) // free again: not shown
	lines := strings.Split(h.locker("ls", "--local").want(0).stdout.String(), "\n")
	if len(lines) != 5 || !strings.HasPrefix(lines[0], "KEY") || !strings.HasPrefix(lines[1], "backup/a ") ||
		!strings.HasPrefix(lines[2], "backup/b ") || !strings.HasPrefix(lines[3], "nightly ") {
		t.Errorf("got %q", lines)
	}
	var keys []string
	for line := range strings.Lines(h.locker("ls", "--local", "backup/", "--json").want(0).stdout.String()) {
		keys = append(keys, parse[state](t, line).Key)
	}
	if got, want := strings.Join(keys, " "), "backup/a backup/b"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestBreak(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.locker("break", "--local", "key", "--token", "1").want(1)
	contains(t, "free", p.stderr.String(), "nobody holds")
	h.holding("--ttl", "10s")
	p = h.locker("break", "--local", "key", "--token", "7").want(1)
	contains(t, "wrong token", p.stderr.String(), `locker: not broken: "key" is held by `)
	contains(t, "wrong token", p.stderr.String(), "(token 1")
	h.locked("true", "-n").want(123)

	s := parse[state](t, h.locker("break", "--local", "key", "--token", "1", "--reason", "test", "--json").want(0).stdout.String())
	if !s.Held || !s.Broken || s.Token != "1" {
		t.Errorf("%+v", s)
	}
	p = h.locker("status", "--local", "key").want(0)
	contains(t, "status", p.stdout.String(), "broken: it cannot renew")
	h.locked("true", "-n").want(123)
	h.locker("break", "--local", "key", "--token", "1", "--now").want(0)
	h.locked("true", "-n").want(0)
}

func TestWatch(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.locker("watch", "--local", "key", "--json", "--interval", "10ms").start()
	human := h.locker("watch", "--local", "key", "--interval", "0.01").start()
	lines := func() []string { return strings.Split(strings.TrimSuffix(p.stdout.String(), "\n"), "\n") }
	for _, p := range []*process{p, human} {
		eventually(t, "the first line", func() bool { return strings.Count(p.stdout.String(), "\n") == 1 })
	}
	holder := h.holding()
	eventually(t, "the grant", func() bool { return len(lines()) == 2 })
	eventually(t, "the same for people", func() bool { return strings.Count(human.stdout.String(), "\n") == 2 })
	if s := parse[state](t, lines()[1]); !s.Held || s.Token != "1" {
		t.Errorf("%+v", s)
	}
	holder.signal(syscall.SIGTERM)
	eventually(t, "the release", func() bool { return len(lines()) == 3 })
	if s := parse[state](t, lines()[2]); s.Held {
		t.Errorf("%+v", s)
	}
	eventually(t, "the same for people", func() bool { return strings.Count(human.stdout.String(), "\n") == 3 })
	p.signal(syscall.SIGINT)
	p.ended(130)
	human.signal(syscall.SIGTERM)
	human.ended(143)
	contains(t, "human", human.stdout.String(), "key: held by")
}

// Who only looks makes nothing: a typo must not become a directory.
func TestLookingMakesNothing(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	typo, empty := "file://"+h.file("typo"), "file://"+h.file("empty")
	if err := os.Mkdir(h.file("empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"status", "key"}, {"ls"}, {"watch", "key"}, {"break", "key", "--token", "1"}} {
		p := h.locker(append(args, "-u", typo, "--json")...).want(125)
		contains(t, args[0], parse[struct{ Message string }](t, p.stderr.String()).Message, "there is no directory "+h.file("typo"))
	}
	for _, place := range []string{"--local", "--url=" + empty} {
		p := h.locker("status", place, "key").want(0)
		if got, want := p.stdout.String(), "key: free\n"; got != want {
			t.Errorf("%s: got %q, want %q", place, got, want)
		}
		contains(t, place, p.stderr.String(), "nobody has locked anything in ")
		h.locker("ls", place).want(0).silent()
		h.locker("break", place, "key", "--token", "1").want(1)
	}
	h.locker("status", "--local", "").want(125)
	h.env = append(h.env, "HOME="+h.file("nonexistent"))
	h.locker("ls", "--local").want(0).silent()
	if got, want := h.command("find", ".").want(0).stdout.String(), ".\n./empty\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// With --json errors are JSON too.
func TestErrorsAreJSON(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for _, args := range []string{"status --json -u gopher://x key", "status --json", "ls --json --colour", "break --json key --token x", "watch --json --interval 0 key"} {
		p := h.locker(append(strings.Fields(args), "--")...).want(125)
		if m := parse[struct{ Level, Message string }](t, p.stderr.String()); m.Level != "warning" || m.Message == "" {
			t.Errorf("%s: %q", args, p.stderr)
		}
	}
}
