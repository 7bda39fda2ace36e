//go:build unix

package conformance

import (
	"os"
	"syscall"
)

// What freezes a process, and thaws it.
var (
	stopSignal     os.Signal = syscall.SIGSTOP
	continueSignal os.Signal = syscall.SIGCONT
)
