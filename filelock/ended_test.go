//go:build linux

package filelock

import (
	"context"
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/fencelock/locker/driver"
)

// A call whose context has ended gives no record its name, and moves no beat: somebody may
// act on it by then.
func TestEndedContextAppliesNothing(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	sys := newDouble()
	d := on(t, dir, sys, here(t), nil)
	path := filepath.Join(dir, "locker", "k", "lock-1")
	// during calls f with a context that ends in the middle of it, and then lets f's own
	// goroutine go on.
	during := func(call string, f func(ctx context.Context) error) {
		t.Helper()
		ctx, cancel := context.WithCancel(within(t))
		sys.set(func(c, _ string) error {
			if c == call {
				cancel()
			}
			return nil
		}, nil)
		err := f(ctx)
		d.store.calls.Wait()
		sys.set(nil, nil)
		if err == nil || errors.Is(err, driver.ErrHeld) || errors.Is(err, driver.ErrLost) {
			t.Errorf("ended at %s: got %v, want an error of the context", call, err)
		}
	}
	during("sync", func(ctx context.Context) error {
		_, err := d.TryAcquire(ctx, request("k"))
		return err
	})
	if _, err := (kernel{}).lstat(path); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("the record has its name: %v", err)
	}
	g := acquire(t, d, "k")
	before, err := kernel{}.lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	during("clock", func(ctx context.Context) error {
		_, err := d.Renew(ctx, g)
		return err
	})
	if after, err := (kernel{}).lstat(path); err != nil || after.mtime != before.mtime {
		t.Errorf("the beat went from %v to %v (%v)", before.mtime, after.mtime, err)
	}
}
