package faultlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/faultlock"
	"github.com/fencelock/locker/memlock"
)

const (
	ttl     = 10 * time.Second
	timeout = 2 * time.Second // of every call, unless a test says otherwise
)

// world is a memory server with a faulty client and a sound one.
type world struct {
	t      *testing.T
	start  time.Time
	server *memlock.Server
	faulty *faultlock.Driver
	sound  *memlock.Driver
}

// inBubble runs the test in virtual time. At the end every rule must have fired.
func inBubble(t *testing.T, schedule string, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memlock.NewServer()
		w := &world{t: t, start: time.Now(), server: s, sound: s.Driver(), faulty: faultlock.New(s.Driver(), 1, parse(t, schedule))}
		test(t, w)
		for _, c := range w.faulty.Fired() {
			if c.Times == 0 {
				t.Errorf("rule %v: got never fired, want fired", c.Rule)
			}
		}
		equal(t, "Close", w.faulty.Close(), nil)
	})
}

func parse(t *testing.T, schedule string) faultlock.Schedule {
	t.Helper()
	s, err := faultlock.Parse(schedule)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ctx is a call's context. It ends after the timeout.
func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(w.t.Context(), timeout)
	w.t.Cleanup(cancel)
	return ctx
}

func request(key string) driver.Request {
	return driver.Request{Key: key, Attempt: driver.NewAttempt(), TTL: ttl, Owner: "owner"}
}

func after(d time.Duration) { <-time.After(d) }

// passed checks how much virtual time the test has taken.
func (w *world) passed(want time.Duration) {
	w.t.Helper()
	equal(w.t, "time passed", time.Since(w.start), want)
}

// hold takes a key with the sound client.
func (w *world) hold(key string) driver.Grant {
	w.t.Helper()
	g, err := w.sound.TryAcquire(w.ctx(), request(key))
	if err != nil {
		w.t.Fatalf("hold %q: got %v, want a grant", key, err)
	}
	return g
}

// state is what the server really has.
func (w *world) state(key string) driver.State {
	w.t.Helper()
	st, err := w.sound.Inspect(w.ctx(), key)
	if err != nil {
		w.t.Fatalf("inspect %q: got %v, want a state", key, err)
	}
	return st
}

// lost checks for ErrAmbiguous by injection.
func (w *world) lost(what string, err error) {
	w.t.Helper()
	if !errors.Is(err, driver.ErrAmbiguous) || !driver.IsAmbiguous(err) {
		w.t.Fatalf("%s: got %v, want %v", what, err, driver.ErrAmbiguous)
	}
	w.injected(what, err)
}

// unsent checks for ErrUnavailable by injection.
func (w *world) unsent(what string, err error) {
	w.t.Helper()
	if !errors.Is(err, driver.ErrUnavailable) || driver.IsAmbiguous(err) {
		w.t.Fatalf("%s: got %v, want %v", what, err, driver.ErrUnavailable)
	}
	w.injected(what, err)
}

func (w *world) injected(what string, err error) {
	w.t.Helper()
	var injected *faultlock.InjectedError
	if !errors.As(err, &injected) {
		w.t.Fatalf("%s: got %v, want an *InjectedError", what, err)
	}
}

func (w *world) ok(what string, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("%s: got %v, want no error", what, err)
	}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}
