//go:build unix

package job

import (
	"errors"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Job is a started command and everything that belongs to it.
type Job struct {
	pid    int // of the command, and the number of its group
	events chan Event
	gone   chan struct{}
	shared bool // this process had others below it, and they may leave more to it

	mu     sync.Mutex
	ended  bool           // the command was reaped: its number may be somebody else's soon
	others map[int]uint64 // processes that are no part of the job, and when they started
	tty    *terminal
}

// Start starts the command in a process group of its own. If this process is in the
// terminal's foreground and both its input and its output are the terminal, the group
// takes its place there; otherwise (in a pipeline with a pager, say) it gets the terminal
// when it first asks for it.
func Start(c Command) (*Job, error) {
	j := &Job{events: make(chan Event, 16), gone: make(chan struct{})}
	started := make(chan error)
	go j.own(c, started)
	if err := <-started; err != nil {
		return nil, err
	}
	return j, nil
}

// own starts the command and waits for it on one thread that lives as long as the job:
// the kernel sends the parent-death signal when the *thread* that forked is gone.
func (j *Job) own(c Command, started chan<- error) {
	runtime.LockOSThread() // and never unlock
	adoptOrphans()
	j.others = others()
	j.shared = j.others != nil
	pid, err := fork(c)
	if err != nil {
		started <- err
		return
	}
	j.pid = pid
	// From here on this process may stand in the background of its own terminal, and a
	// message must not stop it. Not before the fork: the command would inherit it.
	signal.Ignore(syscall.SIGTTOU)
	if isTerminal(0) && isTerminal(1) {
		j.offer()
	}
	started <- nil
	j.reap()
	close(j.gone)
}

// keepFrom is the least descriptor number of Keep: above what shell scripts use.
const keepFrom = 64

func fork(c Command) (int, error) {
	if c.Keep != nil {
		fd, err := inheritable(c.Keep)
		if err != nil {
			return 0, os.NewSyscallError("dup", err)
		}
		defer unix.Close(fd)
	}
	attr := &syscall.ProcAttr{
		Env:   c.Env,
		Files: []uintptr{0, 1, 2},
		Sys:   attributes(c),
	}
	pid, err := syscall.ForkExec(c.Path, c.Args, attr)
	if errors.Is(err, syscall.ENOEXEC) {
		// A script without #!: as execvp(3) and so every shell does.
		pid, err = syscall.ForkExec("/bin/sh", append([]string{"sh", c.Path}, c.Args[1:]...), attr)
	}
	switch {
	case err == nil:
		return pid, nil
	case isShortage(err): // says nothing about the command
		return 0, os.NewSyscallError("fork", err)
	}
	return 0, &os.PathError{Op: "exec", Path: c.Path, Err: err}
}

// isShortage reports whether the system or this process has no more of something.
func isShortage(err error) bool {
	return slices.ContainsFunc([]error{syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN, syscall.ENOMEM},
		func(e error) bool { return errors.Is(err, e) })
}

// inheritable duplicates a file so that exec does not close it.
func inheritable(f *os.File) (int, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD, keepFrom)
	if errors.Is(err, unix.EINVAL) { // few descriptors allowed
		fd, err = unix.FcntlInt(f.Fd(), unix.F_DUPFD, 3)
	}
	return fd, err
}

// Events tells what happens to the command. It is never closed.
func (j *Job) Events() <-chan Event { return j.events }

// Gone is closed when nothing of the job is left.
func (j *Job) Gone() <-chan struct{} { return j.gone }

// Signal sends a signal to the command's group. When the command has ended, what it has
// left behind gets the signals that ask it to end, wherever it is.
func (j *Job) Signal(s os.Signal) error {
	n, ok := s.(syscall.Signal)
	if !ok {
		return errNotRunning
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.ended {
		return syscall.Kill(-j.pid, n)
	}
	return j.signalRest(n, !Ends(n))
}

// Stop sends SIGTERM to everything that belongs to the job, also to what has left its
// group, and continues what is stopped, so that it can obey.
func (j *Job) Stop() error {
	return errors.Join(j.signalAll(syscall.SIGTERM), j.signalAll(syscall.SIGCONT))
}

// Kill sends SIGKILL to everything that belongs to the job. What a process forks at the
// same moment can escape: call it again until Gone.
func (j *Job) Kill() error { return j.signalAll(syscall.SIGKILL) }

func (j *Job) signalAll(s syscall.Signal) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended {
		return j.signalRest(s, false)
	}
	return errors.Join(syscall.Kill(-j.pid, s), j.signalRest(s, false))
}

// Continue lets a stopped job go on.
func (j *Job) Continue() { _ = j.Signal(syscall.SIGCONT) }

// noteEnd records that the command has ended.
func (j *Job) noteEnd(ws syscall.WaitStatus) {
	j.mu.Lock()
	j.ended = true
	j.mu.Unlock()
	st := Status{Code: ws.ExitStatus()}
	if ws.Signaled() {
		st = Status{Signal: ws.Signal()}
	}
	j.events <- Event{Status: st}
}

// noteStop reports that something has stopped, or quietly puts it right: a command that
// asks for the terminal gets it, if it is ours to give.
func (j *Job) noteStop(s syscall.Signal) {
	asks := s == syscall.SIGTTIN || s == syscall.SIGTTOU
	if asks && j.offer() {
		j.Continue()
		return
	}
	select {
	case j.events <- Event{Stopped: s, Terminal: asks}:
	default: // the reader has enough of them to act on
	}
}
