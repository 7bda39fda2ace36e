//go:build linux

package filelock

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fencelock/locker/driver"
)

// nameless has no files without a name.
type nameless struct{ system }

func (n nameless) open(path string, flags int, mode uint32) (int, error) {
	if flags&oTmpfile == oTmpfile {
		return -1, syscall.EOPNOTSUPP
	}
	return n.system.open(path, flags, mode)
}

// procless has no /proc to link through.
type procless struct{ system }

func (p procless) link(old, name string) error {
	if strings.HasPrefix(old, "/proc/") {
		return syscall.ENOENT
	}
	return p.system.link(old, name)
}

func (p procless) lstat(path string) (stat, error) {
	if strings.HasPrefix(path, "/proc/self/fd/") && strings.Count(path, "/") == 4 {
		return stat{}, syscall.ENOENT
	}
	return p.system.lstat(path)
}

// powerless may not link a file by its descriptor either.
type powerless struct{ procless }

func (powerless) linkEmpty(int, string) error { return syscall.ENOENT }

// However a record gets its name, it is locked before: who looks at it finds a live
// holder, and a dead one at once.
func TestWaysToLink(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sys   system
		named bool // by a temporary name
	}{
		"through /proc":      {kernel{}, false},
		"by the descriptor":  {procless{kernel{}}, os.Getuid() != 0}, // which takes a capability
		"no files unnamed":   {nameless{kernel{}}, true},
		"neither is allowed": {powerless{procless{kernel{}}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := directory(t)
			b := opened(t, dir)
			a := on(t, dir, c.sys, here(t), nil)
			g := acquire(t, a, "k")
			if got := a.store.named.Load(); got != c.named {
				t.Errorf("by a temporary name: got %v, want %v", got, c.named)
			}
			if held := refusal(t, b, "k"); held.Attempt != g.Attempt {
				t.Errorf("refused by %+v, want the holder", held)
			}
			g, err := a.Renew(within(t), g)
			if err != nil {
				t.Fatal(err)
			}
			if err := a.Release(within(t), g); err != nil {
				t.Fatal(err)
			}
			if err := tryErr(b, "k", t); err != nil {
				t.Fatal(err)
			}
			g = acquire(t, a, "k")
			dies(t, a, g)
			if next := acquire(t, b, "k"); next.Token != g.Token+1 {
				t.Errorf("got token %v behind the dead holder's %v", next.Token, g.Token)
			}
			if _, err := a.TryAcquire(within(t), request("k")); !errors.Is(err, driver.ErrHeld) {
				t.Errorf("got %v, want %v", err, driver.ErrHeld)
			}
			for _, file := range names(t, filepath.Join(dir, "locker", "k")) {
				if strings.HasPrefix(file, tempPrefix) {
					t.Errorf("%s is left", file)
				}
			}
		})
	}
}
