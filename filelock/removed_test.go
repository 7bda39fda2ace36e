//go:build linux

package filelock

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fencelock/locker/driver"
)

// A key's directory that was removed while nobody held it begins again with 1, for
// processes that remember the old numbers too: two holders were reproduced, and both
// renewed for ever.
func TestRemovedWhileFree(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	a, b := opened(t, dir), opened(t, dir)
	for range 3 {
		if err := a.Release(within(t), acquire(t, a, "k")); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, "locker", "k")); err != nil {
		t.Fatal(err)
	}
	g := acquire(t, b, "k")
	if held := refusal(t, a, "k"); held.Attempt != g.Attempt {
		t.Errorf("refused by %+v, want the new holder", held)
	}
	for range 3 {
		if _, err := b.Renew(within(t), g); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Release(within(t), g); err != nil {
		t.Fatal(err)
	}
	if next := acquire(t, a, "k"); next.Token != g.Token+1 {
		t.Errorf("got token %v, want %v", next.Token, g.Token+1)
	}
	entries, err := os.ReadDir(filepath.Join(dir, "locker", "k"))
	if err != nil || len(entries) != 3 {
		t.Errorf("%d files left (%v), want two records and an end", len(entries), err)
	}
}

// The holder's own process may break its lock, and then once more with Now.
func TestBreakByTheHoldersOwnDriver(t *testing.T) {
	t.Parallel()
	d := opened(t, directory(t))
	g := acquire(t, d, "k")
	for _, b := range []driver.Break{{}, {}, {Now: true}} {
		if err := d.Break(within(t), "k", g.Token, b); err != nil {
			t.Errorf("%+v: %v", b, err)
		}
	}
	if _, err := d.Renew(within(t), g); !errors.Is(err, driver.ErrLost) {
		t.Errorf("renewal of a broken grant: got %v, want ErrLost", err)
	}
	if next := acquire(t, d, "k"); next.Token <= g.Token {
		t.Errorf("got token %v, want more than %v", next.Token, g.Token)
	}
}

// Who touches the record of a dead holder does not keep the key from being taken.
func TestTouchedRecordOfADeadHolder(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	a, b := opened(t, dir), opened(t, dir)
	g := acquire(t, a, "k")
	l := a.store.held.get(leaseID{g.Attempt, "k", 1})
	if l == nil {
		t.Fatal("the lease is not registered")
	}
	a.store.Drop(l) // what a kill does
	if out, err := exec.Command("touch", filepath.Join(dir, "locker", "k", "lock-1")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if next := acquire(t, b, "k"); next.Token != 2 {
		t.Errorf("got token %v, want 2", next.Token)
	}
}
