//go:build unix

package main_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// terminal is a person at a terminal.
type terminal struct {
	*process
	f      *os.File
	screen *output
}

// onTerminal starts a program as the leader of a session on a new terminal.
func (h *host) onTerminal(p *process) *terminal {
	h.t.Helper()
	p.Stdin, p.Stdout, p.Stderr = nil, nil, nil // the terminal
	master, err := pty.Start(p.Cmd)
	if err != nil {
		h.t.Fatal(err)
	}
	f := pollable(h.t, master)
	go func() {
		defer close(p.done)
		_ = p.Wait() // ProcessState has it
	}()
	term := &terminal{process: p, f: f, screen: p.stdout}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(term.screen, f) // EIO when the last process is gone
	}()
	h.t.Cleanup(func() {
		_ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL)
		<-p.done
		f.Close()
		<-read
	})
	return term
}

// pollable makes a Close end a Read that is under way.
func pollable(t *testing.T, f *os.File) *os.File {
	t.Helper()
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), f.Name())
}

func (t *terminal) types(keys string) {
	t.t.Helper()
	if _, err := t.f.WriteString(keys); err != nil {
		t.t.Fatal(err)
	}
}

func (t *terminal) shows(text string) {
	t.t.Helper()
	if !within(patience, func() bool { return strings.Contains(t.screen.String(), text) }) {
		t.t.Fatalf("the screen does not show %q:\n%s", text, t.screen)
	}
}

func (t *terminal) foreground() int {
	conn, err := t.f.SyscallConn()
	if err != nil {
		t.t.Fatal(err)
	}
	var pgrp int
	cerr := conn.Control(func(fd uintptr) { pgrp, err = unix.IoctlGetInt(int(fd), unix.TIOCGPGRP) })
	if err = errors.Join(cerr, err); err != nil {
		t.t.Fatal(err)
	}
	return pgrp
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

// The command has the terminal: it reads what is typed, and Ctrl-C is for it.
func TestCommandHasTheTerminal(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	term := h.onTerminal(h.locked(`trap 'echo caught; exit 6' INT; echo $$ > pid; read line; echo "got $line"; while :; do sleep 0.01; done`))
	pid := h.pid("pid")
	eventually(t, "the command's group is in the foreground", func() bool { return term.foreground() == pid })
	term.types("hello\n")
	term.shows("got hello")
	term.types(ctrlC)
	term.shows("caught")
	term.ended(6)
	h.free()
}

// A command stopped by Ctrl-Z would keep the key without working, and lose it.
func TestCtrlZ(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	term := h.onTerminal(h.locked(`echo $$ > pid; while :; do sleep 0.01; done`))
	pid := h.pid("pid")
	eventually(t, "the command's group is in the foreground", func() bool { return term.foreground() == pid })
	term.types(ctrlZ)
	term.shows("is continued")
	eventually(t, "it runs", func() bool { return !stopped(pid) })
	term.types(ctrlC)
	term.wait()
	h.free()
}

// Nor does it help if only what the command has started stops: a shell in the middle of a
// fork, or one that handles the signal, shows nothing.
func TestCtrlZBelowTheCommand(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	term := h.onTerminal(h.locked(`trap : TSTP; echo $$ > pid; sh -c 'echo $$ > below; while :; do sleep 0.01; done'; true`))
	pid, below := h.pid("pid"), h.pid("below")
	eventually(t, "the command's group is in the foreground", func() bool { return term.foreground() == pid })
	term.types(ctrlZ)
	term.shows("is continued")
	eventually(t, "it runs", func() bool { return !stopped(below) })
	term.types(ctrlC)
	term.wait()
	h.free()
}

// A script that runs locker in a loop is ended by Ctrl-C like one that runs the command
// itself, although the terminal sends the signal to the command's group alone.
func TestCtrlCEndsTheScript(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	term := h.onTerminal(h.command("sh", "-c",
		fmt.Sprintf(`while :; do %q run --local key -- sh -c 'echo $$ > pid; exec sleep 60'; echo again; done`, binary)))
	pid := h.pid("pid")
	eventually(t, "the command's group is in the foreground", func() bool { return term.foreground() == pid })
	term.types(ctrlC)
	if got, want := term.wait(), -int(syscall.SIGINT); got != want {
		t.Errorf("the script: got %d, want %d", got, want)
	}
	if s := term.screen.String(); strings.Contains(s, "again") {
		t.Errorf("the script went on: %s", s)
	}
}

// The terminal comes back: what a script does next reads from it.
func TestTerminalComesBack(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	term := h.onTerminal(h.command("sh", "-c", fmt.Sprintf(`%q run --local key -- true; read line; echo "then $line"`, binary)))
	term.types("more\n")
	term.shows("then more")
	term.ended(0)
}

// In a pipeline the pager has the terminal, until the command asks for it.
func TestTerminalInAPipeline(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	term := h.onTerminal(h.command("sh", "-c", fmt.Sprintf(
		`%q run --local key -- sh -c 'echo $$ > pid; while ! [ -e go ]; do sleep 0.01; done; read line </dev/tty; echo "got $line"' | cat`, binary)))
	pid := h.pid("pid")
	always(t, 100*time.Millisecond, "the pipeline has the terminal", func() bool { return term.foreground() != pid })
	if err := os.WriteFile(h.file("go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command has the terminal", func() bool { return term.foreground() == pid })
	term.types("hello\n")
	term.shows("got hello")
	term.ended(0)
}

// In the background there is no terminal to be had. That is told once, and does not spin.
func TestTerminalInTheBackground(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	// set -m: job control, so that the background job has its own group.
	term := h.onTerminal(h.command("bash", "-c", fmt.Sprintf(
		`set -m; %q run --local key -- sh -c 'echo $$ > pid; read line </dev/tty; echo "got $line"' & while ! [ -e go ]; do sleep 0.01; done; fg`, binary)))
	pid := h.pid("pid")
	term.shows("wants the terminal")
	always(t, 500*time.Millisecond, "the shell has the terminal", func() bool { return term.foreground() != pid })
	if err := os.WriteFile(h.file("go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	term.types("hello\n")
	term.shows("got hello")
	term.wait()
	if n := strings.Count(term.screen.String(), "wants the terminal"); n != 1 {
		t.Errorf("told %d times", n)
	}
}

// A hang-up of the terminal ends the wait.
func TestHangUpWhileWaiting(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.holding()
	p := h.locked("true", "-v")
	term := h.onTerminal(p)
	term.shows("waiting: held by")
	term.f.Close()
	if got, want := p.wait(), 128+int(syscall.SIGHUP); got != want {
		t.Errorf("got %d, want %d", got, want)
	}
}

// Without any terminal, in a session of its own, as cron and systemd start it; also with
// the standard descriptors closed.
func TestNoTerminal(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.locked("cat; exit 3")
	p.SysProcAttr.Setsid = true
	p.want(3).silent()

	h.command("sh", "-c", fmt.Sprintf(`%q run --local key -- sh -c 'cat; echo done > closed; exit 4' <&- >&- 2>&-`, binary)).want(4)
	if got, want := h.read("closed"), "done\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
