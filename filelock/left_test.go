//go:build linux

package filelock

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/fencelock/locker/driver"
)

// A sweep removes the temporary files of dead writers, and leaves those of live ones.
func TestSweepOfTemporaryFiles(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	d := on(t, dir, newDouble(), here(t), &Options{Keep: 1, NoSync: true})
	if err := tryErr(d, "k", t); err != nil {
		t.Fatal(err)
	}
	in := filepath.Join(dir, "locker", "k")
	for _, name := range []string{"dead", "alive"} {
		if err := os.WriteFile(filepath.Join(in, tempPrefix+name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(filepath.Join(in, tempPrefix+"alive"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if err := tryErr(d, "k", t); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, ttl, "the dead writer's file is swept", func() bool { return !slices.Contains(names(t, in), tempPrefix+"dead") })
	if !slices.Contains(names(t, in), tempPrefix+"alive") {
		t.Error("a live writer's file was swept")
	}
}

// Writers whose files need a name first are not harmed by sweeps: with eight of them an
// acquire in twenty failed once.
func TestSweepsHarmNoWriter(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	o := &Options{Keep: 1, NoSync: true}
	sweeper, writer := on(t, dir, nameless{kernel{}}, here(t), o), newDouble()
	a := on(t, dir, writer, here(t), o)
	a.store.named.Store(true)
	if err := tryErr(sweeper, "k", t); err != nil {
		t.Fatal(err)
	}
	swept := 0
	writer.set(func(call, path string) error {
		if call == "fstat" && swept < 3 { // its file has a name, and is not locked yet
			swept++
			if err := sweeper.store.Sweep(within(t), "k", 0); err != nil {
				t.Error(err)
			}
		}
		return nil
	}, nil)
	g, err := a.TryAcquire(within(t), request("k"))
	writer.set(nil, nil)
	if err != nil || swept == 0 {
		t.Errorf("got %v and token %v behind %d sweeps, want the key", err, g.Token, swept)
	}
}

// The grant does not depend on the file that File returned.
func TestFileIsADuplicate(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	a, b := opened(t, dir), opened(t, dir)
	g := acquire(t, a, "k")
	f, err := File(g)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	refusedBy(t, b, "k")
	if _, err := a.Renew(within(t), g); err != nil {
		t.Errorf("renew: %v", err)
	}
}

// chunked shows a directory in several answers, as a large one is.
type chunked struct {
	*double
	most int
}

func (c chunked) getdents(fd int, b []byte) (int, error) {
	return c.double.getdents(fd, b[:min(len(b), c.most)])
}

// What several answers of the kernel show is no state of the directory.
func TestListingIsOneAnswer(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	d := on(t, dir, chunked{newDouble(), 128}, here(t), nil)
	for i := range 3 {
		err := tryErr(d, "k", t)
		if i < 1 && err != nil {
			t.Fatal(err)
		}
		if err != nil {
			if !errors.Is(err, syscall.EFBIG) || !errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("got %v, want %v", err, syscall.EFBIG)
			}
			return
		}
	}
	t.Error("a listing in several answers was believed")
}
