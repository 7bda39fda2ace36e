package memlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/memlock"
)

const ttl = time.Second

// world is one server and what tests ask of it. Every call of a fresh client, so that
// no rule can lean on what one client remembers.
type world struct {
	t      *testing.T
	ctx    context.Context
	server *memlock.Server
}

// inBubble runs the test in virtual time, with a server made inside.
func inBubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		test(t, &world{t: t, ctx: t.Context(), server: memlock.NewServer()})
	})
}

// request is a fresh attempt.
func request(key string) driver.Request {
	return driver.Request{Key: key, Attempt: driver.NewAttempt(), TTL: ttl, Owner: "owner", Note: "note"}
}

// after lets virtual time pass.
func after(d time.Duration) { <-time.After(d) }

func (w *world) client() *memlock.Driver { return w.server.Driver() }

func (w *world) try(r driver.Request) driver.Grant {
	w.t.Helper()
	g, err := w.client().TryAcquire(w.ctx, r)
	if err != nil {
		w.t.Fatalf("TryAcquire: got %v, want a grant", err)
	}
	return g
}

func (w *world) tryHeld(r driver.Request) *driver.HeldError {
	w.t.Helper()
	_, err := w.client().TryAcquire(w.ctx, r)
	return w.held("TryAcquire", err)
}

// wait enqueues a fresh attempt behind a holder.
func (w *world) wait(key string) driver.Request {
	w.t.Helper()
	r := request(key)
	w.enqueue(r)
	return r
}

func (w *world) enqueue(r driver.Request) *driver.HeldError {
	w.t.Helper()
	_, err := w.client().Enqueue(w.ctx, r)
	return w.held("Enqueue", err)
}

func (w *world) pollHeld(r driver.Request) *driver.HeldError {
	w.t.Helper()
	_, err := w.client().Poll(w.ctx, r)
	return w.held("Poll", err)
}

func (w *world) pollGrant(r driver.Request) driver.Grant {
	w.t.Helper()
	g, err := w.client().Poll(w.ctx, r)
	if err != nil {
		w.t.Fatalf("Poll: got %v, want a grant", err)
	}
	return g
}

func (w *world) pollGone(r driver.Request) {
	w.t.Helper()
	_, err := w.client().Poll(w.ctx, r)
	w.is("Poll", err, driver.ErrLost)
}

func (w *world) renew(g driver.Grant) driver.Grant {
	w.t.Helper()
	g, err := w.client().Renew(w.ctx, g)
	if err != nil {
		w.t.Fatalf("Renew: got %v, want a grant", err)
	}
	return g
}

func (w *world) renewLost(g driver.Grant) {
	w.t.Helper()
	_, err := w.client().Renew(w.ctx, g)
	w.is("Renew", err, driver.ErrLost)
}

// release sends the Request alone.
func (w *world) release(r driver.Request) {
	w.t.Helper()
	w.is("Release", w.client().Release(w.ctx, driver.Grant{Request: r}), nil)
}

func (w *world) releaseLost(r driver.Request) {
	w.t.Helper()
	w.is("Release", w.client().Release(w.ctx, driver.Grant{Request: r}), driver.ErrLost)
}

func (w *world) inspect(key string) driver.State {
	w.t.Helper()
	st, err := w.client().Inspect(w.ctx, key)
	if err != nil {
		w.t.Fatalf("Inspect: got %v, want a state", err)
	}
	return st
}

func (w *world) is(op string, err, want error) {
	w.t.Helper()
	if !errors.Is(err, want) {
		w.t.Fatalf("%s: got error %v, want %v", op, err, want)
	}
	if driver.IsAmbiguous(err) {
		w.t.Fatalf("%s: got the ambiguous error %v, want a definite one", op, err)
	}
}

func (w *world) held(op string, err error) *driver.HeldError {
	w.t.Helper()
	var held *driver.HeldError
	if !errors.As(err, &held) {
		w.t.Fatalf("%s: got %v, want a *HeldError", op, err)
	}
	return held
}

// equal compares one value.
func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}
