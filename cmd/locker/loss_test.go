//go:build unix

package main_test

import (
	"errors"
	"os"
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

// Reapers of job lockers delete live locks. A command keeps the key as long as it runs,
// for many ttls, and nobody gets it earlier.
func TestCommandOutlivesItsTTL(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	old := h.locked(`echo $$ > pid; sleep 5; echo old >> log; exit 0`, "--ttl", shortTTL, "--result", "result").start()
	h.pid("pid")
	next := h.locked("echo new >> log", "--ttl", shortTTL, "-w", "1m").start()
	old.ended(0).silent()
	next.ended(0).silent()
	if got, want := h.read("log"), "old\nnew\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if r := h.result("result"); r.Outcome != "ran" || !r.Released {
		t.Errorf("result: %+v", r)
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

// Or somebody reads no further, with the pipe full: what is said must not wait for that.
func TestLossWithAFullPipe(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	if err := w.SetWriteDeadline(time.Now().Add(look)); err != nil {
		t.Fatal(err)
	}
	if _, err = w.Write(make([]byte, 4<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	if err := syscall.SetNonblock(int(w.Fd()), false); err != nil { // as a shell's pipe
		t.Fatal(err)
	}
	p := h.locked(`exec 2>/dev/null; `+stubborn, "--ttl", shortTTL)
	p.Stderr = w
	p.start()
	pid := h.pid("pid")
	h.locker("break", "--local", "key", "--token", "1").want(0)
	p.ended(122)
	if alive(pid) {
		t.Error("the command is alive")
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
