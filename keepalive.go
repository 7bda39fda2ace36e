package locker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fencelock/locker/driver"
)

// The schedule of renewals (R4).
const (
	// A renewal is due every renewSlots slots of ttl/slots: rounded to slots, the leases
	// of one ttl come due together and share a request, and a third of the ttl holds no
	// more than eight such requests however many leases there are.
	slots, renewSlots = 24, 8
	// After a failure: min(ttl/retryShare, left/retryLeftShare), at least minRetry.
	retryShare, retryLeftShare = 12, 6
	minRetry                   = 50 * time.Millisecond
	maxTries                   = 8
	// A grant with no more than half its ttl left (a claim window is exactly that) is renewed after min(left/8, 500 ms), so
	// that a short hold never pays for it, and that renewal may take a third of what is
	// left.
	shortShare, shortDelayShare, maxShortDelay, shortCallShare = 2, 8, 500 * time.Millisecond, 3

	defaultMaxBatch = 1000
	// renewers bounds the renewal requests in flight: with a driver that cannot batch, so
	// many stuck keys would delay their neighbours.
	renewers = 256
)

// flight is a renewal under way of one lease.
type flight struct {
	done chan struct{} // made when somebody wants to wait; closed when it is over
	err  error         // set before done closes
}

// batch is leases that are renewed together.
type batch struct {
	leases  []*Lease
	byHand  bool      // a call of Renew, not the schedule
	jitter  float64   // one draw, so that what failed together is tried again together
	retryAt time.Time // guarded by core.mu
}

// batchKind: leases of one ttl go together, but those in a hurry go apart, since the most
// urgent one bounds the request's time.
type batchKind struct {
	ttl   time.Duration
	hurry bool
}

// joinBatch puts a lease whose renewal is due into a batch. c.mu is held.
func (l *Lease) joinBatch(due map[batchKind]*batch, now driver.Instant) {
	kind := batchKind{ttl: l.grant.TTL, hurry: l.short || l.span.untilEnd(now) < callTimeout(l.grant.TTL)}
	b := due[kind]
	if b == nil || len(b.leases) >= l.c.maxBatch() {
		if b != nil {
			l.c.startBatch(b)
		}
		b = newBatch()
		due[kind] = b
	}
	l.inFlight = &flight{}
	b.leases = append(b.leases, l)
}

func newBatch(ls ...*Lease) *batch { return &batch{leases: ls, jitter: 0.75 + rand.Float64()/4} }

func (c *core) maxBatch() int {
	if c.info.MaxBatch > 0 {
		return c.info.MaxBatch
	}
	return defaultMaxBatch
}

// startBatch sends a batch in the background: as one request if the driver can, otherwise
// one for each lease.
func (c *core) startBatch(b *batch) {
	if c.batcher != nil && !c.noBatch.Load() {
		c.renewers.do(func() { c.sendBatch(b) })
		return
	}
	for _, l := range b.leases {
		c.renewers.do(func() { c.sendOne(b, l) })
	}
}

// sendBatch renews all leases of a batch in one request.
func (c *core) sendBatch(b *batch) {
	sent := c.clock.now()
	live, grants, timeout := c.ready(b.leases, sent)
	if len(live) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(c.background, timeout)
	defer cancel()
	answered := make([]bool, len(live))
	err := c.batcher.RenewBatch(ctx, grants, func(i int, g driver.Grant, err error) {
		if !answered[i] {
			answered[i] = true
			c.renewed(b, live[i], g, err, sent)
		}
	})
	if errors.Is(err, ErrUnsupported) {
		c.noBatch.Store(true)
		for _, l := range live {
			c.renewers.do(func() { c.sendOne(b, l) })
		}
		return
	}
	for i, l := range live {
		if !answered[i] {
			c.renewed(b, l, driver.Grant{}, ErrAmbiguous, sent)
		}
	}
}

// sendOne renews one lease.
func (c *core) sendOne(b *batch, l *Lease) {
	sent := c.clock.now()
	live, grants, timeout := c.ready([]*Lease{l}, sent)
	if len(live) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(c.background, timeout)
	defer cancel()
	g, err := c.drv.Renew(ctx, grants[0])
	c.renewed(b, l, g, err, sent)
}

// ready picks the leases that may still be renewed now, and says how long the request may
// take: never beyond the end of any of them (R3).
func (c *core) ready(ls []*Lease, now driver.Instant) (live []*Lease, grants []driver.Grant, timeout time.Duration) {
	c.lock()
	defer c.unlock()
	live, grants = make([]*Lease, 0, len(ls)), make([]driver.Grant, 0, len(ls))
	for _, l := range ls {
		if err := l.checkNow(now); err != nil {
			l.landed(err)
			continue
		}
		most := min(callTimeout(l.grant.TTL), l.span.untilEnd(now))
		if l.short {
			most = min(most, (l.span.left-now.Sub(l.span.sent))/shortCallShare)
		}
		if len(live) == 0 || most < timeout {
			timeout = most
		}
		live = append(live, l)
		grants = append(grants, l.grant)
	}
	return live, grants, timeout
}

