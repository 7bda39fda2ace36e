package locker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/locker/driver"
)

// attempt is one attempt to get the key: everything that is sent under one id.
type attempt struct {
	req        driver.Request
	first      driver.Instant // of its first send
	sent       driver.Instant // of its last one
	unanswered bool           // the outcome of some send is unknown
	queued     bool           // it was ever told that it is queued
	state      any            // the driver's, from an unknown outcome
	seen       mark           // what was known of tokens before its last send
}

// fresh makes a new attempt.
func (q *acquisition) fresh() *attempt {
	q.c.lock()
	floor := q.ks.mark.floor
	q.c.unlock()
	q.tried = attempt{req: driver.Request{
		Key: q.full, Attempt: driver.NewAttempt(), TTL: q.cfg.ttl, Manual: q.cfg.manual,
		Owner: q.cfg.owner, Note: q.cfg.note, Floor: floor,
	}}
	return &q.tried
}

// sendFunc is one of the driver's requests.
type sendFunc func(context.Context, driver.Request) (driver.Grant, error)

// send sends the attempt once.
func (q *acquisition) send(a *attempt, f sendFunc) (driver.Grant, error) {
	c := q.c
	c.lock()
	a.seen = q.ks.mark
	c.unlock()
	a.sent = c.clock.now()
	if a.first.IsZero() {
		a.first = a.sent
	}
	ctx, cancel := context.WithTimeout(q.ctx, callTimeout(a.req.TTL))
	defer cancel()
	g, err := f(ctx, a.req)
	err = plain(err)
	if err == nil && g.Attempt != a.req.Attempt { // a broken driver; whatever was granted is undone
		err = driver.Wrap(ErrAmbiguous, errors.New("the driver answered with another attempt's grant"))
	}
	return g, err
}

// resolve sends the attempt again until its outcome is known, for the given time from
// its first send (R5). A refusal or a definite failure settles only the send that it
// answers: a failure after an unanswered send is one more unknown.
func (q *acquisition) resolve(a *attempt, f sendFunc, window time.Duration) (driver.Grant, error) {
	for n := 0; ; n++ {
		g, err := q.send(a, f)
		switch {
		case err == nil, errors.Is(err, ErrHeld):
			return g, err
		case driver.IsAmbiguous(err):
			a.unanswered = true
			if g.State != nil {
				a.state = g.State
			}
		case !a.unanswered:
			return g, err
		default:
			again := errors.Is(err, ErrUnavailable)
			if err = driver.Wrap(ErrAmbiguous, opaque{err}); !again {
				return g, err
			}
		}
		q.watchClose()
		pause := doubled(firstResend, n, maxCall)
		if q.c.clock.now().Sub(a.first)+pause >= window || sleep(q.ctx, pause) != nil {
			return g, err
		}
	}
}

// accept turns a grant into a lease, if it may (R9, R10).
func (q *acquisition) accept(a *attempt, g driver.Grant, sent driver.Instant) (*Lease, error) {
	c := q.c
	if g.Sent.IsZero() {
		g.Sent = sent
	}
	s := span{g.Sent, g.Left}
	now := c.clock.now()
	c.lock()
	defer c.unlock()
	var err error
	switch {
	case c.closed:
		err = ErrClosed
	case q.caller.Err() != nil:
		err = errOver
	case s.untilEnd(now) <= 0:
		err = errAgain
	case g.Token == 0 || g.Token > driver.MaxToken || g.TTL <= 0 || g.TTL < c.info.MinTTL:
		err = fmt.Errorf("%w: granted token %d for %v", ErrCorrupt, uint64(g.Token), g.TTL)
	case !a.seen.admits(g.Token, g.Attempt):
		err = fmt.Errorf("%w: granted %d after %d was seen: the backend has lost its counter; a process that starts anew accepts that, and so does Locker.AcceptTokenReset",
			ErrTokenRegression, uint64(g.Token), uint64(a.seen.token))
	}
	if err != nil {
		a.unanswered, a.queued = false, false // undone here, with all that the grant says
		c.undo(g, nil, now, err)
		return nil, err
	}
	q.lease = c.hold(q, g, s, now)
	return q.lease, nil
}

// settle undoes an attempt that gives no lease, unless every answer says that it has
// nothing at the backend.
func (q *acquisition) settle(a *attempt) {
	if !a.unanswered && !a.queued {
		return
	}
	a.unanswered, a.queued = false, false
	now := q.c.clock.now()
	q.c.lock()
	defer q.c.unlock()
	q.c.undo(driver.Grant{Request: a.req, State: a.state}, nil, now, ErrAmbiguous)
}
