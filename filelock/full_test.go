//go:build linux

package filelock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/locker/driver"
)

// short is a ttl for tests that wait for many lapses.
const short = 300 * time.Millisecond

// FS6, EMFILE, EACCES: every system call of every operation fails once. Each time the
// error is typed or the operation succeeded, there are never two holders, and the key
// is usable again once the cause is gone.
func TestFS6EveryCallFailsOnce(t *testing.T) {
	t.Parallel()
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EMFILE, syscall.EACCES, syscall.EIO} {
		for _, op := range []string{"acquire", "renew", "release", "break", "now"} {
			t.Run(fmt.Sprintf("%s %d", op, int(errno)), func(t *testing.T) {
				t.Parallel()
				step := 1
				for failOnce(t, op, errno, step) {
					step++
				}
				if least := map[string]int{"acquire": 15, "renew": 3, "release": 4, "break": 10, "now": 10}[op]; step <= least {
					t.Errorf("%d steps, want at least %d", step-1, least)
				}
			})
		}
	}
}

func failOnce(t *testing.T, op string, errno syscall.Errno, step int) (failed bool) {
	t.Helper()
	dir := directory(t)
	sys := newDouble()
	a, b := on(t, dir, sys, here(t), nil), opened(t, dir)
	r := request("k")
	r.TTL = short
	var g driver.Grant
	var err error
	if op != "acquire" {
		if g, err = a.TryAcquire(within(t), r); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	sys.set(func(call, _ string) error {
		if call == "close" || call == "clock" {
			return nil
		}
		if n++; n == step {
			failed = true
			return errno
		}
		return nil
	}, nil)
	switch op {
	case "acquire":
		g, err = a.TryAcquire(within(t), r)
	case "renew":
		_, err = a.Renew(within(t), g)
	case "release":
		err = a.Release(within(t), g)
	case "break":
		err = a.Break(within(t), "k", g.Token, driver.Break{})
	case "now":
		err = a.Break(within(t), "k", g.Token, driver.Break{Now: true})
	}
	sys.set(nil, nil)
	if err != nil && driver.IsAmbiguous(err) && !errors.Is(err, driver.ErrAmbiguous) {
		t.Errorf("step %d: the error has no type: %v", step, err)
	}
	if err != nil && !errors.Is(err, errno) && !errors.Is(err, driver.ErrLost) {
		t.Errorf("step %d: the error hides its cause: %v", step, err)
	}
	next, berr := b.TryAcquire(within(t), request("k"))
	believes := op == "acquire" && err == nil || op == "renew"
	if believes && berr == nil && driver.Now().Sub(g.Sent) < short-short/100 {
		t.Errorf("step %d: two holders", step)
	}
	if op == "acquire" && driver.IsAmbiguous(err) { // as the core does
		if uerr := a.Release(within(t), driver.Grant{Request: r, State: g.State}); uerr != nil && !errors.Is(uerr, driver.ErrLost) {
			t.Errorf("step %d: undo: %v", step, uerr)
		}
	}
	if op == "now" && err == nil && berr != nil {
		t.Errorf("step %d: the lock was broken now, and the key is not free: %v", step, berr)
	}
	if berr != nil {
		eventually(t, 20*short, fmt.Sprintf("the key is usable after step %d (%v)", step, err), func() bool {
			next, berr = b.TryAcquire(within(t), request("k"))
			return berr == nil
		})
	}
	if next.Token <= g.Token {
		t.Errorf("step %d: token %v after %v", step, next.Token, g.Token)
	}
	return failed
}

// FS6 on a file system that is really full (needs root, to mount one).
func TestFS6FullFileSystem(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("no mount: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	d := opened(t, dir)
	if d.Info().Tokens != driver.BestEffort {
		t.Errorf("tokens on tmpfs are %v", d.Info().Tokens)
	}
	g := acquire(t, d, "held")
	free := acquire(t, d, "free")
	if err := d.Release(within(t), free); err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(dir, "filler")
	f, err := os.Create(filler) // a test's file
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 512))
	}
	_ = f.Close()
	if !errors.Is(err, errDisk) {
		t.Fatal(err)
	}
	if _, err := d.TryAcquire(within(t), request("free")); !errors.Is(err, errDisk) || !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("acquire on a full disk: got %v", err)
	}
	if g, err = d.Renew(within(t), g); err != nil {
		t.Errorf("renew on a full disk: %v", err)
	}
	if err := d.Release(within(t), g); err != nil {
		t.Errorf("release on a full disk: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"held", "free"} {
		if g := acquire(t, d, k); g.Token != 2 {
			t.Errorf("%s: got token %v", k, g.Token)
		}
	}
}
