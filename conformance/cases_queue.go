package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/faultlock"
)

var needsQueue = []Feature{driver.FeatureQueue}

// queueCases are about a backend that keeps waiters in order.
var queueCases = []Case{
	{
		ID:      "queue/places",
		Rule:    "An enqueue takes one place however often it is sent, a poll takes none, and a release gives the place up.",
		Surface: OnDriver,
		Needs:   needsQueue,
		Run: func(c *C) {
			a, b, key := c.Client("A"), c.Client("B"), c.Key("k")
			g := a.Grant(key)
			first, second := b.Request(key), b.Request(key)
			b.gone(second, "a poll of an attempt that was never enqueued")
			b.queued(b.Enqueue, first)
			b.queued(b.Enqueue, second)
			b.queued(b.Enqueue, first)
			b.queued(b.Poll, first)
			held := b.queued(b.Poll, second)
			c.InTime(held.Ahead >= 1, "ahead of the second place: got %d, want at least 1", held.Ahead)
			if err := b.Freed(driver.Grant{Request: first}); err != nil {
				c.fail(ByRule, soft(err), "giving the place up: got %v, want nil", err)
			}
			b.gone(first, "a poll of a place that was given up")
			if err := a.Freed(g); err != nil {
				c.fail(ByRule, soft(err), "A releases: got %v, want nil", err)
			}
			ctx, cancel := b.call()
			next, err := b.Poll(ctx, second)
			cancel()
			if err != nil {
				c.Latef("the second place behind the release: got %v, want the grant", err)
			}
			c.Must(next.Token > g.Token, "its token: got %v, want more than %v", next.Token, g.Token)
		},
	},
	{
		ID:      "queue/poll-extends-nothing",
		Rule:    "A poll extends no grant: a hand-off that nobody claims is over after its claim window.",
		Surface: OnDriver,
		Needs:   needsQueue,
		Run: func(c *C) {
			a, b, third, key := c.Client("A"), c.Client("B"), c.Peer("C"), c.Key("k")
			g := a.Grant(key)
			r := b.Request(key)
			b.queued(b.Enqueue, r)
			if err := a.Freed(g); err != nil {
				c.fail(ByRule, soft(err), "A releases: got %v, want nil", err)
			}
			granted := c.History.Now()
			c.Go(func() {
				for c.History.Now() < granted+c.T {
					ctx, cancel := b.call()
					_, err := b.Poll(ctx, r)
					cancel()
					if err != nil {
						return
					}
					c.Sleep(c.T / 20)
				}
			})
			next := third.Acquire(key)
			most := driver.ClaimWindow(c.T) + c.Soon() + driver.PollInterval(c.T)/4
			c.InTime(next.Got-granted <= most, "the key was given on %v after the hand-off, want at most %v", next.Got-granted, most)
			next.GiveBack()
		},
	},
	{
		ID:      "queue/floor",
		Rule:    "A place in the queue keeps its request's floor: whoever grants raises first.",
		Level:   Extended,
		Surface: OnDriver,
		Needs:   []Feature{driver.FeatureQueue, driver.FeatureFloor},
		Run: func(c *C) {
			a, b, key := c.Client("A"), c.Client("B"), c.Key("k")
			g := a.Grant(key)
			r := b.Request(key)
			r.Floor = g.Token + 1000
			b.queued(b.Enqueue, r)
			if err := a.Freed(g); err != nil {
				c.fail(ByRule, soft(err), "A releases: got %v, want nil", err)
			}
			ctx, cancel := b.call()
			defer cancel()
			next, err := b.Poll(ctx, r)
			if err != nil {
				c.Latef("Poll behind the release: got %v, want the grant", err)
			}
			c.Must(next.Token > r.Floor, "token with floor %v: got %v, want more", r.Floor, next.Token)
		},
	},
	{
		ID:      "queue/fifo",
		Rule:    "Live waiters are served in the order in which they came.",
		Surface: OnLock,
		Needs:   []Feature{driver.FeatureQueue, driver.FeatureFIFO},
		Push:    Size{N: 6}, Full: Size{N: 30},
		Run: func(c *C) {
			a, key := c.Peer("A"), c.Key("k")
			l := a.Try(key)
			var mu sync.Mutex
			var order []int
			var all sync.WaitGroup
			for i := range c.N() {
				p := c.Peer(fmt.Sprintf("waiter %d", i))
				all.Add(1)
				c.Go(func() {
					defer all.Done()
					next := p.Acquire(key)
					mu.Lock()
					order = append(order, i)
					mu.Unlock()
					next.GiveBack()
				})
				if !c.Eventually(c.T, func() bool { return p.Sent(faultlock.Enqueue) > 0 }) {
					c.Latef("waiter %d did not enqueue within a ttl", i)
				}
				c.Sleep(c.T / 8) // its answer
			}
			l.GiveBack()
			all.Wait()
			c.alive()
			for i, who := range order {
				c.InTime(who == i, "waiters were served in the order %v, and had come in the order 0, 1, 2, …", order)
			}
		},
	},
	{
		ID:      "queue/requests-per-hand-off",
		Rule:    "A hand-off costs a bounded number of requests, however many wait.",
		Surface: OnLock,
		Needs:   needsQueue,
		Load:    true,
		Push:    Size{N: 40}, Full: Size{N: 200},
		Run: func(c *C) {
			a, key := c.Peer("A"), c.Key("k")
			l := a.Try(key)
			peers := make([]*Peer, c.N())
			var all sync.WaitGroup
			for i := range peers {
				peers[i] = c.Peer(fmt.Sprintf("waiter %d", i))
				all.Add(1)
				c.Go(func() {
					defer all.Done()
					peers[i].Acquire(key).GiveBack()
				})
			}
			sent := func() int {
				n := 0
				for _, p := range peers {
					n += p.Sent()
				}
				return n
			}
			if !c.Eventually(c.Times(2), func() bool {
				for _, p := range peers {
					if p.Sent(faultlock.Enqueue) == 0 {
						return false
					}
				}
				return true
			}) {
				c.Latef("%d waiters did not enqueue within 2 ttls", c.N())
			}
			begun, before := c.History.Now(), sent()
			l.GiveBack()
			all.Wait()
			c.alive()
			elapsed := c.History.Now() - begun
			polls := int(elapsed/(driver.PollInterval(c.T)*3/4)) + 1 // of each waiter, to keep its place
			most := 3*c.N() + polls*c.N()                            // a release each; a poll and a renewal at worst
			n := sent() - before
			c.InTime(n <= most, "requests for %d hand-offs in %v: got %d, want at most %d", c.N(), elapsed, n, most)
		},
	},
	{
		ID:      "queue/hand-off-lasts",
		Rule:    "A grant that was handed on lasts: its first renewal extends the claim window.",
		Surface: OnLock,
		Needs:   needsQueue,
		Run: func(c *C) {
			a, b, third, key := c.Peer("A"), c.Peer("B"), c.Client("C"), c.Key("k")
			l := a.Try(key)
			done := make(chan *Lease, 1)
			c.Go(func() { done <- b.Acquire(key, locker.WithManualRenew()) })
			b.queues()
			l.GiveBack()
			next := c.lease(done)
			if !next.HoldFor(c.Times(0.7)) {
				c.Latef("the lease is over within 0.7 T: got %v, want its claim window extended", next.Err())
			}
			_, err := third.TryOf(third.Request(key))
			c.Must(err != nil || !next.Sure(), "C was granted the key while B held it with token %v", next.Token())
			next.GiveBack()
		},
	},
	{
		ID:      "queue/dead-waiter",
		Rule:    "The queue moves on past a waiter that died and one that gave up.",
		Surface: OnLock,
		Needs:   needsQueue,
		Run: func(c *C) {
			a, dead, quits, b, key := c.Peer("A"), c.Client("dead"), c.Peer("quits"), c.Peer("B"), c.Key("k")
			l := a.Try(key)
			dead.queued(dead.Enqueue, dead.Request(key))
			_, err := quits.AcquireErr(c.Ctx, key, locker.WithWait(c.T/10))
			c.InTime(errors.Is(err, driver.ErrHeld), "the one that gave up: got %v, want %v", err, driver.ErrHeld)
			done := make(chan *Lease, 1)
			c.Go(func() { done <- b.Acquire(key) })
			b.queues()
			released := c.History.Now()
			l.GiveBack()
			next := c.lease(done)
			most := driver.ClaimWindow(c.T) + c.T/4 + c.Soon()
			c.InTime(next.Got-released <= most, "B was granted the key %v after the release, want at most %v", next.Got-released, most)
			next.GiveBack()
		},
	},
	{
		ID:      "queue/fresh-attempt",
		Rule:    "A waiter whose place has gone takes a new one with a fresh attempt: one that is being undone is never used again.",
		Surface: OnLock,
		Needs:   needsQueue,
		Run: func(c *C) {
			a, b, key := c.Peer("A"), c.Peer("B"), c.Key("k")
			l := a.Try(key)
			done := make(chan *Lease, 1)
			c.Go(func() { done <- b.Acquire(key) })
			b.queues()
			b.Faults("poll=hang") // its place dies
			c.Sleep(driver.Horizon(c.T) + c.T/4)
			b.Faults("")
			if !c.Eventually(c.T, func() bool { return b.Sent(faultlock.Enqueue) > 1 }) {
				c.Latef("B took no new place within a ttl of being heard again")
			}
			l.GiveBack()
			next := c.lease(done)
			next.StillHeld("in its second place")
			next.GiveBack()
			c.InTime(b.Sent(faultlock.Release) > 1, "releases: got %v, want one of the place that had gone, too", b.Counts())
			c.Must(b.reused() == 0, "attempts that were sent again behind their undo: got %d, want none", b.reused())
		},
	},
	{
		ID:      "queue/all-die",
		Rule:    "When a holder and those who waited die together, the next one gets the key within ttl, horizon and one claim window.",
		Surface: OnDriver,
		Needs:   []Feature{driver.FeatureQueue, FeatureCore},
		Push:    Size{N: 3}, Full: Size{N: 20},
		Run: func(c *C) {
			a, b, key := c.Client("A"), c.Peer("B"), c.Key("k")
			dead := make([]*Client, c.N())
			for i := range dead { // before the grant: to open one may take a good part of a ttl
				dead[i] = c.Client(fmt.Sprintf("dead %d", i))
			}
			g := a.Grant(key)
			c.Sleep(c.T * 6 / 10) // so that places still live when the grant ends
			for _, d := range dead {
				d.queued(d.Enqueue, d.Request(key))
			}
			died := c.History.Now()
			next := b.Acquire(key)
			end := max(c.History.At(g.Sent)+g.Left, died)
			most := driver.Horizon(c.T) + driver.ClaimWindow(c.T) + c.Soon() + c.T/10
			c.InTime(next.Got-end <= most, "B was granted the key %v after the dead holder's end, want at most %v", next.Got-end, most)
			next.GiveBack()
		},
	},
}

// queued sends an enqueue or a poll that must be answered queued.
func (cl *Client) queued(send func(context.Context, driver.Request) (driver.Grant, error), r driver.Request) driver.HeldError {
	ctx, cancel := cl.call()
	defer cancel()
	_, err := send(ctx, r)
	var held *driver.HeldError
	if !errors.As(err, &held) {
		cl.c.Latef("%s waits for %q, which is held: got %v, want a *HeldError", cl.name, r.Key, err)
	}
	return *held
}

// gone polls for what must not be there.
func (cl *Client) gone(r driver.Request, what string) {
	ctx, cancel := cl.call()
	defer cancel()
	_, err := cl.Poll(ctx, r)
	cl.c.Must(err != nil && !errors.Is(err, driver.ErrHeld), "%s: got %v, want %v", what, err, driver.ErrLost)
	cl.c.InTime(errors.Is(err, driver.ErrLost), "%s: got %v, want %v", what, err, driver.ErrLost)
}
