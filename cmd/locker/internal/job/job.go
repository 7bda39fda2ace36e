// Package job runs one command as a process group of its own and knows when all of it is
// gone: the command, its children, and on Linux whatever these have left behind.
package job

import (
	"errors"
	"os"
	"syscall"
)

// Command is what to start.
type Command struct {
	Path string   // as exec takes it, already looked up
	Args []string // with the name first
	Env  []string
	// Keep is a file that the command and its children inherit, at its own high
	// descriptor number, so that the descriptors somebody else passed on (systemd's
	// sockets begin at 3) stay where they are. Nil: none.
	Keep *os.File
	// DieWithParent kills the command when this process dies, even by SIGKILL. Linux
	// only. It does not reach the command's children, and the kernel forgets it when
	// the command is a set-user-id program.
	DieWithParent bool
}

// Status is how a command ended: with an exit code, or by a signal.
type Status struct {
	Code   int
	Signal syscall.Signal // 0: it exited
}

// signalBase is what shells add to a signal's number to make an exit code.
const signalBase = 128

// ExitCode is what a shell shows for the status.
func (s Status) ExitCode() int {
	if s.Signal != 0 {
		return signalBase + int(s.Signal)
	}
	return s.Code
}

// Event is something that happened to the job: it stopped, or the command ended.
type Event struct {
	Stopped syscall.Signal // 0: it ended
	// Terminal: it stopped because it may not use the terminal from the background.
	Terminal bool
	Status   Status
}

// Process is one process that is left.
type Process struct {
	PID  int
	Name string
}

// errNotRunning: a signal had nobody to go to.
var errNotRunning = errors.New("no process is left")
