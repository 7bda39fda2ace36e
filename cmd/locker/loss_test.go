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

const shortTTL = "2s"

// stubborn is a command that ignores SIGTERM and writes a line while it lives.
const stubborn = `trap "" TERM; echo $$ > pid; while :; do echo old >> log; sleep 0.01; done`

// etcdctl lock does not stop the command when the lease is lost; consul lock kills it 90 s
// later, when another one has long begun.
func TestTwoNeverOverlap(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	old := h.locked(stubborn, "--ttl", shortTTL).start()
	pid := h.pid("pid")
	next := h.locked("echo new >> log; sleep 0.2; echo new >> log", "--ttl", shortTTL).start()
	h.locker("break", "--local", "key", "--token", "1", "--reason", "test").want(0)
	next.ended(0)
	old.ended(122)
	if alive(pid) {
		t.Error("the old command is alive")
	}
	contains(t, "stderr", old.stderr.String(), "stopping the command")
	log := h.read("log")
	if !strings.HasSuffix(log, "old\nnew\nnew\n") || strings.Count(log, "new") != 2 {
		t.Errorf("the old command was still at work when the next one had begun: …%q", log[max(0, len(log)-60):])
	}
}

// A polite command gets SIGTERM first.
func TestLossTerminates(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.locked(`trap 'echo told > told; exit 0' TERM; echo $$ > pid; while :; do sleep 0.01; done`,
		"--ttl", shortTTL, "--result", "result").start()
	h.pid("pid")
	h.locker("break", "--local", "key", "--token", "1").want(0)
	p.ended(122) // although the command said 0
	if h.read("told") != "told\n" {
		t.Error("no SIGTERM")
	}
	r := h.result("result")
	if r.Outcome != "lost" || r.ChildCode == nil || *r.ChildCode != 0 || r.Token != "1" || r.Released {
		t.Errorf("result: %+v", r)
	}
}

func TestLossKills(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.locked(`trap 'echo told > told; exit 0' TERM; echo $$ > pid; while :; do sleep 0.01; done`,
		"--ttl", shortTTL, "--on-loss", "kill").start()
	h.pid("pid")
	h.locker("break", "--local", "key", "--token", "1").want(0)
	p.ended(122)
	if h.exists("told") {
		t.Error("there was a SIGTERM")
	}
}

