//go:build unix

package live

import "syscall"

// detached makes a process that outlives this one and its terminal.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
