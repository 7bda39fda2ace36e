package boot

import (
	"syscall"
	"time"
	"unsafe"
)

// Name says which clock Now reads.
const Name = "CLOCK_BOOTTIME"

// clockBoottime is CLOCK_BOOTTIME of clock_gettime(2): it goes on while the machine
// is suspended, which CLOCK_MONOTONIC, Go's monotonic clock, does not.
const clockBoottime = 7

// Now returns the time since boot. It reports false where the kernel refuses, which
// no kernel since 2.6.39 does.
func Now() (time.Duration, bool) {
	var ts syscall.Timespec
	// A raw call: clock_gettime never blocks, and telling the scheduler costs more
	// than the call.
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 0, false
	}
	return time.Duration(ts.Nano()), true
}
