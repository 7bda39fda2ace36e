package locker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/locker/driver"
)

// Lease is a key, held for a time. Every write to what the key protects should carry
// Token, and the resource should refuse tokens lower than one it has seen: a process
// that is stopped between asking Valid and writing does not notice that it is too late.
//
// All methods are safe for concurrent use. A lease is renewed in the background until it
// is released (unless WithManualRenew); its holder watches Done, or uses Context.
type Lease struct {
	c   *core
	ks  *keyState // ks.key is the full key
	key string    // the caller's

	// core.mu guards the rest.
	grant     driver.Grant // the newest
	span      span
	holdUntil time.Duration // since granted; zero: no maximum
	granted   driver.Instant
	cause     error // why it is over; nil while held
	done      chan struct{}
	contexts  map[*leaseContext]struct{}
	events    *stream
	fn        chan struct{} // closed when the Do or Lead function has returned

	entry    entry     // in the schedule
	due      time.Time // of the next renewal, in package time; zero: none
	fails    int       // renewals that failed since the last good one
	short    bool      // the next renewal may take a third of what is left
	inFlight *flight   // the renewal under way
	released bool      // a release, or an undo, has begun
	byHolder bool      // it was the holder's own call
	sentOff  bool      // … and was sent
}

// Key returns the key as it was given to Acquire. Grant().Key is the full one, with the
// Locker's prefix.
func (l *Lease) Key() string { return l.key }

// Token returns the fencing token. It never changes.
func (l *Lease) Token() Token { return l.Grant().Token }

// TTL returns the ttl as granted: the least time for which one renewal keeps the key.
func (l *Lease) TTL() time.Duration { return l.Grant().TTL }

// Grant returns the newest grant, for a backend's own helpers (Guard, Fence, File).
func (l *Lease) Grant() driver.Grant {
	l.c.lock()
	defer l.c.unlock()
	return l.grant
}

// Remaining returns how long the lease can be believed in without another renewal. It is
// 0 once the lease is over.
func (l *Lease) Remaining() time.Duration {
	now := l.c.clock.now()
	l.c.lock()
	defer l.c.unlock()
	if l.checkNow(now) != nil {
		return 0
	}
	left := l.span.untilEnd(now)
	if l.holdUntil > 0 {
		left = min(left, l.holdUntil-now.Sub(l.granted))
	}
	return left
}

// Err returns nil while the lease is held, and afterwards why it is not: ErrLost,
// ErrReleased, ErrMaxHold or ErrClosed. It compares the clock, so a process that wakes
// from a pause learns the truth from its first call.
func (l *Lease) Err() error {
	now := l.c.clock.now()
	l.c.lock()
	defer l.c.unlock()
	return l.checkNow(now)
}

// Valid reports whether the lease is held: Err() == nil.
func (l *Lease) Valid() bool { return l.Err() == nil }

// Done returns a channel that is closed when the lease is over, even if the backend
// never answers again.
func (l *Lease) Done() <-chan struct{} {
	l.c.lock()
	defer l.c.unlock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.cause != nil {
			close(l.done)
		}
	}
	return l.done
}

// leaseContext is a context that ends with a lease.
type leaseContext struct{ cancel context.CancelCauseFunc }

// Context returns a context that ends with parent or with the lease, whichever is first;
// context.Cause then is what Err says. Call cancel when done with it; that does not touch
// the lease.
func (l *Lease) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	lc := &leaseContext{cancel}
	now := l.c.clock.now()
	l.c.lock()
	if err := l.checkNow(now); err != nil {
		l.c.unlock()
		cancel(err)
		return ctx, func() {}
	}
	if l.contexts == nil {
		l.contexts = make(map[*leaseContext]struct{})
	}
	l.contexts[lc] = struct{}{}
	l.c.unlock()
	return ctx, func() {
		l.c.lock()
		delete(l.contexts, lc)
		l.c.unlock()
		cancel(context.Canceled)
	}
}

// hold makes the lease of a grant. c.mu is held.
func (c *core) hold(q *acquisition, g driver.Grant, s span, now driver.Instant) *Lease {
	l := &Lease{c: c, ks: q.ks, key: q.key, grant: g, span: s, holdUntil: q.cfg.maxHold, granted: now}
	l.entry.lease = l
	if c.heard() {
		l.events = &stream{}
	}
	if q.cfg.function {
		l.fn = make(chan struct{})
		c.running[l] = struct{}{}
	}
	q.ks.mark.granted(g.Token, g.Attempt)
	q.ks.held = nil
	c.taken(q.ks, l, now)
	c.leave(q.ks, &q.call)
	c.leases[l] = struct{}{}
	l.plan(now)
	c.schedule(&l.entry, l.next(now), l.grant.TTL)
	l.emit(Event{Kind: EventGranted, Took: now.Sub(q.begun)})
	return l
}

func (l *Lease) emit(e Event) {
	if l.events == nil {
		return
	}
	e.Key, e.Owner, e.Token, e.Attempt = l.grant.Key, l.grant.Owner, l.grant.Token, l.grant.Attempt
	l.c.emit(l.events, e)
}

// checkNow ends the lease if its time has passed. c.mu is held.
func (l *Lease) checkNow(now driver.Instant) error {
	if l.cause == nil {
		switch {
		case l.span.untilEnd(now) <= 0:
			l.lapse(now, fmt.Errorf("%w: it was not renewed in time", ErrLost))
		case l.holdUntil > 0 && now.Sub(l.granted) >= l.holdUntil:
			l.lapse(now, ErrMaxHold)
		}
	}
	return l.cause
}

