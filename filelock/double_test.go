//go:build linux

package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/locker/driver"
)

// double stands between the store and the kernel: it counts, records, delays and fails
// calls.
type double struct {
	kernel

	mu     sync.Mutex
	calls  map[string]int
	log    []string
	before func(call, path string) error // an error is answered instead of the call
	after  func(call, path string)
	skew   time.Duration // moves the clock
	paths  map[int]string
}

func newDouble() *double { return &double{calls: map[string]int{}, paths: map[int]string{}} }

func (d *double) step(call, path string) error {
	d.mu.Lock()
	d.calls[call]++
	d.log = append(d.log, call+" "+filepath.Base(path))
	before := d.before
	d.mu.Unlock()
	if before != nil {
		return before(call, path)
	}
	return nil
}

func (d *double) done(call, path string) {
	d.mu.Lock()
	after := d.after
	d.mu.Unlock()
	if after != nil {
		after(call, path)
	}
}

func (d *double) path(fd int) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.paths[fd]
}

func (d *double) opened(fd int, path string, err error) (int, error) {
	if err == nil {
		d.mu.Lock()
		d.paths[fd] = path
		d.mu.Unlock()
	}
	return fd, err
}

func (d *double) reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.calls)
	d.log = nil
}

func (d *double) set(before func(call, path string) error, after func(call, path string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.before, d.after = before, after
}

func (d *double) total() (all, syncs int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for call, n := range d.calls {
		if call == "sync" {
			syncs = n
		}
		all += n
	}
	return all, syncs
}

func wrap0(d *double, call, path string, f func() error) error {
	if err := d.step(call, path); err != nil {
		return err
	}
	err := f()
	d.done(call, path)
	return err
}

func (d *double) open(path string, flags int, mode uint32) (fd int, err error) {
	err = wrap0(d, "open", path, func() error { fd, err = d.kernel.open(path, flags, mode); return err })
	if err != nil {
		return -1, err
	}
	return d.opened(fd, path, err)
}

func (d *double) openat(dir int, name string, flags int, mode uint32) (fd int, err error) {
	path := d.path(dir) + "/" + name
	err = wrap0(d, "openat", path, func() error { fd, err = d.kernel.openat(dir, name, flags, mode); return err })
	if err != nil {
		return -1, err
	}
	return d.opened(fd, path, err)
}

func (d *double) mkdir(path string, mode uint32) error {
	return wrap0(d, "mkdir", path, func() error { return d.kernel.mkdir(path, mode) })
}

func (d *double) read(fd int, b []byte) (n int, err error) {
	err = wrap0(d, "read", d.path(fd), func() error { n, err = d.kernel.read(fd, b); return err })
	return n, err
}

func (d *double) write(fd int, b []byte) (n int, err error) {
	err = wrap0(d, "write", d.path(fd), func() error { n, err = d.kernel.write(fd, b); return err })
	return n, err
}

func (d *double) fstat(fd int) (st stat, err error) {
	err = wrap0(d, "fstat", d.path(fd), func() error { st, err = d.kernel.fstat(fd); return err })
	return st, err
}

func (d *double) lstat(path string) (st stat, err error) {
	err = wrap0(d, "lstat", path, func() error { st, err = d.kernel.lstat(path); return err })
	return st, err
}

func (d *double) statfs(path string) (m int64, err error) {
	err = wrap0(d, "statfs", path, func() error { m, err = d.kernel.statfs(path); return err })
	return m, err
}

func (d *double) touch(fd int, at time.Duration) error {
	return wrap0(d, "touch", d.path(fd), func() error { return d.kernel.touch(fd, at) })
}

func (d *double) chmod(fd int, mode uint32) error {
	return wrap0(d, "chmod", d.path(fd), func() error { return d.kernel.chmod(fd, mode) })
}

func (d *double) sync(fd int) error {
	return wrap0(d, "sync", d.path(fd), func() error { return d.kernel.sync(fd) })
}

func (d *double) flock(fd int, how int) error {
	return wrap0(d, "flock", d.path(fd), func() error { return d.kernel.flock(fd, how) })
}

func (d *double) link(old, name string) error {
	return wrap0(d, "link", name, func() error { return d.kernel.link(old, name) })
}

func (d *double) linkEmpty(fd int, name string) error {
	return wrap0(d, "linkEmpty", name, func() error { return d.kernel.linkEmpty(fd, name) })
}

func (d *double) unlink(path string) error {
	return wrap0(d, "unlink", path, func() error { return d.kernel.unlink(path) })
}

func (d *double) rmdir(path string) error {
	return wrap0(d, "rmdir", path, func() error { return d.kernel.rmdir(path) })
}

func (d *double) unlinkat(dir int, name string) error {
	return wrap0(d, "unlinkat", d.path(dir)+"/"+name, func() error { return d.kernel.unlinkat(dir, name) })
}

func (d *double) renameat(dir int, old, name string) error {
	return wrap0(d, "renameat", d.path(dir)+"/"+name, func() error { return d.kernel.renameat(dir, old, name) })
}

func (d *double) getdents(fd int, b []byte) (n int, err error) {
	err = wrap0(d, "getdents", d.path(fd), func() error { n, err = d.kernel.getdents(fd, b); return err })
	return n, err
}

func (d *double) close(fd int) error {
	path := d.path(fd)
	return wrap0(d, "close", path, func() error { return d.kernel.close(fd) })
}

func (d *double) clock() (t time.Duration, err error) {
	err = wrap0(d, "clock", "", func() error { t, err = d.kernel.clock(); return err })
	d.mu.Lock()
	defer d.mu.Unlock()
	return t + d.skew, err
}

// ---- helpers ----------------------------------------------------------------------

const ttl = 2 * time.Second

func here(t testing.TB) host {
	t.Helper()
	h, err := thisHost()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// directory is a fresh directory on a disk, unless the machine keeps its temporary
// files in memory.
func directory(t testing.TB) string {
	t.Helper()
	return t.TempDir()
}

// on opens a driver over a double.
func on(t testing.TB, dir string, sys system, h host, o *Options) *Driver {
	t.Helper()
	d, err := open(context.Background(), dir, o, sys, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func opened(t testing.TB, dir string) *Driver {
	t.Helper()
	d, err := NewDriver(context.Background(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func request(key string) driver.Request {
	return driver.Request{Key: key, Attempt: driver.NewAttempt(), TTL: ttl, Owner: "test"}
}

// within is the context of one call.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func acquire(t testing.TB, d *Driver, key string) driver.Grant {
	t.Helper()
	g, err := d.TryAcquire(within(t), request(key))
	if err != nil {
		t.Fatalf("acquire %q: %v", key, err)
	}
	return g
}

func refusedBy(t testing.TB, d *Driver, key string) {
	t.Helper()
	_ = refusal(t, d, key)
}

func refusal(t testing.TB, d *Driver, key string) *driver.HeldError {
	t.Helper()
	_, err := d.TryAcquire(within(t), request(key))
	held := (*driver.HeldError)(nil)
	if !errors.As(err, &held) {
		t.Fatalf("acquire %q: got %v, want a refusal", key, err)
	}
	return held
}

// eventually polls until f reports true.
func eventually(t testing.TB, patience time.Duration, what string, f func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// dies does to a grant what the end of its process does: its descriptor is closed. A child
// that another test is just starting has a copy until it executes its program.
func dies(t testing.TB, d *Driver, g driver.Grant) {
	t.Helper()
	v, _ := d.Held(g)
	l, ok := v.(*lease)
	if !ok {
		t.Fatal("the grant is not held")
	}
	fd, err := syscall.Open(l.path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	d.store.Drop(v)
	eventually(t, time.Second, "nobody has the descriptor", func() bool {
		return syscall.Flock(fd, syscall.LOCK_SH|syscall.LOCK_NB) == nil
	})
}

// pass waits until that much time has gone by on the boot clock.
func pass(t testing.TB, d time.Duration) {
	t.Helper()
	from := driver.Now()
	eventually(t, d+10*time.Second, "time passes", func() bool { return driver.Now().Sub(from) >= d })
}

func names(t testing.TB, dir string) []string {
	t.Helper()
	es, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range es {
		out = append(out, e.Name())
	}
	return out
}

func tryErr(d *Driver, key string, t testing.TB) error {
	g, err := d.TryAcquire(within(t), request(key))
	if err == nil {
		err = d.Release(within(t), g)
		if err != nil {
			return fmt.Errorf("release: %w", err)
		}
	}
	return err
}

var errDisk = syscall.ENOSPC
