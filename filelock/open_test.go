//go:build linux

package filelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/locker/driver"
)

// What cannot work is refused when it is opened, by name.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	if _, err := NewDriver(within(t), "/proc", nil); !errors.Is(err, driver.ErrUnsupported) && !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("/proc: got %v", err)
	}
	dir := directory(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := NewDriver(within(t), file, nil); !errors.Is(err, syscall.ENOTDIR) || !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("a file: got %v", err)
	}
	if _, err := NewDriver(within(t), filepath.Join(file, "below"), nil); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("below a file: got %v", err)
	}
	if _, err := NewDriver(within(t), "", nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no name: got %v", err)
	}
	if _, err := NewDriver(within(t), filepath.Join(dir, "made", "if", "missing"), nil); err != nil {
		t.Errorf("a missing directory is made: got %v", err)
	}
	sys := newDouble()
	sys.set(func(call, _ string) error {
		if call == "flock" {
			return syscall.ENOLCK
		}
		return nil
	}, nil)
	if _, err := open(within(t), directory(t), nil, sys, here(t)); !errors.Is(err, driver.ErrUnsupported) || !errors.Is(err, syscall.ENOLCK) {
		t.Errorf("no flock: got %v", err)
	}
	if _, err := open(within(t), directory(t), nil, lockless{kernel{}}, here(t)); !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), "does not exclude") {
		t.Errorf("a flock that does nothing: got %v", err)
	}
	for magic, want := range map[int64]string{0x6969: "nfs", 0x65735546: "fuse", 0x4d44: "vfat", 0x12345: "0x12345"} {
		if _, err := accept(magic); !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%#x: got %v", magic, err)
		}
	}
	if fs, err := accept(0x01021994); err != nil || fs.keeps {
		t.Errorf("tmpfs: got %+v, %v", fs, err)
	}
}

// lockless is a file system whose flock does nothing.
type lockless struct{ system }

func (lockless) flock(int, int) error { return nil }

func TestHostFacts(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		strings.Repeat("0a", 16) + "\n": strings.Repeat("0a", 16), "": "", "uninitialized\n": "",
		strings.Repeat("0", 32): "", strings.Repeat("A", 32): "",
	} {
		if got := machineID(in); got != want {
			t.Errorf("machineID(%q) = %q, want %q", in, got, want)
		}
	}
	if d, err := parseOffset("monotonic           0         0\nboottime       -3600       500\n"); err != nil || d != -time.Hour+500 {
		t.Errorf("got %v, %v", d, err)
	}
	if _, err := parseOffset("monotonic 0 0\n"); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
	for _, c := range []struct{ set, got, want time.Duration }{
		{1234567891, 1234567891, 1}, {1234567891, 1234567800, 100}, {1234567891, 1e9, time.Second},
	} {
		if g, err := granularity(c.set, c.got); err != nil || g != c.want {
			t.Errorf("granularity(%d, %d) = %v, %v", c.set, c.got, g, err)
		}
	}
	if _, err := granularity(1234567891, 5); err == nil {
		t.Error("a file system that makes times up was accepted")
	}
}

// Two users of one directory (needs root, to become both).
func TestFS7TwoUsers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be two users")
	}
	t.Parallel()
	dir, err := os.MkdirTemp("/tmp", "filelock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	shared, private := filepath.Join(dir, "shared"), filepath.Join(dir, "private")
	for d, mode := range map[string]os.FileMode{dir: 0o755, shared: 0o777, private: 0o755} {
		if err := errors.Join(os.MkdirAll(d, mode), os.Chmod(d, mode)); err != nil {
			t.Fatal(err)
		}
	}
	root := opened(t, shared)
	g := acquire(t, root, "k")
	u := start(t, 65534, "loop", shared, "k")
	if got := u.ask("try"); !strings.HasPrefix(got, "held") {
		t.Errorf("another user's try: %s", got)
	}
	if err := root.Release(within(t), g); err != nil {
		t.Fatal(err)
	}
	if got := u.ask("try"); got != "granted 2" {
		t.Errorf("another user's try on the free key: %s", got)
	}
	refusedBy(t, root, "k")
	if got := u.ask("release"); got != "ok" {
		t.Errorf("release: %s", got)
	}
	acquire(t, root, "k")

	// Killed at any step of making a key's directory, the first user leaves one for all.
	for step := 1; ; step++ {
		key := fmt.Sprint("new", step)
		c := start(t, 0, "steps", shared, key, "LOCKER_STEP="+strconv.Itoa(step))
		got := c.ask("try")
		c.kill()
		other := start(t, 65534, "loop", shared, key)
		eventually(t, time.Second, fmt.Sprintf("another user has the key behind a kill at step %d", step), func() bool {
			return strings.HasPrefix(other.ask("try"), "granted ")
		})
		if got != "gone" {
			break
		}
	}

	opened(t, private)
	v := start(t, 65534, "open", private, "k")
	if got := v.line(); !strings.Contains(got, "permission denied") {
		t.Errorf("a directory of somebody else: %s", got)
	}
}
