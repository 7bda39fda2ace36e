package redislock

import (
	"context"
	"time"

	"github.com/fencelock/locker/driver"
)

// push is a grant that somebody else's request made.
type push struct {
	token  driver.Token
	expiry time.Duration // on the server's clock
	heard  driver.Instant
}

// Ticket is where an attempt hears that it was granted while it waited. It implements
// [driver.Ticket].
type Ticket struct {
	driver *Driver
	req    driver.Request
	grants chan driver.Grant // the newest one
	roused chan struct{}     // there is a new subscription

	clock driver.ServerClock
	// What the ear's lock guards.
	early  *push // what overtook the answer that tells the clock
	closed bool
}

// judge turns a push into a grant once the server's clock is known. Whoever calls it holds
// the ear's lock.
func (t *Ticket) judge() {
	if t.early == nil {
		return
	}
	p := *t.early
	sent, left, known := t.clock.Left(p.expiry)
	if !known {
		return
	}
	t.early = nil
	// A grant by push begins with a claim window, and never before it is heard of.
	left = min(left, p.heard.Sub(sent)+granular(driver.ClaimWindow(t.req.TTL)))
	g := t.driver.grant(t.req, p.token, left)
	g.Sent = sent
	offer(t.grants, g)
}

// Listen opens the attempt's ear. The driver's first one opens its subscription, which
// costs a connection. Where it cannot be opened the ticket is deaf until it can, and the
// waiter polls.
func (d *Driver) Listen(ctx context.Context, r driver.Request) (driver.Ticket, error) {
	if err := d.enter(ctx); err != nil {
		return nil, err
	}
	r.TTL = granular(r.TTL)
	t := &Ticket{
		driver: d, req: r, grants: make(chan driver.Grant, 1), roused: make(chan struct{}, 1),
	}
	e := d.ear
	e.mu.Lock() // the ticket is there first: it says how closely the connection is watched
	e.tickets[r.Attempt] = t
	e.polls[driver.PollInterval(r.TTL)]++
	e.mu.Unlock()
	e.open(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	drain(t.roused) // it has asked for nothing yet that it could have missed
	return t, nil
}

// subscribed counts the subscriptions. Whoever asks the server notes it before.
func (e *ear) subscribed() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.subscriptions
}

// answered gives the clock of an answer to the attempt's ticket, unless there is a new
// subscription since it was asked for: it may be another server's.
func (e *ear) answered(a driver.Attempt, subscription int, sent driver.Instant, reading time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t := e.tickets[a]; t != nil && subscription == e.subscriptions {
		t.clock.Answered(sent, reading)
		t.judge()
	}
}

// Wait blocks until the attempt was granted by somebody else's request, or until it should
// poll, because the subscription was lost for a while. A push that overtook the answer to
// the attempt's own request waits for it: without it nobody knows what its expiry means.
func (t *Ticket) Wait(ctx context.Context) (driver.Grant, error) {
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, err
	}
	select {
	case g := <-t.grants:
		return g, nil
	case <-t.roused:
		return driver.Grant{}, nil
	case <-ctx.Done():
		return driver.Grant{}, ctx.Err()
	case <-t.driver.closed:
		return driver.Grant{}, driver.ErrClosed
	}
}

// Close lets go of the ticket. It ends no place and no grant.
func (t *Ticket) Close() {
	e := t.driver.ear
	e.mu.Lock()
	defer e.mu.Unlock()
	if t.closed {
		return
	}
	t.closed = true
	if e.tickets[t.req.Attempt] == t {
		delete(e.tickets, t.req.Attempt)
	}
	poll := driver.PollInterval(t.req.TTL)
	if e.polls[poll]--; e.polls[poll] == 0 {
		delete(e.polls, poll)
	}
}
