package locker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fencelock/locker/driver"
)

const (
	// firstResend and firstRetry are the first pauses before an unanswered request is
	// sent again, and before a failed one is replaced; both double.
	firstResend = 50 * time.Millisecond
	firstRetry  = 100 * time.Millisecond
	// resendShare: an unanswered TryAcquire is sent again until first send + ttl/2.
	resendShare = 2
	// resendPolls: an unanswered Enqueue, until first send + this many poll intervals.
	resendPolls = 2

	defaultPollMin = 50 * time.Millisecond
)

var errDeadline = context.DeadlineExceeded

// errAgain ends an attempt that came to nothing and was undone: the wait goes on with a
// fresh one. For a TryAcquire it means that the lease was lost before it was known (R9).
var errAgain = fmt.Errorf("%w: the grant was known only after it had ended", ErrLost)

// errOver ends an attempt because the wait has ended: by the caller, or by Close.
var errOver = errors.New("the wait has ended")

// acquisition is one call of Acquire or TryAcquire.
type acquisition struct {
	c      *core
	ctx    context.Context // ends with the caller's, with WithWait, or with Close
	caller context.Context // the caller's, bounded by WithWait
	cfg    acquireConfig
	key    string // the caller's
	full   string
	ks     *keyState
	call   call
	tried  attempt // the one under way
	lease  *Lease  // what came of it
	begun  driver.Instant
	// refusal is the last one, from the backend or from a holder in this process.
	refusal *HeldError
	open    bool // the last request's outcome is unknown
	retries int
	unwatch func()
}

func (l *Locker) acquire(ctx context.Context, key string, try bool, opts []AcquireOption) (*Lease, error) {
	c, full := l.c, l.full(key)
	q := &acquisition{c: c, key: key, full: full}
	err := c.configure(&q.cfg, opts)
	if err == nil {
		err = checkKey(full)
	}
	if err != nil {
		return nil, c.fail("acquire", full, err)
	}
	q.call.try = try || q.cfg.waitBounded && q.cfg.wait == 0
	if q.cfg.waitBounded && !q.call.try {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, q.cfg.wait)
		defer cancel()
	}
	q.ctx, q.caller = ctx, ctx
	if ctx.Err() != nil {
		return nil, c.fail("acquire", full, q.ended())
	}
	if err := c.enter(); err != nil {
		return nil, c.fail("acquire", full, err)
	}
	defer c.exit()
	lease, err := q.run()
	if err != nil {
		return nil, c.fail("acquire", full, err)
	}
	return lease, nil
}

// run waits for the call's turn in this process, and then for the key.
func (q *acquisition) run() (*Lease, error) {
	done := false
	defer func() {
		if q.unwatch != nil {
			q.unwatch()
		}
		if !done { // a panic of the driver or of OnEvent is on its way to the caller
			q.abandon()
		}
	}()
	lease, err := q.turn()
	done = true
	return lease, err
}

// abandon gives up everything that the call has: its place, its attempt, its lease.
func (q *acquisition) abandon() {
	c := q.c
	now := c.clock.now()
	c.lock()
	defer c.unlock()
	if q.lease != nil {
		delete(c.running, q.lease) // its function never runs
	}
	switch {
	case q.lease != nil && !q.lease.released:
		if c.dropUndo(q.lease); q.lease.cause == nil {
			q.lease.end(ErrLost)
		}
		q.lease.gone()
		c.undo(q.lease.grant, nil, now, ErrLost)
	case q.lease == nil && !q.tried.first.IsZero():
		c.undo(driver.Grant{Request: q.tried.req, State: q.tried.state}, nil, now, ErrAmbiguous)
	}
	if q.ks != nil {
		c.leave(q.ks, &q.call)
	}
}

// turn waits for the call's turn, competes, and leaves the queue.
func (q *acquisition) turn() (*Lease, error) {
	if answered, err := q.takeTurn(); answered {
		return nil, err
	}
	lease, err := q.compete()
	if lease == nil {
		q.c.lock()
		q.c.leave(q.ks, &q.call)
		q.c.unlock()
	}
	return lease, err
}

// takeTurn returns when the call may talk to the backend, or when it has its answer.
func (q *acquisition) takeTurn() (answered bool, err error) {
	c := q.c
	now := driver.PackageNow() // for people only: no need for the dearer clock
	q.begun = now
	c.lock()
	ks := c.state(q.full)
	q.ks = ks
	if q.call.try && (ks.lease != nil || ks.waiters > 0) {
		held := ks.holder(now)
		c.unlock()
		return true, held
	}
	if c.join(ks, &q.call) {
		c.unlock()
		return false, nil
	}
	c.unlock()
	q.watchClose()
	select {
	case <-q.call.turn:
		if q.call.answer != nil {
			return true, q.call.answer
		}
		return false, nil
	case <-q.ctx.Done():
		c.lock()
		defer c.unlock()
		if q.call.answer != nil {
			return true, q.call.answer
		}
		if q.call.waits {
			q.refusal = ks.holder(driver.PackageNow())
		}
		c.leave(ks, &q.call)
		return true, q.ended()
	}
}

// watchClose makes q.ctx end with Close too, once the call is going to wait.
func (q *acquisition) watchClose() {
	if q.unwatch != nil {
		return
	}
	ctx, cancel := context.WithCancelCause(q.ctx)
	unhook := context.AfterFunc(q.c.ctx, func() { cancel(ErrClosed) })
	q.ctx = ctx
	q.unwatch = func() { unhook(); cancel(nil) }
}

