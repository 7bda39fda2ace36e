package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
)

var needsChild = []Feature{driver.FeatureProcesses, FeatureChild}

// processCases are about holders in other processes that are stopped and killed.
var processCases = []Case{
	{
		ID:      "process/excludes",
		Rule:    "A key that another process holds is refused here, and one that is held here is refused there.",
		Surface: OnLock,
		Needs:   needsChild,
		Run: func(c *C) {
			ch, b, theirs, ours := c.Child("child"), c.Peer("B"), c.Key("theirs"), c.Key("ours")
			h := ch.acquire(theirs)
			got, err := b.TryErr(theirs)
			if _, over := ch.errOf(theirs); over == nil && err == nil {
				c.Failf("B was granted the key (token %v) while another process held it with token %v", got.Token(), h.token)
			}
			c.InTime(errors.Is(err, driver.ErrHeld), "B asks for the other process's key: got %v, want %v", err, driver.ErrHeld)
			l := b.Try(ours)
			r := ch.do(command{Do: "acquire", Key: ours})
			if r.err() == nil && l.Sure() {
				c.Failf("the other process was granted the key (token %v) while B held it with token %v", r.Token, l.Token())
			}
			c.InTime(errors.Is(r.err(), driver.ErrHeld), "the other process asks for B's key: got %v, want %v", r.err(), driver.ErrHeld)
			l.GiveBack()
		},
	},
	{
		ID:      "process/short-stop",
		Rule:    "A holder that was stopped for a third of its ttl still holds, and renews.",
		Surface: OnLock,
		Needs:   needsChild,
		Run: func(c *C) {
			ch, key := c.Child("child"), c.Key("k")
			h := ch.acquire(key)
			ch.signal(stopSignal)
			c.Sleep(c.Times(0.3))
			ch.signal(continueSignal)
			for until := c.History.Now() + c.Times(1.2); c.History.Now() < until; c.Sleep(c.T / 10) {
				_, err := ch.errOf(key)
				c.InTime(err == nil, "the lease (token %v) of a holder that was stopped for 0.3 T: got %v, want it held", h.token, err)
			}
		},
	},
	{
		ID:      "process/long-stop",
		Rule:    "A holder that was stopped beyond its ttl knows from its first call that it lost, and its Done closes within 50 ms.",
		Surface: OnLock,
		Needs:   needsChild,
		Run: func(c *C) {
			ch, b, key := c.Child("child"), c.Peer("B"), c.Key("k")
			h := ch.acquire(key)
			ch.signal(stopSignal)
			done := make(chan *Lease, 1)
			c.Go(func() { done <- b.Acquire(key) })
			c.Sleep(c.T / 20)                              // a stop takes a moment
			asked := ch.send(command{Do: "err", Key: key}) // read when it wakes
			next := c.lease(done)
			c.Must(next.Token() > h.token, "token behind the stopped holder's: got %v, want more than %v", next.Token(), h.token)
			c.SleepUntil(h.got + c.Times(1.5))
			wakes := c.History.Now()
			ch.signal(continueSignal)
			woken := ch.answer(asked)
			c.InTime(c.History.Boot(woken.Before) >= wakes, "the holder answered while it was stopped: the case has tested nothing")
			c.Must(errors.Is(woken.err(), driver.ErrLost), "the first Err behind a stop of 1.5 T: got %v, want %v", woken.err(), driver.ErrLost)
			over, ok := ch.event("done", c.T)
			c.InTime(ok, "Done of the lost lease did not close within a ttl")
			late := over.Before - woken.After
			c.InTime(late <= 50*time.Millisecond+c.T/controlShare, "Done closed %v after the first call, want at most 50ms", late)
			next.StillHeld("after the stopped holder woke")
			next.GiveBack()
		},
	},
	{
		ID:      "process/stopped-before-write",
		Rule:    "A holder that is stopped between its last check and its write is stopped by the fence alone.",
		Surface: OnLock,
		Needs:   needsChild,
		Run: func(c *C) {
			ch, b, key := c.Child("child"), c.Peer("B"), c.Key("k")
			f := c.Fence("resource")
			h := ch.acquire(key)
			ch.send(command{Do: "check-then-write", Key: key, Wait: c.Times(0.2)})
			checked, ok := ch.event("checked", c.T)
			c.InTime(ok && checked.Err == "", "the holder's last check: got %q, want none", checked.Err)
			ch.signal(stopSignal)
			next := b.Acquire(key)
			c.raise(f, next.Token())
			c.write(f, next.Token(), "new")
			c.SleepUntil(h.got + c.Times(2))
			ch.signal(continueSignal)
			write, ok := ch.event("write", c.T)
			c.InTime(ok, "the stopped holder did not write within a ttl of waking")
			c.Must(write.Token == h.token, "it writes with token %v, want %v", write.Token, h.token)
			c.stale(f, write.Token)
			c.reads(f, next.Token(), "new")
			next.GiveBack()
		},
	},
	{
		ID:      "process/killed-holder",
		Rule:    "When a holder is killed exactly one of those who wait is granted the key within the ttl.",
		Surface: OnLock,
		Needs:   needsChild,
		Push:    Size{N: 5}, Full: Size{N: 30},
		Run: func(c *C) {
			ch, key := c.Child("child"), c.Key("k")
			h := ch.acquire(key)
			leases := make(chan *Lease, c.N())
			for i := range c.N() {
				p := c.Peer(fmt.Sprintf("waiter %d", i))
				c.Go(func() { leases <- p.Acquire(key) })
			}
			c.Sleep(c.T / 2) // it renews once
			killed := ch.kill()
			first := c.lease(leases)
			c.Must(first.Token() > h.token, "token behind the killed holder's: got %v, want more than %v", first.Token(), h.token)
			c.InTime(first.Got <= killed+c.T+c.Soon(), "a waiter was granted the key %v after the kill, want at most %v", first.Got-killed, c.T+c.Soon())
			first.HoldFor(c.T / 10)
			select {
			case second := <-leases:
				c.Must(!first.Sure(), "two waiters were granted the key, with tokens %v and %v", first.Token(), second.Token())
			default:
			}
			first.GiveBack()
			for range c.N() - 1 {
				c.lease(leases).GiveBack()
			}
		},
	},
	{
		ID:      "process/killed-leader",
		Rule:    "When the leader's process is killed another one leads within the ttl, and only one.",
		Surface: OnLock,
		Needs:   needsChild,
		Run: func(c *C) {
			ch, key := c.Child("child"), c.Key("k")
			ch.send(command{Do: "lead", Key: key})
			old, ok := ch.event("granted", c.T)
			c.InTime(ok, "the child does not lead a free key within a ttl")
			told, end := context.WithCancel(c.Ctx)
			defer end()
			terms, ended := make(chan *Lease, 10), make(chan error, 2)
			for _, p := range c.Peers(2) {
				c.Go(func() {
					ended <- p.L.Lead(told, key, func(ctx context.Context, l *locker.Lease) error {
						terms <- p.lease(key, 0, l)
						<-ctx.Done()
						return ctx.Err()
					})
				})
			}
			c.Sleep(c.T / 2) // it renews once
			killed := ch.kill()
			first := c.lease(terms)
			c.Must(first.Token() > old.Token, "token behind the killed leader's: got %v, want more than %v", first.Token(), old.Token)
			c.InTime(c.History.Now() <= killed+c.T+c.Soon(), "another leads %v after the kill, want at most %v", c.History.Now()-killed, c.T+c.Soon())
			first.HoldFor(c.T / 2)
			select {
			case second := <-terms:
				c.Must(!first.Sure(), "two lead, with tokens %v and %v", first.Token(), second.Token())
			default:
			}
			end()
			for range cap(ended) {
				c.Says(<-ended, context.Canceled, "Lead behind the end of its context")
			}
		},
	},
	{
		ID:      "process/free-on-exit",
		Rule:    "The key of a killed holder is free at once.",
		Level:   Extended,
		Surface: OnLock,
		Needs:   []Feature{driver.FeatureProcesses, FeatureChild, driver.FeatureFreeOnExit},
		Run: func(c *C) {
			ch, b, key := c.Child("child"), c.Peer("B"), c.Key("k")
			ch.acquire(key)
			killed := ch.kill()
			next := b.Acquire(key)
			c.InTime(next.Got <= killed+c.T/4+c.Soon(), "B was granted the key %v after the kill, want at most %v", next.Got-killed, c.T/4)
			next.GiveBack()
		},
	},
	{
		ID:      "process/killed-any-time",
		Rule:    "Whenever a client is killed (acquiring, holding, renewing, releasing) the key is granted to the next one within the ttl, with a greater token.",
		Surface: OnLock,
		Needs:   needsChild,
		Push:    Size{N: 6}, Full: Size{N: 500},
		Run: func(c *C) {
			const lanes = 3
			c.Each(lanes, func(lane int) {
				b, key := c.Peer(fmt.Sprintf("B%d", lane)), c.Key(fmt.Sprint(lane))
				var last driver.Token
				for i := range c.N() / lanes {
					ch := c.Child(fmt.Sprintf("child %d.%d", lane, i))
					hold := time.Duration(0) // it acquires and releases all the time
					if i%2 == 1 {
						hold = c.Times(0.5) // it renews
					}
					ch.send(command{Do: "loop", Key: key, Wait: hold})
					_, ok := ch.event("granted", c.Times(2))
					c.InTime(ok, "the child was not granted the key within 2 ttls")
					c.Sleep(time.Duration(rand.Int64N(int64(c.T / 2))))
					killed := ch.kill()
					for _, t := range ch.granted() { // all that it told before it died
						c.Must(t > last, "token of the child: got %v, want more than %v", t, last)
						last = t
					}
					next := b.Acquire(key)
					c.InTime(next.Got <= killed+c.T+c.Soon(), "B was granted the key %v after the kill, want at most %v", next.Got-killed, c.T+c.Soon())
					c.Must(next.Token() > last, "token behind the killed child's: got %v, want more than %v", next.Token(), last)
					last = next.Token()
					next.GiveBack()
				}
			})
		},
	},
	{
		ID:      "process/tokens-go-on",
		Rule:    "Tokens go on rising when the processes that knew them have ended.",
		Surface: OnLock,
		Needs:   needsChild,
		Push:    Size{N: 3}, Full: Size{N: 10},
		Run: func(c *C) {
			key := c.Key("k")
			var last driver.Token
			for i := range c.N() {
				ch := c.Child(fmt.Sprintf("child %d", i))
				h := ch.acquire(key)
				c.Must(h.token > last, "token: got %v, want more than %v", h.token, last)
				last = h.token
				if r := ch.do(command{Do: "release", Key: key}); r.err() != nil {
					c.fail(ByRule, soft(r.err()), "the child releases: got %v, want nil", r.err())
				}
				ch.kill()
			}
		},
	},
}
