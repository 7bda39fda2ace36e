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

// others are the processes that this process already has below it, with when they
// started: a script that started helpers and then did "exec locker" has left them to it.
// They are no part of the job. Nil: there are none.
func others() map[int]uint64 {
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(-1, &ws, syscall.WNOHANG|syscall.WALL, nil); err != nil {
		return nil // ECHILD, as nearly always
	}
	found := map[int]uint64{}
	of, _ := children()
	for _, p := range below(of, of[os.Getpid()]) {
		found[p.pid] = p.start
	}
	return found
}

// rest returns what is left of the job. What is below one of the others is one of them,
// and remembered, as it may lose its parent and become this process's child. So is what is
// in this process's own group: a job is always in another one.
//
// Gone: it is certain that nothing is left. One look tells, if nobody reaps meanwhile
// (only the job's own thread does, see reap). For whatever the job has running when the
// look begins is below some child of this process that belongs to the job, as a subreaper
// gets what loses its parent. That child stays this process's child, alive or as a zombie,
// until it is reaped, so the look shows it, whatever else begins and ends. And a job of
// which nothing runs never runs again.
func (j *Job) rest() (left []proc, gone bool) {
	of, whole := children()
	group := syscall.Getpgrp()
	var mine, strange []proc
	for _, p := range of[os.Getpid()] {
		started, known := j.others[p.pid]
		if p.group == group || known && started == p.start {
			strange = append(strange, p)
		} else {
			mine = append(mine, p)
		}
	}
	if j.shared {
		for _, p := range below(of, strange) {
			j.others[p.pid] = p.start
		}
	}
	for _, p := range below(of, mine) {
		if !p.dead {
			left = append(left, p)
		}
	}
	return left, whole && len(mine) == 0
}

// look is rest for who does not hold j.mu.
func (j *Job) look() (left []proc, gone bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.rest()
}

// pollOthers is how often a job is looked at whose end cannot be waited for.
const pollOthers = 50 * time.Millisecond

// reap waits for every child, the command and adopted orphans, until none is left. Beside
// others that wait would never end: then it looks who is left, and if it cannot see
// everybody it waits for the others, too.
func (j *Job) reap() {
	for {
		flags := syscall.WUNTRACED | syscall.WALL
		if j.ended && j.shared {
			flags |= syscall.WNOHANG
		}
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, flags, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // ECHILD
			return
		case pid == 0:
			if _, gone := j.look(); gone {
				return
			}
			time.Sleep(pollOthers)
		case ws.Stopped():
			if pid == j.pid || j.inGroup(pid) {
				j.noteStop(ws.StopSignal())
			}
		case pid == j.pid:
			j.noteEnd(ws)
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
	left, _ := j.rest()
	for _, p := range left {
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
	left, _ := j.look()
	return slices.ContainsFunc(left, func(p proc) bool { return p.stopped && p.group == j.pid })
}

// Left lists the processes that are left.
func (j *Job) Left() []Process {
	var named []Process
	left, _ := j.look()
	for _, p := range left {
		named = append(named, Process{PID: p.pid, Name: p.name})
	}
	return named
}
