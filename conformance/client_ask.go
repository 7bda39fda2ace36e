package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/locker/driver"
)

// forCore is the client with just the optional interfaces that change how the core
// works, and that the backend declares: a decorator that has all of them would hide that.
func (cl *Client) forCore() driver.Driver {
	type rest interface {
		driver.Driver
		driver.Inspector
		driver.Breaker
		driver.Pinger
	}
	type queue interface{ driver.Queuer }
	type batch interface{ driver.BatchRenewer }
	switch q, b := cl.info.Has(driver.FeatureQueue), cl.info.Has(driver.FeatureBatch); {
	case q && b:
		return cl
	case q:
		return struct {
			rest
			queue
		}{cl, cl}
	case b:
		return struct {
			rest
			batch
		}{cl, cl}
	}
	return struct{ rest }{cl}
}

// Request is a fresh attempt with the case's ttl.
func (cl *Client) Request(key string) driver.Request {
	return driver.Request{Key: key, Attempt: driver.NewAttempt(), TTL: cl.c.T, Owner: cl.name}
}

// call is a context with the deadline that the core would give a call.
func (cl *Client) call() (context.Context, context.CancelFunc) {
	return context.WithTimeout(cl.c.Ctx, min(max(cl.c.T/4, 50*time.Millisecond), 5*time.Second))
}

// Grant makes a grant through the driver: it is renewed and released by nobody. Sent is
// filled in.
func (cl *Client) Grant(key string) driver.Grant { return cl.GrantOf(cl.Request(key)) }

// GrantOf is Grant for a request.
func (cl *Client) GrantOf(r driver.Request) driver.Grant {
	g, err := cl.TryOf(r)
	if err != nil {
		cl.c.fail(ByRule, driver.IsAmbiguous(err) || isErr(err, driver.ErrUnavailable),
			"client %s asked for %q, which is free: got %v, want a grant", cl.name, r.Key, err)
	}
	return g
}

// TryOf sends a request. Sent is filled in.
func (cl *Client) TryOf(r driver.Request) (driver.Grant, error) {
	ctx, cancel := cl.call()
	defer cancel()
	sent := cl.now()
	g, err := cl.TryAcquire(ctx, r)
	if err == nil && g.Sent.IsZero() {
		g.Sent = sent
	}
	return g, err
}

// FirstSend is when an attempt was sent for the first time. The core has read its own
// clock before that.
func (cl *Client) FirstSend(a driver.Attempt) time.Duration {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.first[a]
}

// now reads the clock that the backend's grants count on.
func (cl *Client) now() driver.Instant {
	if cl.info.PackageTime {
		return driver.PackageNow()
	}
	return driver.Now()
}

// Renewed renews through the driver. Sent is filled in.
func (cl *Client) Renewed(g driver.Grant) (driver.Grant, error) {
	ctx, cancel := cl.call()
	defer cancel()
	sent := cl.now()
	r, err := cl.Renew(ctx, g)
	if err == nil && r.Sent.IsZero() {
		r.Sent = sent
	}
	return r, err
}

// Freed releases through the driver.
func (cl *Client) Freed(g driver.Grant) error {
	ctx, cancel := cl.call()
	defer cancel()
	return cl.Release(ctx, g)
}

// InForce reports whether the grant is certainly not over yet.
func (cl *Client) InForce(g driver.Grant) bool {
	return cl.now().Sub(g.Sent) < g.Left-g.Left/100
}

// Refused makes sure that a fresh attempt is refused because of a grant. The refusal is
// asked for only if the grant is still in force behind the answer.
func (cl *Client) Refused(key string, because *Client, g driver.Grant) driver.HeldError {
	_, err := cl.TryOf(cl.Request(key))
	var held *driver.HeldError
	switch {
	case errors.As(err, &held):
		return *held
	case err != nil:
		cl.c.Latef("client %s asked for %q, which is held: got %v, want a *HeldError", cl.name, key, err)
	case because.InForce(g):
		cl.c.Failf("client %s was granted %q while token %v of %s was in force", cl.name, key, g.Token, because.name)
	}
	cl.c.Latef("client %s was granted %q when the holder's time was over: too slow to tell", cl.name, key)
	return driver.HeldError{}
}
