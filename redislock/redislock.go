package redislock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/fencelock/locker/driver"
)

// Driver is a client of one namespace of a Redis or Valkey server. Make one with
// [NewDriver]; several Lockers may share it. It implements [driver.Driver] and every
// optional interface, and is safe for concurrent use. Cancelling a call does not interrupt
// it: it returns within two seconds then, and at its deadline in any case.
type Driver struct {
	sender
	space *space
	info  driver.Info
	terms string // of a grant, as the scripts take them, but for the floor
	ear   *ear
	owned func() error // closes the client; nil: it is the caller's

	close  sync.Once
	closed chan struct{}
	result error // of Close
}

var (
	_ driver.Driver       = (*Driver)(nil)
	_ driver.Queuer       = (*Driver)(nil)
	_ driver.BatchRenewer = (*Driver)(nil)
	_ driver.Inspector    = (*Driver)(nil)
	_ driver.Breaker      = (*Driver)(nil)
	_ driver.Pinger       = (*Driver)(nil)
)

// Info describes the backend as it was found when the driver was opened.
func (d *Driver) Info() driver.Info { return d.info }

// enter is the check before anything is sent.
func (d *Driver) enter(ctx context.Context) error {
	select {
	case <-d.closed:
		return driver.ErrClosed
	default:
	}
	if err := ctx.Err(); err != nil {
		return driver.Wrap(driver.ErrUnavailable, err)
	}
	return nil
}

// enterRequest is enter for a call that may make a grant.
func (d *Driver) enterRequest(ctx context.Context, r driver.Request) error {
	if r.TTL < minTTL {
		return driver.ErrInvalidTTL
	}
	if err := d.enter(ctx); err != nil {
		return err
	}
	if r.Floor >= driver.MaxToken { // raised to it, the counter would have no token for anybody
		return driver.Wrap(driver.ErrTokenRegression, fmt.Errorf("no token is left above the floor %d", uint64(r.Floor)))
	}
	return nil
}

// TryAcquire grants the key if it is free and nobody live waits: one script, which checks,
// draws the token and sets the lock. A re-send finds what the first send granted and
// changes nothing.
func (d *Driver) TryAcquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if err := d.enterRequest(ctx, r); err != nil {
		return driver.Grant{}, err
	}
	r.TTL = granular(r.TTL)
	a, err := d.ask(ctx, d.asRun(&tryScript, r))
	switch {
	case err != nil:
		return driver.Grant{}, err
	case a.status == granted:
		return d.grant(r, a.token, r.TTL), nil
	case a.status == held:
		return driver.Grant{}, a.refusal()
	case a.status != found:
		return driver.Grant{}, driver.Wrap(driver.ErrAmbiguous, errReply)
	case a.lock.how == tried: // by an earlier send, for the whole ttl
		return d.grant(r, a.lock.token, r.TTL), nil
	}
	// A place in the queue was given it, for a claim window. What remains counts from a
	// request whose send was noted; the clock behind that is too dear for every try.
	g, err := d.place(ctx, r, d.pollRun(r))
	if err != nil { // whatever it is: the attempt had the key a moment ago
		err = driver.Wrap(driver.ErrAmbiguous, errors.New("granted from the queue, and then: "+err.Error()))
	}
	return g, err
}

// Enqueue takes a place at the end of the queue, or the key itself.
func (d *Driver) Enqueue(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if err := d.enterRequest(ctx, r); err != nil {
		return driver.Grant{}, err
	}
	r.TTL = granular(r.TTL)
	return d.place(ctx, r, d.asRun(&enqueueScript, r,
		ms(driver.Horizon(r.TTL)), ms(granular(driver.ClaimWindow(r.TTL))), d.ear.channel))
}

// Poll asks after the place and keeps it alive.
func (d *Driver) Poll(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if err := d.enter(ctx); err != nil {
		return driver.Grant{}, err
	}
	r.TTL = granular(r.TTL)
	return d.place(ctx, r, d.pollRun(r))
}

func (d *Driver) pollRun(r driver.Request) *run {
	keys := d.space.keys(r.Key)
	return newRun(&pollScript, keys[:],
		d.above(0), r.Attempt.String(), ms(driver.Horizon(r.TTL)))
}

// above are the terms of a grant above a floor.
func (d *Driver) above(floor driver.Token) any {
	if floor == 0 && d.terms == plainTerms {
		return ""
	}
	return d.terms + floor.String()
}

// asRun is a script that may take the key.
func (d *Driver) asRun(s *script, r driver.Request, more ...any) *run {
	keys := d.space.keys(r.Key)
	run := newRun(s, keys[:], d.above(r.Floor), r.Attempt.String(), ms(r.TTL), tail(r.Owner, r.Note))
	run.args = append(run.args, more...)
	return run
}

// place sends what a waiter asks. The answer's clock is the one by which pushes to the
// attempt's ticket are judged.
func (d *Driver) place(ctx context.Context, r driver.Request, asked *run) (driver.Grant, error) {
	subscription, sent := d.ear.subscribed(), driver.Now()
	a, err := d.ask(ctx, asked)
	if err != nil {
		return driver.Grant{}, err
	}
	switch a.status {
	case gone:
		return driver.Grant{}, driver.ErrLost
	case held, found:
		d.ear.answered(r.Attempt, subscription, sent, a.reading)
	default:
		return driver.Grant{}, driver.Wrap(driver.ErrAmbiguous, errReply)
	}
	if a.status == held {
		return driver.Grant{}, a.refusal()
	}
	g := d.grant(r, a.lock.token, a.expiry-a.reading)
	g.Sent = sent
	return g, nil
}

// ask runs a script that answers with an answer.
func (d *Driver) ask(ctx context.Context, r *run) (answer, error) {
	reply, err := d.one(ctx, r)
	if err != nil {
		return answer{}, err
	}
	return parseAnswer(reply)
}

