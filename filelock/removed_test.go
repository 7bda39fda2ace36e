//go:build linux

package filelock

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
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

// The same in the middle of an acquire: behind the look at the number before, and before the
// record has its name. Without a second look there were two holders.
func TestRemovedBeforeTheLink(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	sys := newDouble()
	a, b := on(t, dir, sys, here(t), nil), opened(t, dir)
	if err := a.Release(within(t), acquire(t, a, "k")); err != nil {
		t.Fatal(err)
	}
	var g driver.Grant
	sys.set(func(call, path string) error {
		if call == "link" && strings.HasSuffix(path, "lock-2") && g.Token == 0 {
			if err := os.RemoveAll(filepath.Join(dir, "locker", "k")); err != nil {
				t.Error(err)
			}
			g = acquire(t, b, "k")
		}
		return nil
	}, nil)
	_, err := a.TryAcquire(within(t), request("k"))
	sys.set(nil, nil)
	var held *driver.HeldError
	if !errors.As(err, &held) || held.Attempt != g.Attempt || g.Token != 1 {
		t.Errorf("got %v beside a holder with token %v, want it refused", err, g.Token)
	}
}

// S3-2, on a directory: a contender is paused between any two of its steps, and once more
// behind that, and others use and collect its numbers meanwhile, also the one that it has
// just linked. It answers with a grant above all of theirs: that its record was gone
// already when it wanted to take it back was an error once.
func TestPausedContenderMissesNumbers(t *testing.T) {
	t.Parallel()
	links := stepOf(t, "link")
	steps(t, 25, func(t *testing.T, first int) bool {
		if first != links && os.Getenv("LOCKER_TEST_SIZE") == "" { // else with every second one
			return missNumbers(t, first) > 0
		}
		paused := false
		for second := first + 1; ; second++ {
			reached := missNumbers(t, first, second)
			paused = paused || reached > 0
			if reached < 2 {
				return paused
			}
		}
	})
}

// stepOf is the number of a system call among those of an acquire of a key used before.
func stepOf(t *testing.T, call string) int {
	t.Helper()
	dir, o := directory(t), &Options{NoSync: true} // as missNumbers has it
	if err := tryErr(on(t, dir, newDouble(), here(t), o), "k", t); err != nil {
		t.Fatal(err)
	}
	sys := newDouble()
	a := on(t, dir, sys, here(t), o)
	n, at := 0, 0
	sys.set(func(c, _ string) error {
		if n++; c == call && at == 0 {
			at = n
		}
		return nil
	}, nil)
	acquire(t, a, "k")
	if at == 0 {
		t.Fatalf("an acquire makes no call %s", call)
	}
	return at
}

func missNumbers(t *testing.T, pauses ...int) (reached int) {
	t.Helper()
	dir := directory(t)
	const keep = 2
	other := on(t, dir, newDouble(), here(t), &Options{Keep: keep, NoSync: true})
	if err := other.Release(within(t), acquire(t, other, "k")); err != nil {
		t.Fatal(err)
	}
	sys := newDouble()
	a := on(t, dir, sys, here(t), &Options{NoSync: true})
	var last driver.Token
	n := 0
	sys.set(func(call, _ string) error {
		if n++; !slices.Contains(pauses, n) {
			return nil
		}
		reached++
		for range 2*keep + 1 { // the last but keep is collected, the rest every so often
			g, err := other.TryAcquire(within(t), request("k"))
			if errors.Is(err, driver.ErrHeld) {
				break // a's record stands already
			}
			if err != nil {
				t.Errorf("%v, before %s: %v", pauses, call, err)
				break
			}
			last = g.Token
			if err := other.Release(within(t), g); err != nil {
				t.Errorf("%v, before %s: release: %v", pauses, call, err)
			}
		}
		return nil
	}, nil)
	g, err := a.TryAcquire(within(t), request("k"))
	sys.set(nil, nil)
	if err != nil || g.Token <= last {
		t.Errorf("%v: got token %v (%v), want more than %v", pauses, g.Token, err, last)
	}
	return reached
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
	dies(t, a, g)
	if out, err := exec.Command("touch", filepath.Join(dir, "locker", "k", "lock-1")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if next := acquire(t, b, "k"); next.Token != 2 {
		t.Errorf("got token %v, want 2", next.Token)
	}
}
