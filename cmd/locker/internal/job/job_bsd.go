//go:build unix && !linux

package job

import (
	"errors"
	"syscall"
	"time"
)

// adoptOrphans: only Linux has this. What leaves the group is not seen here.
func adoptOrphans() {}

// others: what is not in the command's group is not looked at.
func others() map[int]uint64 { return nil }

// attributes: only Linux can kill a command when its parent dies.
func attributes(Command) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// leastPoll and slowestPoll bound how often the group is asked whether it is empty.
const (
	leastPoll   = 10 * time.Millisecond
	slowestPoll = 250 * time.Millisecond
)

// reap waits for the command, and then until its group is empty.
func (j *Job) reap() {
	for ended := false; !ended; {
		var ws syscall.WaitStatus
		_, err := syscall.Wait4(j.pid, &ws, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return
		case ws.Stopped():
			j.noteStop(ws.StopSignal())
		default:
			j.noteEnd(ws)
			ended = true
		}
	}
	for pause := leastPoll; syscall.Kill(-j.pid, 0) == nil; pause = min(2*pause, slowestPoll) {
		time.Sleep(pause)
	}
}

// signalRest signals the group, and can reach nothing outside of it. j.mu is held.
func (j *Job) signalRest(s syscall.Signal, _ bool) error {
	if !j.ended {
		return nil // signalled already
	}
	err := syscall.Kill(-j.pid, s)
	if errors.Is(err, syscall.ESRCH) {
		return errNotRunning
	}
	return err
}

// HasStopped cannot be told here.
func (j *Job) HasStopped() bool { return false }

// Left lists the processes that are left; they cannot be named here.
func (j *Job) Left() []Process { return nil }