// ended is why the wait is over: Close, or the caller's context with what is known of
// the holder.
func (q *acquisition) ended() error {
	if q.c.ctx.Err() != nil {
		return ErrClosed
	}
	err := q.caller.Err()
	if cause := context.Cause(q.caller); cause != nil && !errors.Is(cause, err) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	e := &waitError{held: q.refusal, ambiguous: q.open, ended: err}
	if !q.begun.IsZero() {
		e.waited = driver.PackageNow().Sub(q.begun)
	}
	return e
}

// compete makes one attempt after the other until one gives a lease or the wait ends.
// The call is its key's front.
func (q *acquisition) compete() (*Lease, error) {
	queued := q.call.enqueue
	pause := q.backoff()
	a := q.fresh()
	for {
		if q.call.waits {
			q.watchClose()
		}
		lease, err := q.once(a, queued && q.c.queueing())
		if err == nil {
			return lease, nil
		}
		held, isHeld := as[*HeldError](err)
		switch {
		case q.over():
			if isHeld {
				q.refusal = held
			} else if !errors.Is(err, errOver) {
				q.open = driver.IsAmbiguous(err)
			}
			q.settle(a)
			return nil, q.ended()
		case q.call.try:
			q.settle(a)
			if isHeld {
				if q.c.undoing(held.Attempt) {
					return nil, fmt.Errorf("%w: an earlier attempt of this process is still being undone", ErrAmbiguous)
				}
				q.refused(held)
			}
			return nil, err
		case isHeld:
			q.refused(held)
			queued = q.c.queueing()
			if queued && !a.unanswered && !a.queued {
				continue // the same attempt takes a place
			}
			q.settle(a)
			if !queued {
				q.retries = 0
				q.watchClose()
				q.pauseFor(pause.next(held.ExpiresIn))
			}
		case errors.Is(err, errAgain):
			q.settle(a)
			q.pauseFor(q.retryPause())
		case q.call.waits && (errors.Is(err, ErrUnavailable) || driver.IsAmbiguous(err)):
			q.open = driver.IsAmbiguous(err)
			q.settle(a)
			q.retries = max(q.retries, 1)
			q.pauseFor(q.retryPause())
		default:
			q.settle(a)
			return nil, err
		}
		if q.over() {
			return nil, q.ended()
		}
		a = q.fresh()
	}
}

// once sends one attempt, to the queue or as a try, until it has a lease, is refused, or
// is given up.
func (q *acquisition) once(a *attempt, queued bool) (*Lease, error) {
	if queued {
		lease, err := q.wait(a)
		if !errors.Is(err, ErrUnsupported) {
			return lease, err
		}
		if a.queued { // Poll says so, of a queue that took the place
			return lease, err
		}
		q.c.noQueue.Store(true) // nothing was sent: as if there were no queue
	}
	g, err := q.resolve(a, q.c.drv.TryAcquire, a.req.TTL/resendShare)
	if err != nil {
		return nil, err
	}
	return q.accept(a, g, a.first)
}

// over reports whether the wait has ended.
func (q *acquisition) over() bool { return q.c.ctx.Err() != nil || q.caller.Err() != nil }

func (q *acquisition) pauseFor(d time.Duration) { _ = sleep(q.ctx, d) }

// retryPause is nothing at first, then firstRetry, doubling to the poll interval.
func (q *acquisition) retryPause() time.Duration {
	q.retries++
	if q.retries == 1 {
		return 0
	}
	return jitter(doubled(firstRetry, q.retries-2, driver.PollInterval(q.cfg.ttl)))
}

// refused notes who holds the key, for this call and for those behind it.
func (q *acquisition) refused(held *HeldError) {
	c := q.c
	now := c.clock.now()
	c.lock()
	defer c.unlock()
	q.refusal, q.open = held, false
	ks := q.ks
	ks.held, ks.heldAt = held, now
	ks.mark.saw(held.Token, held.Attempt)
	if !q.call.waits {
		c.emit(nil, Event{Kind: EventRefused, Key: q.full, Owner: q.cfg.owner, Err: held})
	}
	if !q.call.try {
		c.waits(ks, &q.call)
	}
	c.known(ks, now)
}

// backoff is the pause between two polls of a waiter without a queue (R8).
type backoff struct{ current, least, most time.Duration }

func (q *acquisition) backoff() backoff {
	b := backoff{least: q.c.info.Poll.Min, most: q.c.info.Poll.Max}
	if b.least <= 0 {
		b.least = defaultPollMin
	}
	if b.most <= 0 {
		b.most = driver.PollInterval(q.cfg.ttl)
	}
	b.most = max(b.most, b.least)
	return b
}

// next returns the next pause: doubling, jittered, and not past the holder's expiry.
func (b *backoff) next(expiresIn time.Duration) time.Duration {
	b.current = min(max(2*b.current, b.least), b.most)
	d := jitter(b.current)
	if expiresIn > 0 {
		d = max(min(d, expiresIn), b.least/2)
	}
	return d
}

// jitter shortens d by up to a quarter, so that contenders do not march in step.
func jitter(d time.Duration) time.Duration { return d - time.Duration(rand.Int64N(int64(d)/4+1)) }

// doubled is first·2ⁿ, at most most.
func doubled(first time.Duration, n int, most time.Duration) time.Duration {
	d := first
	for ; n > 0 && d < most; n-- {
		d *= 2
	}
	return min(d, max(most, first))
}
