package run

import (
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/cmd/locker/internal/target"
)

// keeperName is what a copy of this program is called that does nothing but keep a
// descriptor open, for as long as its one argument says. Nobody calls it so by chance.
const keeperName = "locker: keeps a key until its ttl is over"

// Keep is the whole life of such a copy. It reports whether this is one.
func Keep() bool {
	if len(os.Args) != 2 || os.Args[0] != keeperName {
		return false
	}
	d, err := time.ParseDuration(os.Args[1])
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
	c.Args = []string{keeperName, lease.TTL().String()}
	c.Env = []string{} // it needs none
	c.ExtraFiles = []*os.File{f}
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return c.Start()
}
