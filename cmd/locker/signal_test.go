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

// waiting starts a run that waits for the key.
func (h *host) waiting() *process {
	h.t.Helper()
	p := h.locked("echo ran > ran", "-v").start()
	eventually(h.t, "it waits", func() bool { return strings.Contains(p.stderr.String(), "waiting: held by") })
	return p
}

// consul lock ignores signals while it waits for the lock.
func TestSignalEndsTheWait(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			holder := h.holding()
			before := h.tree()
			p := h.waiting()
			p.signal(s)
			p.ended(128 + int(s))
			if got, want := h.tree(), before; got != want {
				t.Errorf("left behind:\n%s\nbefore:\n%s", got, want)
			}
			holder.signal(syscall.SIGTERM)
			holder.ended(128 + int(syscall.SIGTERM))
			h.free()
			if h.exists("ran") {
				t.Error("the command has run")
			}
		})
	}
}

// tree lists every file of the lock directory.
func (h *host) tree() string {
	p := h.command("find", ".local", "-name", "*")
	p.want(0)
	return p.stdout.String()
}

// consul lock and etcdctl lock do not pass SIGTERM on.
func TestSignalsArePassedOn(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.locked(`
		for s in HUP USR1 USR2 WINCH; do trap "echo $s" $s; done
		trap 'echo TERM; exit 7' TERM
		echo $$ > ready
		while :; do sleep 0.01; done`).start()
	h.pid("ready")
	for _, s := range []struct {
		syscall.Signal
		name string
	}{{syscall.SIGHUP, "HUP"}, {syscall.SIGUSR1, "USR1"}, {syscall.SIGUSR2, "USR2"}, {syscall.SIGWINCH, "WINCH"}, {syscall.SIGTERM, "TERM"}} {
		p.signal(s.Signal)
		eventually(t, s.name+" has arrived", func() bool { return strings.Contains(p.stdout.String(), s.name+"\n") })
	}
	p.ended(7)
	h.free()
}

// consul lock kills the shell, but not what the shell has started.
func TestSignalReachesTheWholeGroup(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.locked(`sleep 60 & echo $! > below; echo $$ > shell; wait`).start()
	shell, below := h.pid("shell"), h.pid("below")
	p.signal(syscall.SIGTERM)
	p.ended(128 + int(syscall.SIGTERM))
	if alive(shell) || alive(below) {
		t.Errorf("still alive: shell %v, below %v", alive(shell), alive(below))
	}
}

// A command that is ended but has left something running has not let go yet: flock(1)
// keeps the lock as well, consul lock does not.
func TestReleasedOnlyWhenTheGroupIsGone(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.locked(`sleep 60 & echo $! > below; exit 4`).start()
	below := h.pid("below")
	always(t, 300*time.Millisecond, "the key is held", func() bool { return h.locked("true", "-n").run() == 123 })
	if err := syscall.Kill(below, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.ended(4)
	h.free()
}

// A daemon that leaves the group and the session is still waited for, and a signal that
// comes then reaches it.
func TestDaemonIsAdopted(t *testing.T) {
	t.Parallel()
	if !adopts {
		t.Skip("only Linux lets a process adopt what its children leave behind")
	}
	h := newHost(t)
	p := h.locked(`setsid sh -c 'sleep 60 & echo $! > daemon' & wait`, "-v").start()
	daemon := h.pid("daemon")
	always(t, 300*time.Millisecond, "the key is held", func() bool { return h.locked("true", "-n").run() == 123 })
	p.signal(syscall.SIGTERM)
	p.ended(0) // the command's own code
	if alive(daemon) {
		t.Error("the daemon is still alive")
	}
	h.free()
}

// nohup: what was ignored before stays ignored.
func TestIgnoredSignalStaysIgnored(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.command("sh", "-c", fmt.Sprintf(`trap "" HUP; exec %q run --local key -- sh -c 'echo $$ > pid; sleep 60'`, binary)).start()
	pid := h.pid("pid")
	p.signal(syscall.SIGHUP)
	if err := syscall.Kill(-pid, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	always(t, 100*time.Millisecond, "both run", func() bool { return alive(pid) && alive(p.Process.Pid) })
	p.signal(syscall.SIGTERM)
	p.ended(128 + int(syscall.SIGTERM))
}

// A stopped holder would lose its lease.
func TestStoppedCommandIsContinued(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.locked(`echo $$ > pid; while :; do sleep 0.01; done`).start()
	pid := h.pid("pid")
	for s, name := range map[syscall.Signal]string{syscall.SIGSTOP: "SIGSTOP", syscall.SIGTSTP: "SIGTSTP"} {
		if err := syscall.Kill(pid, s); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is told", func() bool { return strings.Contains(p.stderr.String(), "was stopped ("+name+") and is continued") })
		eventually(t, "it runs", func() bool { return !stopped(pid) })
	}
	// Nor does the holder stop itself.
	p.signal(syscall.SIGTSTP)
	eventually(t, "it is told", func() bool { return strings.Contains(p.stderr.String(), "not stopped") })
	p.signal(syscall.SIGTERM)
	p.ended(128 + int(syscall.SIGTERM))
}

func stopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") T ")
}
