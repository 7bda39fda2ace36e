package locker

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/locker/driver"
)

// waiter is one attempt's place in the backend's queue (R8, R13).
type waiter struct {
	q      *acquisition
	a      *attempt
	ticket driver.Ticket
	poll   time.Time     // when to poll next, in package time
	empty  time.Duration // the least pause behind an empty or failed answer of the ticket
	failed time.Duration // the pause behind a failed poll
	early  int           // empty or failed answers of the ticket since the last poll
	deaf   bool          // the ticket failed: poll before listening again
}

const (
	// maxEarly empty answers in a row, and the ticket is taken for broken until the next
	// poll: an ear that rings all the time would make the wait spin.
	maxEarly = 8
	// minExpiryPoll is the least pause between two polls that wait for an expiry.
	minExpiryPoll = 10 * time.Millisecond
)

// wait takes a place in the backend's queue and waits for the grant. An error ends the
// attempt: errAgain asks for a fresh one, ErrUnsupported says that nothing was sent.
func (q *acquisition) wait(a *attempt) (*Lease, error) {
	q.watchClose()
	ctx, cancel := context.WithTimeout(q.ctx, callTimeout(a.req.TTL))
	ticket, err := q.c.queuer.Listen(ctx, a.req)
	cancel()
	if err == nil && ticket == nil {
		err = errors.New("the driver gave no ticket")
	}
	if err != nil {
		if driver.IsAmbiguous(err) { // nothing was asked of the queue yet
			err = driver.Wrap(ErrUnavailable, opaque{err})
		}
		return nil, err
	}
	w := &waiter{q: q, a: a, ticket: ticket, empty: firstRetry, failed: firstRetry}
	defer w.close() // before the attempt is settled
	g, err := q.resolve(a, q.c.queuer.Enqueue, resendPolls*driver.PollInterval(a.req.TTL))
	var held *HeldError
	switch {
	case err == nil:
		return w.accept(g, a.sent)
	case !errors.As(err, &held):
		return nil, err
	}
	a.unanswered, a.queued = false, true // whatever the first sends did, its place stands
	q.refused(held)
	w.plan(held)
	return w.run()
}

// close lets go of the ticket.
func (w *waiter) close() {
	if w.ticket != nil {
		w.ticket.Close()
		w.ticket = nil
	}
}

// accept ends the wait with a grant. The ticket is closed first: a grant that cannot be
// accepted is undone.
func (w *waiter) accept(g driver.Grant, sent driver.Instant) (*Lease, error) {
	w.close()
	return w.q.accept(w.a, g, sent)
}

// run listens and polls until the attempt is granted or over.
func (w *waiter) run() (*Lease, error) {
	for {
		g, err := w.listen()
		if w.q.over() {
			return nil, errOver
		}
		if err == nil && g.Token != 0 && g.Attempt == w.a.req.Attempt {
			lease, err := w.pushed(g)
			if lease != nil || err != nil {
				return lease, err
			}
		} else if !errors.Is(err, errPollDue) {
			w.hurry(err != nil)
		}
		if !w.due() {
			continue
		}
		lease, err := w.ask()
		if lease != nil || err != nil {
			return lease, err
		}
	}
}

// errPollDue: nothing was pushed before it was time to poll.
var errPollDue = errors.New("poll is due")

// listen waits for a push until it is time to poll.
func (w *waiter) listen() (driver.Grant, error) {
	pause := time.Until(w.poll)
	if w.deaf {
		_ = sleep(w.q.ctx, pause)
		w.deaf = false
		return driver.Grant{}, errPollDue
	}
	if pause <= 0 {
		return driver.Grant{}, errPollDue
	}
	ctx, cancel := context.WithTimeout(w.q.ctx, pause)
	defer cancel()
	g, err := w.ticket.Wait(ctx)
	if err != nil && ctx.Err() != nil {
		return driver.Grant{}, errPollDue
	}
	return g, err
}

