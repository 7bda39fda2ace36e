//go:build !unix

package job

import (
	"os"
	"os/exec"
	"time"
)

// Job is a started command. There are no process groups here: what the command starts is
// neither signalled nor waited for.
type Job struct {
	cmd    *exec.Cmd
	events chan Event
	gone   chan struct{}
}

// Start starts the command.
func Start(c Command) (*Job, error) {
	cmd := exec.Command(c.Path)
	cmd.Args, cmd.Env = c.Args, c.Env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	j := &Job{cmd: cmd, events: make(chan Event, 1), gone: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // the code is in ProcessState
		j.events <- Event{Status: Status{Code: cmd.ProcessState.ExitCode()}}
		close(j.gone)
	}()
	return j, nil
}

// Events tells what happens to the command. It is never closed.
func (j *Job) Events() <-chan Event { return j.events }

// Gone is closed when the command has ended.
func (j *Job) Gone() <-chan struct{} { return j.gone }

// Signal passes a signal on, as far as the platform can.
func (j *Job) Signal(s os.Signal) error { return j.cmd.Process.Signal(s) }

// Stop ends the command: there is no polite way here.
func (j *Job) Stop() error { return j.Kill() }

// Kill ends the command.
func (j *Job) Kill() error { return j.cmd.Process.Kill() }

// Continue does nothing here.
func (j *Job) Continue() {}

// Reclaim does nothing here.
func (j *Job) Reclaim() bool { return false }

// HasTerminal reports false: there are no foreground groups here.
func (j *Job) HasTerminal() bool { return false }

// HasStopped cannot be told here.
func (j *Job) HasStopped() bool { return false }

// Left lists the processes that are left; they cannot be named here.
func (j *Job) Left() []Process { return nil }
