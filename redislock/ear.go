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
