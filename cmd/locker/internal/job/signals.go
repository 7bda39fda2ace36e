package job

import (
	"os"
	"slices"
	"syscall"
)

// Ends reports whether a signal ends a process that does not handle it.
func Ends(s os.Signal) bool { return slices.Contains(ending, s) }

// Interrupted is the exit code of a process that a signal has ended.
func Interrupted(s os.Signal) int {
	if n, ok := s.(syscall.Signal); ok {
		return signalBase + int(n)
	}
	return signalBase
}