func TestLossIgnored(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.locked(`echo $$ > pid; while ! [ -e go ]; do sleep 0.01; done; exit 9`,
		"--ttl", shortTTL, "--on-loss", "ignore", "--result", "result").start()
	h.pid("pid")
	h.locker("break", "--local", "key", "--token", "1").want(0)
	eventually(t, "the loss is told", func() bool { return strings.Contains(p.stderr.String(), "without the lock") })
	if err := os.WriteFile(h.file("go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	p.ended(9)
	if r := h.result("result"); r.Outcome != "lost" || *r.ChildCode != 9 {
		t.Errorf("result: %+v", r)
	}
}

// The lock's files are removed under the holder.
func TestDirectoryRemoved(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.locked(stubborn, "--ttl", shortTTL).start()
	pid := h.pid("pid")
	if err := os.RemoveAll(h.file(".local")); err != nil {
		t.Fatal(err)
	}
	p.ended(122)
	if alive(pid) {
		t.Error("the command is alive")
	}
}

// Also what has left the command's group and session is stopped.
func TestLossReachesDaemons(t *testing.T) {
	t.Parallel()
	if !adopts {
		t.Skip("only Linux lets a process adopt what its children leave behind")
	}
	h := newHost(t)
	p := h.locked(`setsid sh -c 'trap "echo told > told" TERM; echo $$ > daemon; while :; do sleep 0.01; done' & sleep 60`,
		"--ttl", shortTTL, "--kill-after", "0.6s").start()
	daemon := h.pid("daemon")
	h.locker("break", "--local", "key", "--token", "1").want(0)
	p.ended(122)
	if !h.exists("told") || alive(daemon) {
		t.Errorf("the daemon: told %v, alive %v", h.exists("told"), alive(daemon))
	}
}

// What is stopped cannot obey: it is continued.
func TestLossReachesTheStopped(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.locked(`sh -c 'trap "echo told > told" TERM; echo $$ > below; while :; do sleep 0.01; done' & trap "" TERM; wait; wait`,
		"--ttl", shortTTL, "--kill-after", "0.6s").start()
	below := h.pid("below")
	if err := syscall.Kill(below, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	h.locker("break", "--local", "key", "--token", "1").want(0)
	p.ended(122)
	if !h.exists("told") || alive(below) {
		t.Errorf("told %v, alive %v", h.exists("told"), alive(below))
	}
}

// A holder that was frozen beyond its lease kills the command as soon as it wakes.
func TestFrozenHolder(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.locked(stubborn, "--ttl", "1s").start()
	pid := h.pid("pid")
	p.signal(syscall.SIGSTOP)
	thawed := time.NewTimer(1500 * time.Millisecond) // beyond the ttl
	<-thawed.C
	p.signal(syscall.SIGCONT)
	p.ended(122)
	if alive(pid) {
		t.Error("the command is alive")
	}
}

// Nobody reads what locker says: the command is stopped all the same.
func TestLossWithABrokenPipe(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := h.locked(`exec 2>/dev/null; `+stubborn, "--ttl", shortTTL)
	p.Stderr = w
	p.start()
	w.Close()
	pid := h.pid("pid")
	r.Close()
	h.locker("break", "--local", "key", "--token", "1").want(0)
	p.ended(122)
	if alive(pid) {
		t.Error("the command is alive")
	}
}

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

// The backend does not answer any more: the command is told to stop while the key is
// still its own, and killed before it is somebody else's.
func TestRenewalFails(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.notRoot() // root may write everywhere
	p := h.locked(`trap 'echo told > told' TERM; echo $$ > pid; while :; do echo old >> log; sleep 0.01; done`, "--ttl", shortTTL).start()
	pid := h.pid("pid")
	closed := h.file(".local")
	if err := os.Chmod(closed, 0); err != nil {
		t.Fatal(err)
	}
	p.ended(122)
	if err := os.Chmod(closed, 0o755); err != nil {
		t.Fatal(err)
	}
	contains(t, "stderr", p.stderr.String(), "is not renewed and ends in")
	if !h.exists("told") || alive(pid) {
		t.Errorf("told %v, alive %v", h.exists("told"), alive(pid))
	}
	h.locked("true", "-w", "10s").want(0)
}

// What cannot be killed is not gone: the key is not given back while it may be at work.
func TestNotGoneIsNotReleased(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can make a program that an ordinary user may start and not kill")
	}
	h := newHost(t)
	h.notRoot()
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip(err)
	}
	b, err := os.ReadFile(setpriv)
	if err != nil {
		t.Fatal(err)
	}
	becomeRoot := h.file("become-root")
	if err := os.WriteFile(becomeRoot, b, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(becomeRoot, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
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

// What nothing here can prevent, and what the help and the manual therefore say: a locker
// that is stopped alone stops nobody.
func TestStoppedLockerIsAdmitted(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.holding("--ttl", "1s")
	first := h.pid("holder")
	p.signal(syscall.SIGSTOP)
	h.locked("test $LOCKER_TOKEN = 2").want(0) // the token tells them apart
	if !alive(first) {
		t.Error("the first command is gone: say in the help that it is stopped")
	}
	p.signal(syscall.SIGCONT)
	p.ended(122)
	if alive(first) {
		t.Error("the first command survives a locker that has woken")
	}
	help := h.locker("run", "--help").want(0).stdout.String()
	contains(t, "help", help, "kill -STOP")
	if strings.Contains(help, "two never run") {
		t.Error("the help promises too much")
	}
}
