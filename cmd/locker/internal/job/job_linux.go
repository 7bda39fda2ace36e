package job

import (
	"errors"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process the parent of whatever its descendants leave behind,
// also of daemons that have left the group. "No child is left" then means that nothing
// is.
func adoptOrphans() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // Linux 3.4
}

func attributes(c Command) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true}
	if c.DieWithParent {
		a.Pdeathsig = syscall.SIGKILL
	}
	return a
}

// others are the children that this process already has: a script that started helpers
// and then did "exec locker" has left them to it. They are no part of the job. Nil: there
// are none.
func others() map[int]bool {
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(-1, &ws, syscall.WNOHANG|syscall.WALL, nil); err != nil {
		return nil // ECHILD, as nearly always
	}
	found := map[int]bool{}
	for _, p := range descendants(os.Getpid(), nil) {
		if p.parent == os.Getpid() {
			found[p.pid] = true
		}
	}
	return found
}

// pollOthers is how often a job is looked at whose end cannot be waited for.
const pollOthers = 50 * time.Millisecond

// reap waits for every child, the command and adopted orphans, until none is left.
func (j *Job) reap() {
	for {
		flags := syscall.WUNTRACED | syscall.WALL
		if j.ended && j.shared {
			flags |= syscall.WNOHANG // the wait would never end
		}
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, flags, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // ECHILD
			return
		case pid == 0:
			if len(descendants(os.Getpid(), j.others)) == 0 {
				return
			}
			time.Sleep(pollOthers)
		case ws.Stopped():
			if pid == j.pid || j.inGroup(pid) {
				j.noteStop(ws.StopSignal())
			}
		case pid == j.pid:
			j.noteEnd(ws)
		default:
			j.mu.Lock()
			delete(j.others, pid) // the number may be given again
			j.mu.Unlock()
		}
	}
}

func (j *Job) inGroup(pid int) bool {
	pgrp, err := unix.Getpgid(pid)
	return err == nil && pgrp == j.pid
}

// signalRest signals what is left of the job one by one: when the command is reaped and
// its group is empty, another group may get the number. j.mu is held.
func (j *Job) signalRest(s syscall.Signal, groupOnly bool) error {
	var errs []error
	sent := false
	for _, p := range descendants(os.Getpid(), j.others) {
		inGroup := p.group == j.pid
		if groupOnly && !inGroup || inGroup && !j.ended {
			continue // not asked for; or signalled with its group
		}
		err := syscall.Kill(p.pid, s)
		if !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, err)
		}
		sent = true
	}
	if !sent && j.ended {
		return errNotRunning
	}
	return errors.Join(errs...)
}

// HasStopped reports whether a process of the command's group is stopped. Only the command
// itself shows that to who waits for it, and a shell that has just forked (vfork) cannot
// stop while what it has forked is stopped.
func (j *Job) HasStopped() bool {
	return slices.ContainsFunc(descendants(os.Getpid(), j.others), func(p proc) bool { return p.stopped && p.group == j.pid })
}

// Left lists the processes that are left.
func (j *Job) Left() []Process {
	var left []Process
	for _, p := range descendants(os.Getpid(), j.others) {
		left = append(left, Process{PID: p.pid, Name: p.name})
	}
	return left
}
