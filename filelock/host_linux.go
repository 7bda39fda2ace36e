package filelock

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fencelock/locker/driver"
)

// host is what two records need to know about the machines they were written on.
type host struct {
	// boot is this boot's id: beats are comparable only within one.
	boot string
	// machine is 32 hexadecimal digits, or empty: then another boot of this machine
	// and another machine are the same thing.
	machine string
	// offset is what the process's time namespace adds to the boot clock.
	offset time.Duration
}

// thisHost reads where the process runs.
func thisHost() (host, error) {
	var h host
	id, err := readSmall("/proc/sys/kernel/random/boot_id")
	if h.boot = strings.TrimSpace(string(id)); err == nil && h.boot == "" {
		err = errors.New("it is empty")
	}
	if err != nil {
		return host{}, driver.Wrap(driver.ErrUnsupported, fmt.Errorf("the boot id cannot be read: %w", err))
	}
	if id, err := readSmall("/etc/machine-id"); err == nil {
		h.machine = machineID(string(id))
	}
	h.offset, err = bootOffset()
	return h, err
}

// readSmall is os.ReadFile without the calls that a file of a few lines does not need.
func readSmall(path string) ([]byte, error) {
	fd, err := kernel{}.open(path, syscall.O_RDONLY, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = kernel{}.close(fd) }()
	return slurp(kernel{}, fd)
}

// machineID returns a usable machine id, or none.
func machineID(s string) string {
	s = strings.TrimSpace(s)
	if len(s) != 32 || strings.Trim(s, "0123456789abcdef") != "" || strings.Trim(s, "0") == "" {
		return ""
	}
	return s
}

// bootOffset returns what the time namespace adds to CLOCK_BOOTTIME. The file tells the
// children's namespace, so it counts only where that is the process's own.
func bootOffset() (time.Duration, error) {
	own, err := os.Readlink("/proc/self/ns/time")
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil // a kernel without time namespaces
	}
	children, err2 := os.Readlink("/proc/self/ns/time_for_children")
	if err := errors.Join(err, err2); err != nil {
		return 0, driver.Wrap(driver.ErrUnsupported, fmt.Errorf("the time namespace cannot be read: %w", err))
	}
	if own != children {
		return 0, driver.Wrap(driver.ErrUnsupported, errors.New("the process has made a time namespace for its children: the boot clock's offset is unknown"))
	}
	b, err := readSmall("/proc/self/timens_offsets")
	if err != nil {
		return 0, driver.Wrap(driver.ErrUnsupported, fmt.Errorf("the time namespace cannot be read: %w", err))
	}
	return parseOffset(string(b))
}

func parseOffset(s string) (time.Duration, error) {
	for line := range strings.Lines(s) {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != "boottime" && f[0] != "7" {
			continue
		}
		sec, err := strconv.ParseInt(f[1], 10, 64)
		nsec, err2 := strconv.ParseInt(f[2], 10, 64)
		if err := errors.Join(err, err2); err != nil {
			return 0, driver.Wrap(driver.ErrUnsupported, fmt.Errorf("timens_offsets: %w", err))
		}
		return time.Duration(sec)*time.Second + time.Duration(nsec), nil
	}
	return 0, driver.Wrap(driver.ErrUnsupported, errors.New("timens_offsets does not tell the boot clock's offset"))
}

// fileSystem is a kind of file system that is known to be local.
type fileSystem struct {
	name string
	// keeps says that it survives a crash.
	keeps bool
}

// fileSystems lists what is accepted, by statfs(2) magic.
var fileSystems = map[int64]fileSystem{
	0xef53:     {"ext", true},
	0x58465342: {"xfs", true},
	0x9123683e: {"btrfs", true},
	0x2fc12fc1: {"zfs", true},
	0xf2f52010: {"f2fs", true},
	0xca451a4e: {"bcachefs", true},
	0x01021994: {"tmpfs", false},
	0x794c7630: {"overlay", false}, // its upper layer may be anything, and is often thrown away
}

// otherFileSystems are names for refusals.
var otherFileSystems = map[int64]string{
	0x6969: "nfs", 0xff534d42: "cifs", 0xfe534d42: "smb2", 0x517b: "smb", 0x65735546: "fuse", 0x01021997: "9p",
	0x00c36400: "ceph", 0x0bd00bd0: "lustre", 0x47504653: "gpfs", 0x01161970: "gfs2", 0x7461636f: "ocfs2",
	0x4d44: "vfat", 0x2011bab0: "exfat", 0x5346544e: "ntfs", 0x7366746e: "ntfs3", 0x9fa0: "proc", 0x62656572: "sysfs",
	0x858458f6: "ramfs", 0x9660: "isofs", 0x73717368: "squashfs", 0xe0f5e1e2: "erofs", 0x6a656a63: "vboxsf",
}

// accept decides whether locks on a file system of this kind mean anything.
func accept(magic int64) (fileSystem, error) {
	if fs, ok := fileSystems[magic&0xffffffff]; ok {
		return fs, nil
	}
	what := otherFileSystems[magic&0xffffffff]
	if what == "" {
		what = fmt.Sprintf("of type %#x", magic&0xffffffff)
	}
	return fileSystem{}, driver.Wrap(driver.ErrUnsupported, fmt.Errorf(
		"the file system is %s: it is not known to be local to one host (accepted: ext4, xfs, btrfs, zfs, f2fs, bcachefs, tmpfs, overlay)", what))
}

// granularity returns how coarsely the file system keeps a time, from what was set and
// what came back.
func granularity(set, got time.Duration) (time.Duration, error) {
	for _, g := range []time.Duration{1, 100, time.Microsecond, time.Millisecond, 10 * time.Millisecond, time.Second, 2 * time.Second} {
		if set-set%g == got {
			return g, nil
		}
	}
	return 0, driver.Wrap(driver.ErrUnsupported, fmt.Errorf("the file system turned the modification time %v into %v", set, got))
}