// isLoss reports whether a lease ended against its holder's will.
func isLoss(err error) bool { return errors.Is(err, ErrLost) || errors.Is(err, ErrMaxHold) }

// end ends the belief. What becomes of the grant is the caller's business. c.mu is held.
func (l *Lease) end(cause error) {
	l.cause = &Error{Op: "hold", Key: l.grant.Key, Backend: l.c.info.Name, Err: cause}
	l.due = time.Time{}
	l.c.unschedule(&l.entry)
	if l.done != nil {
		close(l.done)
	}
	for lc := range l.contexts {
		l.c.cancels = append(l.c.cancels, func() { lc.cancel(l.cause) })
	}
	l.contexts = nil
	l.emit(Event{Kind: EventEnded, Err: l.cause})
}

// lapse ends a lease by the clock. Until the deadline the key still shields whoever has
// not noticed yet, and only then the grant is undone (R3). c.mu is held.
func (l *Lease) lapse(now driver.Instant, cause error) {
	l.end(cause)
	l.c.undo(l.grant, l, now.Add(max(l.span.untilDeadline(now), 0)), cause)
}

// lost ends a lease because the backend said so: there is nothing to undo. c.mu is held.
func (l *Lease) lost(cause error) {
	l.end(cause)
	l.gone()
}

// gone forgets a lease that no longer has the key. c.mu is held.
func (l *Lease) gone() {
	l.released = true
	delete(l.c.leases, l)
	l.c.vacate(l)
}

// Release gives the key back. It stops the renewals, ends the lease (ErrReleased, Done)
// and then tells the backend, again if need be, for at most Options.ReleaseTimeout; ctx
// carries values only, so that a cancelled context still releases. A second call is
// ErrReleased, releasing a lost lease is ErrLost and touches nobody. Any other error
// means that the backend did not confirm; the key is free when the ttl has passed.
func (l *Lease) Release(ctx context.Context) error {
	c := l.c
	now := c.clock.now()
	c.lock()
	err := l.checkNow(now)
	switch {
	case l.released && l.byHolder && errors.Is(err, ErrMaxHold):
		err = ErrReleased
	case l.released && errors.Is(err, ErrMaxHold):
		err = fmt.Errorf("%w: its deadline had passed", ErrLost)
	case l.released, errors.Is(err, ErrLost):
	default: // held; or over by MaxHold or Close, and still ours
		err = nil
	}
	if err != nil {
		c.unlock()
		return c.fail("release", l.ks.key, err)
	}
	l.released, l.byHolder = true, true
	c.dropUndo(l)
	c.calls++ // Close waits for it
	defer c.exit()
	if l.cause == nil {
		l.end(ErrReleased)
	}
	told := false
	defer func() {
		if !told { // OnEvent panics: the key is given back all the same
			_ = l.release(context.WithoutCancel(ctx))
		}
	}()
	c.unlock()
	told = true
	return c.fail("release", l.ks.key, l.release(context.WithoutCancel(ctx)))
}

// release tells the backend, and nobody else does (l.released is set).
func (l *Lease) release(ctx context.Context) error {
	c := l.c
	begun := driver.PackageNow()
	if c.info.RenewChangesState {
		l.awaitRenewal()
	}
	c.lock()
	l.sentOff = true
	g := l.grant
	c.unlock()
	answered := false
	defer func() {
		if !answered { // the driver panics
			c.lock()
			defer c.unlock()
			l.gone()
			c.undo(g, nil, c.clock.now(), ErrAmbiguous)
		}
	}()
	err := c.sendRelease(ctx, g, begun.Time().Add(c.opts.ReleaseTimeout))
	answered = true
	c.lock()
	defer c.unlock()
	l.gone()
	if err != nil {
		l.emit(Event{Kind: EventReleaseFailed, Err: err, Took: time.Since(begun.Time())})
		if retryable(err) {
			u := c.undo(g, nil, c.clock.now(), err)
			u.first, u.events = begun, l.events
		}
		return err
	}
	l.emit(Event{Kind: EventReleased, Took: time.Since(begun.Time())})
	return nil
}

// awaitRenewal waits for a renewal in flight: its answer may change what the release must
// carry. At most a quarter of the time there is.
func (l *Lease) awaitRenewal() {
	l.c.lock()
	f := l.inFlight
	if f == nil {
		l.c.unlock()
		return
	}
	landed := f.wait()
	l.c.unlock()
	t := time.NewTimer(l.c.opts.ReleaseTimeout / callShare)
	defer t.Stop()
	select {
	case <-landed:
	case <-t.C:
	}
}

// sendRelease sends a release until the answer is definite, the time is up, or a ttl has
// passed since the first send. "Not mine" is success: nothing of ours is left (R5).
func (c *core) sendRelease(ctx context.Context, g driver.Grant, until time.Time) error {
	if last := time.Now().Add(g.TTL); last.Before(until) {
		until = last
	}
	for n := 0; ; n++ {
		call, cancel := context.WithTimeout(ctx, min(callTimeout(g.TTL), time.Until(until)))
		err := plain(c.drv.Release(call, g))
		cancel()
		if err == nil || errors.Is(err, ErrLost) {
			return nil
		}
		pause := doubled(firstResend, n, maxCall)
		if !retryable(err) || time.Until(until) <= pause || sleep(ctx, pause) != nil {
			return err
		}
	}
}

// retryable reports whether the request may succeed when it is sent again.
func retryable(err error) bool { return errors.Is(err, ErrUnavailable) || driver.IsAmbiguous(err) }
