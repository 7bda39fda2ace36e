package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/faultlock"
	"github.com/fencelock/locker/internal/seam"
)

// beliefLasts is how long a holder may believe in a grant of that ttl, from its send.
func beliefLasts(ttl time.Duration) time.Duration {
	return ttl - ttl/100 - min(ttl/10, time.Second)
}

// expiryCases are about grants that end by the clock.
var expiryCases = []Case{
	{
		ID:      "expiry/dead-holder",
		Rule:    "The key of a holder that is heard of no more is given to a waiter when its ttl has passed: not before, and soon after.",
		Surface: OnDriver,
		Needs:   []Feature{FeatureCore},
		Run: func(c *C) {
			a, b, key := c.Client("A"), c.Peer("B"), c.Key("k")
			g := a.Grant(key)
			end := c.History.At(g.Sent) + g.Left
			next := b.Acquire(key)
			c.Must(next.Got >= end-g.Left/100, "B was granted the key %v before A's time was over", end-next.Got)
			c.InTime(next.Got <= end+c.Soon(), "B was granted the key %v after A's time was over, want at most %v", next.Got-end, c.Soon())
			c.Must(next.Token() > g.Token, "token behind the expiry: got %v, want more than %v", next.Token(), g.Token)
			next.GiveBack()
		},
	},
	{
		ID:      "expiry/belief-ends-first",
		Rule:    "A holder that does not renew stops believing before anybody else is granted the key.",
		Surface: OnLock,
		Run: func(c *C) {
			a, b, key := c.Peer("A"), c.Peer("B"), c.Key("k")
			l := a.Try(key, locker.WithManualRenew())
			ctx, cancel := l.Context(c.Ctx)
			defer cancel()
			ended := make(chan time.Duration, 1)
			c.Go(func() {
				<-ctx.Done()
				ended <- c.History.Now()
			})
			done := make(chan *Lease, 1)
			c.Go(func() { done <- b.Acquire(key) })
			last := l.UntilOver(c.Times(1.5))
			next := c.lease(done)
			c.Must(last < next.Got, "A was sure of token %v at %v, and B was granted the key at %v", l.Token(), last, next.Got)
			l.Unrenewed()
			c.Must(last <= l.Got+beliefLasts(l.TTL()), "A was sure for %v, want at most %v", last-l.Got, beliefLasts(l.TTL()))
			c.InTime(<-ended <= next.Got, "the context of A's lease ended after B was granted the key")
			c.Must(errors.Is(context.Cause(ctx), driver.ErrLost), "its cause: got %v, want %v", context.Cause(ctx), driver.ErrLost)
			next.GiveBack()
		},
	},
	{
		ID:      "expiry/renew-too-late",
		Rule:    "A renewal after the expiry is ErrLost and revives nothing, whether the key is free or taken.",
		Surface: OnDriver,
		Run: func(c *C) {
			a, b, third, key := c.Client("A"), c.Client("B"), c.Client("C"), c.Key("k")
			g := a.Grant(key)
			c.SleepUntil(c.History.At(g.Sent) + g.Left + c.Soon())
			_, err := a.Renewed(g)
			c.Says(err, driver.ErrLost, "a renewal after the expiry")
			next := b.Grant(key)
			_, err = a.Renewed(g)
			c.Says(err, driver.ErrLost, "a renewal after the takeover")
			third.Refused(key, b, next)
		},
	},
	{
		ID:      "expiry/release-too-late",
		Rule:    "A release after the takeover is ErrLost, and the new holder keeps the key.",
		Surface: OnDriver,
		Run: func(c *C) {
			a, b, third, key := c.Client("A"), c.Client("B"), c.Client("C"), c.Key("k")
			g := a.Grant(key)
			c.SleepUntil(c.History.At(g.Sent) + g.Left + c.Soon())
			next := b.Grant(key)
			c.Says(a.Freed(g), driver.ErrLost, "A releases")
			third.Refused(key, b, next)
			if _, err := b.Renewed(next); err != nil {
				c.Latef("B renews behind it: got %v, want nil", err)
			}
		},
	},
	{
		ID:      "expiry/lost-release",
		Rule:    "Releasing a lease that was lost is ErrLost, and touches nobody.",
		Surface: OnLock,
		Run: func(c *C) {
			a, b, key := c.Peer("A"), c.Peer("B"), c.Key("k")
			l := a.Try(key, locker.WithManualRenew())
			l.UntilOver(c.Times(1.5))
			next := b.Acquire(key)
			err := l.Release(c.Ctx)
			c.Must(errors.Is(err, driver.ErrLost), "A releases: got %v, want %v", err, driver.ErrLost)
			c.Must(errors.Is(l.Renew(c.Ctx), driver.ErrLost), "A renews: got nil or another error, want %v", driver.ErrLost)
			next.StillHeld("after A's late calls")
			next.GiveBack()
		},
	},
	{
		ID:      "expiry/not-freed-early",
		Rule:    "A lease that its holder lost by the clock keeps the key until its deadline.",
		Surface: OnLock,
		Run: func(c *C) {
			a, b, key := c.Peer("A"), c.Client("B"), c.Key("k")
			l := a.Try(key, locker.WithManualRenew())
			g := l.Grant()
			last := l.UntilOver(c.Times(1.5))
			ref := driver.Grant{Request: g.Request, Token: g.Token, Sent: g.Sent, Left: g.Left}
			for a.InForce(ref) {
				_, err := b.TryOf(b.Request(key))
				c.Must(err != nil || !a.InForce(ref), "B was granted the key while token %v of A was in force", ref.Token)
				if err == nil {
					break // right behind the deadline
				}
				c.Sleep(c.T / 100)
			}
			deadline := c.History.At(g.Sent) + g.Left
			l.Unrenewed()
			c.Must(last < deadline, "the holder was sure until %v, past its deadline %v", last, deadline)
		},
	},
	{
		ID:      "expiry/long-before-short",
		Rule:    "A contender with a short ttl does not take a key before its holder's long one is over.",
		Surface: OnDriver,
		Needs:   []Feature{FeatureCore},
		Push:    Size{TTLs: 5}, Full: Size{TTLs: 15},
		Run: func(c *C) {
			a, b, key := c.Client("A"), c.Peer("B"), c.Key("k")
			r := a.Request(key)
			r.TTL = c.For()
			g := a.GrantOf(r)
			end := c.History.At(g.Sent) + g.Left
			next := b.Acquire(key)
			c.Must(next.Got >= end-g.Left/100, "B was granted the key %v before A's %v were over", end-next.Got, g.TTL)
			c.InTime(next.Got <= end+c.Soon(), "B was granted the key %v after A's time was over, want at most %v", next.Got-end, c.Soon())
			next.GiveBack()
		},
	},
	{
		ID:      "expiry/odd-ttl",
		Rule:    "A grant lasts as long as it says, also with a ttl that is no round number.",
		Surface: OnDriver,
		Needs:   []Feature{FeatureCore},
		Run: func(c *C) {
			a, b, key := c.Client("A"), c.Peer("B"), c.Key("k")
			r := a.Request(key)
			r.TTL = c.T + c.Times(0.43) + 7*time.Millisecond
			g := a.GrantOf(r)
			c.Must(g.TTL >= r.TTL && g.Left <= g.TTL, "a grant for %v: got a ttl of %v with %v left, want no less, and no more left", r.TTL, g.TTL, g.Left)
			end := c.History.At(g.Sent) + g.Left
			next := b.Acquire(key)
			c.Must(next.Got >= end-g.Left/100, "B was granted the key %v before A's %v were over", end-next.Got, g.Left)
			next.GiveBack()
		},
	},
	{
		ID:      "expiry/slow-grant",
		Rule:    "A lease counts from the send of its request: a slow answer makes it shorter.",
		Surface: OnLock,
		Run: func(c *C) {
			a, key := c.Peer("A"), c.Key("k")
			delay := c.Times(0.2)
			a.Faults(fmt.Sprintf("try#1=delayback:%v", delay))
			l := a.Try(key, locker.WithManualRenew())
			last := l.UntilOver(c.Times(1.5))
			most := beliefLasts(l.TTL()) - delay
			l.Unrenewed()
			c.Must(last-l.Got <= most, "behind an answer that took %v the holder was sure for %v, want at most %v", delay, last-l.Got, most)
			c.InTime(last-l.Got >= most-c.T/8, "the holder was sure for %v, want %v", last-l.Got, most)
		},
	},
	{
		ID:      "expiry/too-slow-grant",
		Rule:    "A grant whose answer comes after its end is no lease, is never called held, and is given back.",
		Surface: OnLock,
		Run: func(c *C) {
			a, b, key := c.Peer("A"), c.Peer("B"), c.Key("k")
			a.Faults(fmt.Sprintf("try=delayback:%v; release#1=before", c.Times(1.2)))
			l, err := a.TryErr(key)
			c.Must(l == nil, "TryAcquire: got a lease, want an error")
			c.Must(!errors.Is(err, driver.ErrHeld), "TryAcquire of a free key: got %v, want %v", err, driver.ErrAmbiguous)
			c.InTime(errors.Is(err, driver.ErrAmbiguous), "TryAcquire: got %v, want %v", err, driver.ErrAmbiguous)
			begun := c.History.Now()
			next := b.Acquire(key)
			took := next.Got - begun
			c.InTime(took <= c.T/4+c.Soon(), "the key was free %v after the failure, want at most %v", took, c.T/4+c.Soon())
			next.GiveBack()
		},
	},
	{
		ID:      "expiry/re-sent-grant",
		Rule:    "A lease whose request was sent again counts from the first send.",
		Surface: OnLock,
		Run: func(c *C) {
			a, key := c.Peer("A"), c.Key("k")
			a.Faults("try#1=hangback") // its call ends a quarter of the ttl later
			l := a.Try(key, locker.WithManualRenew())
			sent := a.FirstSend(l.Grant().Attempt)
			last := l.UntilOver(c.Times(1.5))
			l.Unrenewed()
			c.Must(last-sent <= beliefLasts(l.TTL()), "the holder was sure until %v after the first send, want at most %v", last-sent, beliefLasts(l.TTL()))
		},
	},
	{
		ID:      "expiry/failure-behind-lost-reply",
		Rule:    "A failure of a request that is sent again does not settle the send whose reply was lost.",
		Surface: OnLock,
		Run: func(c *C) {
			a, b, key := c.Peer("A"), c.Peer("B"), c.Key("k")
			a.Faults("try#1=after; try#2=before")
			l, err := a.TryErr(key)
			c.Must(err == nil || driver.IsAmbiguous(err) || errors.Is(err, driver.ErrLost), "TryAcquire: got %v, want a lease or %v", err, driver.ErrAmbiguous)
			c.InTime(err == nil || errors.Is(err, driver.ErrAmbiguous), "TryAcquire: got %v, want a lease or %v", err, driver.ErrAmbiguous)
			if err == nil {
				l.GiveBack()
			}
			begun := c.History.Now()
			next := b.Acquire(key)
			c.InTime(next.Got-begun <= c.T/4+c.Soon(), "the key was free %v later, want at most %v: nothing was undone", next.Got-begun, c.T/4)
			next.GiveBack()
		},
	},
	{
		ID:      "expiry/own-undo",
		Rule:    "A key that only a failed attempt of this process still has is not called held.",
		Surface: OnLock,
		Run: func(c *C) {
			a, key := c.Peer("A"), c.Key("k")
			a.Faults("try=after; release=before")
			_, err := a.TryErr(key)
			c.InTime(errors.Is(err, driver.ErrAmbiguous), "TryAcquire without answers: got %v, want %v", err, driver.ErrAmbiguous)
			if !c.Eventually(c.T/2, func() bool { return a.Sent(faultlock.Release) > 0 }) {
				c.Latef("no undo was sent within T/2")
			}
			a.Faults("release=before")
			_, err = a.TryErr(key)
			c.Must(!errors.Is(err, driver.ErrHeld), "TryAcquire beside its own undo: got %v, want %v", err, driver.ErrAmbiguous)
			c.Eventually(c.T, func() bool { return a.Fired() > 0 }) // the undo is sent again; the end of the case asks
		},
	},
	{
		ID:      "expiry/suspend",
		Rule:    "Time that the machine was suspended counts: Valid knows at once, and the context ends within a tenth of the ttl.",
		Surface: OnLock,
		Run: func(c *C) {
			var leases [2]*Lease
			var peers [2]*Peer
			for i, name := range []string{"A", "B"} {
				cl := c.Client(name)
				cl.info.PackageTime = false
				peers[i] = cl.Peer(nil)
				leases[i] = peers[i].Try(c.Key(name))
			}
			ctx, cancel := leases[1].Context(c.Ctx)
			defer cancel()
			for _, p := range peers {
				seam.SkewBoot(p.L, c.Times(10))
			}
			begun := c.History.Now()
			c.Must(!leases[0].Valid(), "Valid behind a suspend of 10 T: got true, want false")
			select {
			case <-ctx.Done():
			case <-time.After(c.T):
				c.Failf("the context did not end within a ttl of a suspend of 10 T")
			}
			took := c.History.Now() - begun
			c.InTime(took <= c.T/10+c.Soon(), "the context ended %v after the suspend, want at most %v", took, c.T/10)
		},
	},
}