// grant is a grant of this driver. Its state says so to [Token].
func (d *Driver) grant(r driver.Request, t driver.Token, left time.Duration) driver.Grant {
	return driver.Grant{Request: r, Token: t, Left: left, State: d}
}

// Renew makes the grant last its ttl again, if the lock still names its attempt and token.
func (d *Driver) Renew(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	if err := d.enter(ctx); err != nil {
		return driver.Grant{}, err
	}
	together := []renewal{{0, g}}
	r := d.renewRun(together)
	d.together(ctx, []*run{r})
	return d.renewed(together, r, 0)
}

// renewal is a grant that is renewed, and which one of its batch it is.
type renewal struct {
	index int
	driver.Grant
}

// renewRun renews grants of one ttl in one run.
func (d *Driver) renewRun(together []renewal) *run {
	locks, args := make([]any, len(together)), make([]any, 1, 1+len(together))
	args[0] = ms(granular(together[0].TTL))
	for i, g := range together {
		locks[i] = d.space.lock(g.Key)
		args = append(args, head(g.Grant))
	}
	return newRun(&renewScript, locks, args...)
}

// renewed is what came of the n-th grant of a run.
func (d *Driver) renewed(together []renewal, r *run, n int) (driver.Grant, error) {
	if r.err != nil {
		return driver.Grant{}, r.err
	}
	if replies, _ := r.reply.([]any); len(replies) == len(together) {
		switch reply := replies[n].(type) {
		case int64:
			g := together[n]
			g.TTL = granular(g.TTL)
			switch reply {
			case 1:
				return d.grant(g.Request, g.Token, g.TTL), nil
			case 0:
				return driver.Grant{}, driver.ErrLost
			}
		case string:
			return driver.Grant{}, refused(said(reply))
		case error: // too few replicas have it
			return driver.Grant{}, reply
		}
	}
	return driver.Grant{}, driver.Wrap(driver.ErrAmbiguous, errReply)
}

// RenewBatch renews the grants in one pipeline, in a Cluster in one to each master.
func (d *Driver) RenewBatch(ctx context.Context, gs []driver.Grant, each func(i int, g driver.Grant, err error)) error {
	if err := d.enter(ctx); err != nil {
		for i := range gs {
			each(i, driver.Grant{}, err)
		}
		return nil
	}
	parts := d.renewals(gs)
	runs := make([]*run, len(parts))
	for i, together := range parts {
		runs[i] = d.renewRun(together)
		runs[i].index = i
	}
	d.all(ctx, runs, func(r *run) {
		together := parts[r.index]
		for n := range together {
			g, err := d.renewed(together, r, n)
			each(together[n].index, g, err)
		}
	})
	return nil
}

// renewals are the grants by the runs that renew them: of one ttl, and few enough. In a Cluster
// each has its own: while a slot moves, some of its keys are here and some there, and a run
// that needs both is refused until all are there.
func (d *Driver) renewals(gs []driver.Grant) (parts [][]renewal) {
	most := maxTogether
	if d.cluster() {
		most = 1
	}
	open := map[time.Duration]int{} // the last part of a ttl
	for i, g := range gs {
		at, ok := open[g.TTL]
		if !ok || len(parts[at]) == most {
			at = len(parts)
			open[g.TTL] = at
			parts = append(parts, make([]renewal, 0, most))
		}
		parts[at] = append(parts[at], renewal{i, g})
	}
	return parts
}

// Release ends what the attempt has, its lock or its place, and the same script hands the
// key to the next live waiter.
func (d *Driver) Release(ctx context.Context, g driver.Grant) error {
	if err := d.enter(ctx); err != nil {
		return err
	}
	keys := d.space.keys(g.Key)
	reply, err := d.one(ctx, newRun(&releaseScript, keys[:], d.above(0), g.Attempt.String()))
	switch {
	case err != nil:
		return err
	case reply == int64(1):
		return nil
	case reply == int64(0):
		return driver.ErrLost
	}
	return driver.Wrap(driver.ErrAmbiguous, errReply)
}

// Break puts an attempt that is nobody's in the place of the holder's, so that no renewal
// and no release finds the lock. With b.Now it deletes the lock and hands the key on.
func (d *Driver) Break(ctx context.Context, key string, t driver.Token, b driver.Break) error {
	if err := d.enter(ctx); err != nil {
		return err
	}
	now := "0"
	if b.Now {
		now = "1"
	}
	keys := d.space.keys(key)
	a, err := d.ask(ctx, newRun(&breakScript, keys[:],
		d.above(0), t.String(), now, driver.NewAttempt().String(), brokenNote(b)))
	switch {
	case err != nil:
		return err
	case a.status == gone:
		return driver.ErrLost
	case a.status == held:
		return a.refusal()
	case a.status == done:
		return nil
	}
	return driver.Wrap(driver.ErrAmbiguous, errReply)
}

// brokenNote is what is known about the break, for people.
func brokenNote(b driver.Break) string {
	s := "broken"
	if b.By != "" {
		s += " by " + b.By
	}
	if b.Reason != "" {
		s += ": " + b.Reason
	}
	return s
}

// Close ends no grant: calls and waits answer ErrClosed from now on. It closes the client
// only if the driver was opened by URL.
func (d *Driver) Close() error {
	d.close.Do(func() {
		close(d.closed)
		d.ear.close()
		d.running.close()
		if d.owned != nil {
			d.result = d.owned()
		}
	})
	return d.result
}

// granular rounds a ttl up to what Redis counts in.
func granular(ttl time.Duration) time.Duration {
	return (ttl + granularity - 1).Truncate(granularity)
}

// ms is a duration as the scripts take it.
func ms(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
