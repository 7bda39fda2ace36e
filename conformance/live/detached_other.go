//go:build !unix

package live

import "syscall"

// detached makes nothing special: a process of its own is all there is.
func detached() *syscall.SysProcAttr { return nil }