// landed ends the flight of a lease's renewal. c.mu is held.
func (l *Lease) landed(err error) {
	f := l.inFlight
	l.inFlight = nil
	if f != nil {
		f.err = err
		if f.done != nil {
			close(f.done)
		}
	}
}

// renewed judges the answer to a renewal.
func (c *core) renewed(b *batch, l *Lease, g driver.Grant, err error, sent driver.Instant) {
	now := c.clock.now()
	c.lock()
	defer c.unlock()
	err = plain(err)
	if err == nil && (g.Token != l.grant.Token || g.Attempt != l.grant.Attempt) {
		err = fmt.Errorf("%w: the renewal answered with another grant", ErrLost)
	}
	switch over := l.checkNow(now); {
	case over != nil:
		// Too late, or released meanwhile. A release that waits for this answer needs
		// what it says of the backend's state, and nothing else.
		if err == nil && !l.sentOff {
			l.grant.State = g.State
			if u := c.undos[g.Attempt]; u != nil {
				u.grant.State = g.State
			}
		}
		l.landed(over)
	case err == nil:
		if g.Sent.IsZero() {
			g.Sent = sent
		}
		// The request stays what it was; a backend may grant another ttl.
		ttl := g.TTL
		if g.Request = l.grant.Request; ttl > 0 && ttl >= c.info.MinTTL {
			g.TTL = ttl
		}
		l.grant, l.span = g, span{g.Sent, g.Left}
		l.fails, l.short = 0, false
		if err := l.checkNow(now); err != nil {
			l.landed(err)
			return
		}
		l.plan(now)
		c.schedule(&l.entry, l.next(now), l.grant.TTL)
		l.emit(Event{Kind: EventRenewed, Took: now.Sub(sent)})
		l.landed(nil)
	case errors.Is(err, ErrLost):
		l.lost(err)
		l.landed(l.cause)
	default:
		l.retry(b, now)
		l.emit(Event{Kind: EventRenewFailed, Err: err, Took: now.Sub(sent)})
		l.landed(err)
	}
}

// retry plans another try behind a failed one. c.mu is held.
func (l *Lease) retry(b *batch, now driver.Instant) {
	if b.byHand {
		if !l.due.IsZero() {
			return // the schedule goes on by itself
		}
	} else {
		l.fails++
	}
	if (l.grant.Manual && !l.short) || l.fails >= maxTries {
		return
	}
	if !b.retryAt.After(now.Time()) {
		pause := min(l.grant.TTL/retryShare, l.span.untilEnd(now)/retryLeftShare)
		pause = time.Duration(float64(pause) * b.jitter)
		b.retryAt = now.Time().Add(max(pause, minRetry))
	}
	l.due = b.retryAt
	l.c.schedule(&l.entry, l.next(now), l.grant.TTL)
}

// plan plans the next renewal of a grant. c.mu is held.
func (l *Lease) plan(now driver.Instant) {
	left := l.span.left - now.Sub(l.span.sent)
	if left <= l.grant.TTL/shortShare {
		l.due = now.Time().Add(min(left/shortDelayShare, maxShortDelay))
		l.short = true
		return
	}
	l.due = time.Time{}
	if l.grant.Manual {
		return
	}
	l.due = l.c.slot(l.span.sent.Time(), l.grant.TTL)
	// Never at once, whatever a driver says of the ttl.
	if soonest := now.Time().Add(min(left/shortDelayShare, minRetry)); l.due.Before(soonest) {
		l.due = soonest
	}
}

// slot returns when a grant sent at that time is due: a third of its ttl later, rounded
// down to this Locker's grid for that ttl.
func (c *core) slot(sent time.Time, ttl time.Duration) time.Time {
	width := max(ttl/slots, 1)
	base := c.born.Add(-time.Duration(c.phase * float64(width)))
	whole := sent.Sub(base).Truncate(width)
	return base.Add(whole + renewSlots*width)
}

// Renew renews the lease now, or joins the renewal under way, and returns what came of
// it. ctx bounds the waiting, not the renewal. ErrLost and the other causes of Err: the
// lease is over. Any other error: it was not extended, as far as is known, and lives on
// until its end; automatic renewal goes on.
func (l *Lease) Renew(ctx context.Context) error {
	c := l.c
	now := c.clock.now()
	c.lock()
	if err := l.checkNow(now); err != nil {
		c.unlock()
		return err
	}
	if l.inFlight == nil {
		l.inFlight = &flight{}
		b := newBatch(l)
		b.byHand = true
		c.startBatch(b)
	}
	f := l.inFlight
	done := f.wait()
	c.unlock()
	select {
	case <-done:
		return c.fail("renew", l.ks.key, f.err)
	case <-ctx.Done():
		return c.fail("renew", l.ks.key, ctx.Err())
	}
}

// wait returns the channel that closes when the flight is over. c.mu is held.
func (f *flight) wait() <-chan struct{} {
	if f.done == nil {
		f.done = make(chan struct{})
	}
	return f.done
}