// due reports whether it is time to poll.
func (w *waiter) due() bool { return time.Until(w.poll) <= 0 }

// hurry polls soon: the ticket said that something may have happened, or that it is
// broken. At most every 100 ms, doubling.
func (w *waiter) hurry(broken bool) {
	if w.early++; w.early == 1 {
		soon := w.a.sent.Time().Add(w.empty)
		w.empty = min(2*w.empty, max(driver.PollInterval(w.a.req.TTL), firstRetry))
		if soon.Before(w.poll) {
			w.poll = soon
		}
	}
	w.deaf = broken || w.early >= maxEarly
}

// plan sets the time of the next poll behind an answer that said queued: a poll interval
// after the last send, a little less so that waiters do not march in step, and at the
// holder's expiry if this is the first in the queue.
func (w *waiter) plan(held *HeldError) {
	w.poll = w.a.sent.Time().Add(jitter(driver.PollInterval(w.a.req.TTL)))
	if held.Ahead == 0 && held.ExpiresIn > 0 {
		if expiry := time.Now().Add(max(held.ExpiresIn, minExpiryPoll)); expiry.Before(w.poll) {
			w.poll = expiry
		}
	}
}

// ask polls once. Neither a lease nor an error: wait on.
func (w *waiter) ask() (*Lease, error) {
	if w.early == 0 {
		w.empty = firstRetry
	}
	w.early = 0
	g, err := w.q.send(w.a, w.q.c.queuer.Poll)
	var held *HeldError
	switch {
	case err == nil:
		return w.accept(g, w.a.sent)
	case w.q.over():
		return nil, errOver
	case errors.As(err, &held):
		w.failed = firstRetry
		w.q.refused(held)
		w.plan(held)
		return nil, nil
	case errors.Is(err, ErrLost):
		return nil, errAgain // gone: crashed away, or given up as dead
	case errors.Is(err, ErrUnavailable), driver.IsAmbiguous(err):
		w.poll = time.Now().Add(w.failed)
		w.failed = min(2*w.failed, max(driver.PollInterval(w.a.req.TTL), firstRetry))
		return nil, nil
	default:
		return nil, err
	}
}

// pushed judges a pushed grant (R13). Neither a lease nor an error: it is of no use.
func (w *waiter) pushed(g driver.Grant) (*Lease, error) {
	c := w.q.c
	if g.Sent.IsZero() { // without the server's clock nothing can be said of it: poll
		w.hurry(false)
		return nil, nil
	}
	left := g.Left - c.clock.now().Sub(g.Sent)
	switch {
	case left <= 0: // a late one: the grant it tells of is over
		w.hurry(false)
		return nil, nil
	case !c.info.ConfirmPushes && left >= driver.ClaimWindow(g.TTL)/2:
		return w.accept(g, g.Sent)
	}
	return w.confirm(g)
}

// confirm renews a pushed grant before it is believed; an unknown answer is repeated
// until the grant's end.
func (w *waiter) confirm(g driver.Grant) (*Lease, error) {
	q, c := w.q, w.q.c
	s := span{g.Sent, g.Left}
	for {
		sent := c.clock.now()
		left := s.untilEnd(sent)
		if left <= 0 {
			return nil, errAgain
		}
		ctx, cancel := context.WithTimeout(q.ctx, min(callTimeout(g.TTL), left))
		renewed, err := c.drv.Renew(ctx, g)
		cancel()
		err = plain(err)
		switch {
		case err == nil && s.untilEnd(c.clock.now()) > 0:
			if renewed.Token != g.Token || renewed.Attempt != g.Attempt {
				return nil, errAgain
			}
			return w.accept(renewed, sent)
		case err == nil, errors.Is(err, ErrLost):
			return nil, errAgain
		case q.over():
			return nil, errOver
		}
		pause := max(min(g.TTL/retryShare, left/retryLeftShare), minRetry)
		if sleep(q.ctx, pause) != nil {
			return nil, errOver
		}
	}
}
