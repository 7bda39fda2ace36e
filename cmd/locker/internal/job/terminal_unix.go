//go:build unix

package job

import (
	"os"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal, with who had its foreground before.
type terminal struct {
	f   *os.File
	own int // this process's group
}

// openTerminal returns nil if there is none.
func openTerminal() *terminal {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	return &terminal{f: f, own: unix.Getpgrp()}
}

func (t *terminal) foreground() int {
	pgrp, err := unix.IoctlGetInt(int(t.f.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return -1
	}
	return pgrp
}

func (t *terminal) give(pgrp int) bool {
	return unix.IoctlSetPointerInt(int(t.f.Fd()), unix.TIOCSPGRP, pgrp) == nil
}

// offer makes the job the terminal's foreground group, if the foreground is this
// process's to give. It reports whether the job has it now.
func (j *Job) offer() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended {
		return false
	}
	if j.tty == nil {
		j.tty = openTerminal()
	}
	if j.tty == nil {
		return false
	}
	switch j.tty.foreground() {
	case j.pid:
		return true
	case j.tty.own:
		return j.tty.give(j.pid)
	default: // some other job's
		return false
	}
}

// HasTerminal reports whether the job is the terminal's foreground group, where Ctrl-Z
// reaches it.
func (j *Job) HasTerminal() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.tty != nil && j.tty.foreground() == j.pid
}

// Reclaim takes the terminal's foreground back. It reports whether the job had it.
func (j *Job) Reclaim() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.tty == nil {
		return false
	}
	had := j.tty.foreground() == j.pid && j.tty.give(j.tty.own)
	j.tty.f.Close()
	j.tty = nil
	return had
}

func isTerminal(fd int) bool {
	_, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil
}
