package run

import (
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/cmd/locker/internal/target"
)

// keepVariable tells a copy of this program to do nothing but keep a descriptor open.
const keepVariable = "LOCKER_KEEP_FOR"

// Keep is the whole life of such a copy. It reports whether this is one.
func Keep() bool {
	d, err := time.ParseDuration(os.Getenv(keepVariable))
	if err != nil {
		return false
	}
	time.Sleep(d)
	return true
}

// leaveKeeper leaves a process behind that keeps the lease's descriptor for one ttl. When
// this process ends without knowing that the command is gone, the key must lapse: without
// anybody who has the descriptor it would be free at once, and a command that has closed
// its own (sudo does) may still be at work.
func leaveKeeper(lease *locker.Lease) error {
	f, err := target.Descriptor(lease)
	if err != nil || f == nil {
		return err
	}
	defer func() { _ = f.Close() }()
	c := exec.Command("/proc/self/exe")
	c.Env = []string{keepVariable + "=" + lease.TTL().String()}
	c.ExtraFiles = []*os.File{f}
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return c.Start()
}
