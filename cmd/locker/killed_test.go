//go:build unix

package main_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Job lockers leave orphaned locks behind when they are killed, and reapers that delete
// live ones. Here the command dies with its holder, and the key is free at once.
func TestKilledHolder(t *testing.T) {
	t.Parallel()
	if !adopts {
		t.Skip("only Linux kills a command when its parent dies")
	}
	h := newHost(t)
	p := h.locked(`echo $$ > pid; exec sleep 60`, "--ttl", "10m").start()
	pid := h.pid("pid")
	p.signal(syscall.SIGKILL)
	p.ended(-int(syscall.SIGKILL))
	eventually(t, "the command is dead", func() bool { return !alive(pid) })
	h.locked("true", "-w", "5s").want(0)
}

// What the command has started survives it, and keeps the key as long as it lives: it
// has inherited the lease's descriptor.
func TestKilledHolderWithAGrandchild(t *testing.T) {
	t.Parallel()
	if !adopts {
		t.Skip("only Linux kills a command when its parent dies")
	}
	h := newHost(t)
	p := h.locked(`sleep 60 & echo $! > below; wait`, "--ttl", "10m").start()
	below := h.pid("below")
	p.signal(syscall.SIGKILL)
	p.ended(-int(syscall.SIGKILL))
	always(t, 500*time.Millisecond, "the key is held", func() bool { return h.locked("true", "-n").run() == 123 })
	if err := syscall.Kill(below, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h.locked("true", "-w", "5s").want(0)
}

// Who has chosen to run on without a lock runs on without a holder, too, and keeps the key
// while it is its own.
func TestKilledHolderWithLossIgnored(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.locked(`echo $$ > pid; exec sleep 60`, "--ttl", "10m", "--on-loss", "ignore").start()
	pid := h.pid("pid")
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	p.signal(syscall.SIGKILL)
	p.ended(-int(syscall.SIGKILL))
	always(t, 300*time.Millisecond, "the command runs and has the key", func() bool { return alive(pid) && h.locked("true", "-n").run() == 123 })
}

// becomeRoot makes a program that an ordinary user may start and not kill; this host is
// such a user's from now on.
func (h *host) becomeRoot() {
	h.t.Helper()
	if os.Getuid() != 0 {
		h.t.Skip("only root can make a program that an ordinary user may start and not kill")
	}
	h.notRoot()
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		h.t.Skip(err)
	}
	b, err := os.ReadFile(setpriv)
	if err != nil {
		h.t.Fatal(err)
	}
	name := h.file("become-root")
	if err := os.WriteFile(name, b, 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Chmod(name, 0o755|os.ModeSetuid); err != nil {
		h.t.Fatal(err)
	}
}

// What cannot be killed is not gone: the key is not given back while it may be at work.
func TestNotGoneIsNotReleased(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.becomeRoot()
	p := h.locked("echo $$ > pid; exec ./become-root --reuid 0 sleep 60", "--ttl", "3s", "--max-hold", "500ms", "--kill-after", "100ms", "--result", "result").start()
	pid := h.pid("pid")
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	p.ended(121)
	contains(t, "stderr", p.stderr.String(), "cannot be confirmed")
	if r := h.result("result"); r.Outcome != "max-hold" || r.Released || !alive(pid) {
		t.Errorf("alive %v, %+v", alive(pid), r)
	}
	h.locked("true", "-n").want(123)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h.locked("true", "-w", "10s").want(0)

	// A command that has closed the lease's descriptor, as sudo does, keeps the key for what
	// is left of the ttl and no longer.
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip(err)
	}
	begun := time.Now()
	p = h.locked("echo $$ > pid2; exec "+bash+" -c 'for f in /proc/self/fd/*; do f=${f##*/}; [ $f -gt 2 ] && eval \"exec $f>&-\"; done; exec ./become-root --reuid 0 sleep 60'",
		"--ttl", "3s", "--max-hold", "500ms", "--kill-after", "100ms").start()
	pid = h.pid("pid2")
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	p.ended(121)
	ended := time.Now()
	h.locked("true", "-n").want(123)
	if n := h.keepers(); n != 1 {
		t.Errorf("%d processes keep the key, want 1", n)
	}
	h.locked("true", "-w", "20s").want(0)
	if free := time.Since(ended); !alive(pid) || free < 500*time.Millisecond {
		t.Errorf("alive %v; free %v after locker had left (%v in all), want what is left of the ttl", alive(pid), free, time.Since(begun))
	}
	eventually(t, "what kept the key has ended, too", func() bool { return h.keepers() == 0 })
}

// keepers counts the processes that keep a key of this host's for a locker that has left.
func (h *host) keepers() (n int) {
	h.t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		h.t.Fatal(err)
	}
	for _, name := range names {
		b, _ := os.ReadFile(name) // gone meanwhile
		dir, _ := os.Readlink(filepath.Join(filepath.Dir(name), "cwd"))
		if bytes.HasPrefix(b, []byte("locker: keeps a key ")) && dir == h.home {
			n++
		}
	}
	return n
}

// A variable that somebody has set must not make every locker a keeper that does nothing
// and says that all went well.
func TestKeeperIsNotAskedForByTheEnvironment(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.env = append(h.env, "LOCKER_KEEP_FOR=0s")
	if got, want := h.locked("echo ran; exit 7").want(7).stdout.String(), "ran\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	contains(t, "status", h.locker("status", "--local", "key").want(0).stdout.String(), "key: free")
}

// What the first SIGKILL could not reach gets another one.
func TestKillIsRepeated(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.becomeRoot()
	// Root's part outlives the first SIGKILL, sees by the victim that there was one, and
	// becomes an ordinary user again.
	if err := os.WriteFile(h.file("outlive"), []byte(`
		setpriv --reuid 65534 sh -c 'trap "" TERM; exec sleep 60' &
		echo $$ > pid
		wait $!
		exec setpriv --reuid 65534 sleep 60
	`), 0o644); err != nil {
		t.Fatal(err)
	}
	p := h.locked("exec ./become-root --reuid 0 sh outlive", "--max-hold", "700ms", "--kill-after", "100ms").start()
	pid := h.pid("pid")
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	p.ended(121)
	if s := p.stderr.String(); alive(pid) || strings.Contains(s, "cannot be confirmed") {
		t.Errorf("alive %v\n%s", alive(pid), s)
	}
	h.free()
}
