package redislock

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/locker/driver"
)

// ear is where a driver hears of the grants that others made to its waiters: one plain
// channel for all of them, in a Cluster too, where a sharded subscription does not follow a
// slot that moves. It is opened by the first waiter, since most drivers never wait.
//
// What it hears may be lost; every waiter also polls.
type ear struct {
	client  redis.UniversalClient
	channel string
	ctx     context.Context
	stop    context.CancelFunc
	done    sync.WaitGroup
	// settled is closed when the first subscription was confirmed or has failed.
	settled chan struct{}
	settle  sync.Once

	mu      sync.Mutex
	started bool
	tickets map[driver.Attempt]*Ticket
	// subscriptions is how many there were. Each may be with another server.
	subscriptions int
	// polls is how many tickets there are of each poll interval.
	polls map[time.Duration]int
	sub   *redis.PubSub
}

const (
	// longestSilence is the longest poll interval.
	longestSilence = 5 * time.Second
	// pongWithin is the least time that an answer to a ping is given: a slow network is no
	// dead one.
	pongWithin = time.Second
	// firstPause is the pause before a broken subscription is opened again, doubling up to
	// lastPause.
	firstPause, lastPause = 50 * time.Millisecond, 5 * time.Second
)

func newEar(client redis.UniversalClient, channel string) *ear {
	e := &ear{
		client: client, channel: channel, settled: make(chan struct{}),
		tickets: map[driver.Attempt]*Ticket{}, polls: map[time.Duration]int{},
	}
	e.ctx, e.stop = context.WithCancel(context.Background())
	return e
}

func (e *ear) close() {
	e.mu.Lock()
	e.stop()
	if e.sub != nil {
		_ = e.sub.Close() // ends the read
	}
	e.mu.Unlock()
	e.done.Wait()
}

// begin starts to listen, once, and not behind close.
func (e *ear) begin() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.started && e.ctx.Err() == nil {
		e.started = true
		e.done.Go(e.listen)
	}
}

// open waits until the driver listens, or until it is known that it does not.
func (e *ear) open(ctx context.Context) {
	e.begin()
	select {
	case <-e.settled:
	case <-ctx.Done():
	case <-e.ctx.Done():
	}
}

// listen keeps a subscription open.
func (e *ear) listen() {
	pause := firstPause
	for e.ctx.Err() == nil {
		if e.hear() {
			pause = firstPause
		}
		e.settle.Do(func() { close(e.settled) })
		select {
		case <-time.After(pause):
		case <-e.ctx.Done():
		}
		pause = min(2*pause, lastPause)
	}
}

// hear listens until the connection fails, and reports whether anything was heard.
func (e *ear) hear() (heard bool) {
	sub := e.subscription()
	if sub == nil {
		return false
	}
	defer func() { _ = sub.Close() }()
	if err := sub.Subscribe(e.ctx, e.channel); err != nil {
		return false
	}
	asked := false // whether it lives
	for {
		silence, listeners := e.patience()
		if asked {
			silence = max(silence, pongWithin)
		}
		msg, err := sub.ReceiveTimeout(e.ctx, silence)
		var late net.Error
		switch {
		case err == nil:
			heard, asked = true, false
			e.take(msg)
		case !errors.As(err, &late) || !late.Timeout() || asked || e.ctx.Err() != nil:
			return heard
		case listeners > 0:
			asked = true
			if sub.Ping(e.ctx) != nil {
				return heard
			}
		}
	}
}

// subscription makes one that close can end. Nil: it is closed already.
func (e *ear) subscription() *redis.PubSub {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ctx.Err() != nil {
		return nil
	}
	e.sub = e.client.Subscribe(e.ctx) // without a channel nothing is sent yet
	return e.sub
}

// patience is how long the connection may be silent before it is asked whether it lives:
// the shortest poll interval of those who wait.
func (e *ear) patience() (silence time.Duration, listeners int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	silence = longestSilence
	for poll := range e.polls {
		silence = min(silence, poll)
	}
	return silence, len(e.tickets)
}

// take is told what came.
func (e *ear) take(msg any) {
	switch m := msg.(type) {
	case *redis.Subscription:
		e.renew() // before whoever waits to listen goes on: he has missed nothing
		e.settle.Do(func() { close(e.settled) })
	case *redis.Message:
		e.push(m.Payload)
	}
}

// renew begins anew with every waiter: what was pushed before may be lost, and what is
// pushed from now on may come from another server, behind the same address or a failover,
// whose clock nobody has read yet. Everybody polls, which mends both.
func (e *ear) renew() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.subscriptions++
	for _, t := range e.tickets {
		t.clock.Forget()
		t.early = nil
		drain(t.grants)
		offer(t.roused, struct{}{})
	}
}

// push gives a grant to its waiter: attempt, token and the expiry on the server's clock.
func (e *ear) push(payload string) {
	parts := strings.Fields(payload)
	if len(parts) != 3 {
		return
	}
	attempt, aerr := driver.ParseAttempt(parts[0])
	token, terr := driver.ParseToken(parts[1])
	expiry, xerr := strconv.ParseInt(parts[2], 10, 64)
	if errors.Join(aerr, terr, xerr) != nil {
		return // anybody can publish
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if t := e.tickets[attempt]; t != nil {
		t.early = &push{token, millis(expiry), driver.Now()}
		t.judge()
	}
}

// offer replaces what nobody fetched. Whoever calls it holds the ear's lock, so that nobody
// else fills the room.
func offer[T any](c chan T, v T) {
	drain(c)
	c <- v
}

func drain[T any](c chan T) {
	select {
	case <-c:
	default:
	}
}

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
