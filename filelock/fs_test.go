//go:build linux

package filelock

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/locker/driver"
)

// FS1: a contender that is paused between any two of its steps never takes a key whose
// holder renews meanwhile.
func TestFS1RenewalWhileAContenderIsPaused(t *testing.T) {
	t.Parallel()
	steps(t, 10, func(t *testing.T, step int) bool {
		dir := directory(t)
		holder := opened(t, dir)
		sys := newDouble()
		b := on(t, dir, sys, here(t), nil)
		r := request("k")
		r.TTL = ttl
		g, err := holder.TryAcquire(within(t), r)
		if err != nil {
			t.Fatal(err)
		}
		var n atomic.Int32
		paused := false
		sys.set(func(string, string) error {
			if int(n.Add(1)) != step {
				return nil
			}
			paused = true
			// Renewed in time, three times, until the first deadline is long over.
			for range 3 {
				pass(t, ttl/2)
				renewed, err := holder.Renew(within(t), g)
				if err != nil {
					t.Errorf("step %d: renew: %v", step, err)
					return nil
				}
				g = renewed
			}
			return nil
		}, nil)
		_, err = b.TryAcquire(within(t), request("k"))
		sys.set(nil, nil)
		if !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("step %d: got %v, want a refusal", step, err)
		}
		return paused
	})
}

// steps runs f for every step of something, all at once, and requires that there were
// at least so many: f reports whether its step was reached.
func steps(t *testing.T, least int, f func(t *testing.T, step int) bool) {
	t.Helper()
	const most = 50
	var reached atomic.Int32
	t.Cleanup(func() {
		if n := int(reached.Load()); n < least || n == most {
			t.Errorf("%d steps, want at least %d and fewer than %d", n, least, most)
		}
	})
	for step := 1; step <= most; step++ {
		t.Run(fmt.Sprint(step), func(t *testing.T) {
			t.Parallel()
			if f(t, step) {
				reached.Add(1)
			}
		})
	}
}

// FS1, the other way round: the holder stalls inside its renewal while the key lapses
// and is taken over. Whatever step it stalls at, it does not believe afterwards.
func TestFS1HolderStalledInsideARenewal(t *testing.T) {
	t.Parallel()
	steps(t, 4, func(t *testing.T, step int) bool {
		dir := directory(t)
		sys := newDouble()
		a, b := on(t, dir, sys, here(t), nil), opened(t, dir)
		r := request("k")
		r.TTL = ttl // not shorter: a loaded machine must get to the renewal in time
		g, err := a.TryAcquire(within(t), r)
		if err != nil {
			t.Fatal(err)
		}
		var n atomic.Int32
		stalled, taken := false, false
		sys.set(func(string, string) error {
			if int(n.Add(1)) != step {
				return nil
			}
			stalled = true
			eventually(t, 5*time.Second, "the key lapses", func() bool {
				_, err := b.TryAcquire(within(t), request("k"))
				taken = err == nil
				return taken
			})
			return nil
		}, nil)
		_, err = a.Renew(within(t), g)
		sys.set(nil, nil)
		switch {
		case stalled && err == nil:
			t.Fatalf("step %d: the renewal was believed although the key was taken over", step)
		case stalled && !taken:
			t.Fatalf("step %d: not taken over", step)
		case !stalled && err != nil:
			t.Fatalf("renew: %v", err)
		case !stalled:
			return false
		}
		refusedBy(t, a, "k")
		return true
	})
}

// FS3: a contender that stops for good at any step blocks nobody.
func TestFS3StoppedContender(t *testing.T) {
	t.Parallel()
	steps(t, 20, func(t *testing.T, step int) bool {
		dir := directory(t)
		sys := newDouble()
		bystander := on(t, dir, sys, here(t), nil)
		others := opened(t, dir)
		if err := tryErr(others, "k", t); err != nil {
			t.Fatal(err)
		}
		var n atomic.Int32
		reached, resume := make(chan struct{}), make(chan struct{})
		sys.set(func(string, string) error {
			if int(n.Add(1)) == step {
				close(reached)
				<-resume
			}
			return nil
		}, nil)
		r := request("k")
		done := make(chan driver.Grant, 1)
		go func() {
			g, _ := bystander.TryAcquire(within(t), r)
			done <- g
		}()
		stopped := false
		select {
		case <-reached:
			stopped = true
		case <-done:
		}
		if stopped {
			// Either it has the key already, for a ttl, or the others get it at once.
			err := tryErr(others, "k", t)
			var held *driver.HeldError
			if errors.As(err, &held) {
				if held.Attempt != r.Attempt {
					t.Errorf("step %d: refused because of %+v, want the stopped one", step, held)
				}
				eventually(t, 3*ttl, "others go on", func() bool { return tryErr(others, "k", t) == nil })
			} else if err != nil {
				t.Errorf("step %d: %v", step, err)
			}
			close(resume)
			<-done
		}
		sys.set(nil, nil)
		return stopped
	})
}
