package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/faultlock"
)

var needsNetwork = []Feature{FeatureNetwork}

// sick is a Locker whose network can be harmed.
type sick struct {
	*Peer
	net Network
	c   *C
}

func (c *C) sick(name string) sick {
	cl, n := c.Networked(name)
	return sick{cl.Peer(nil), n, c}
}

// heal makes the network sound again. The fault must have harmed something.
func (s sick) heal() {
	fired := s.net.Fired()
	s.net.Set(Sound, 0)
	if fired == 0 {
		s.c.fail(BySetup, true, "the network of %s harmed nothing: the case has tested nothing", s.name)
	}
}

// networkCases are about a network that fails between one client and its server.
var networkCases = []Case{
	{
		ID:      "network/lost-request",
		Rule:    "An acquire whose request is lost fails in time, and no grant appears later.",
		Surface: OnLock,
		Needs:   needsNetwork,
		Run: func(c *C) {
			a, b, key := c.sick("A"), c.Peer("B"), c.Key("k")
			a.net.Set(LoseRequests, 0)
			begun := c.History.Now()
			_, err := a.TryErr(key)
			took := c.History.Now() - begun
			a.heal()
			c.Must(err != nil && !errors.Is(err, driver.ErrHeld), "TryAcquire: got %v, want an error that is not %v", err, driver.ErrHeld)
			c.InTime(took <= c.T+c.Soon(), "it took %v, want at most %v", took, c.T)
			next := b.Acquire(key)
			if !next.HoldFor(c.Times(0.7)) {
				c.Latef("B's lease is over: got %v, want it held", next.Err())
			}
			next.GiveBack()
		},
	},
	{
		ID:      "network/lost-reply-of-acquire",
		Rule:    "An acquire whose reply is lost ends in one grant, or as ambiguous with the key free within a ttl; it is never refused because of itself.",
		Surface: OnLock,
		Needs:   needsNetwork,
		Run: func(c *C) {
			for _, heals := range []float64{0.1, 2} { // before it gives up, and after
				a, b, key := c.sick("A"), c.Peer("B"), c.Key(fmt.Sprint(heals))
				a.net.Set(LoseReplies, 0)
				type answer struct {
					l   *Lease
					err error
				}
				answers := make(chan answer, 1)
				c.Go(func() {
					l, err := a.TryErr(key)
					answers <- answer{l, err}
				})
				c.Sleep(c.Times(heals))
				a.heal()
				got := <-answers
				c.alive()
				c.Must(!errors.Is(got.err, driver.ErrHeld), "TryAcquire of a free key: got %v", got.err)
				c.InTime(got.err == nil || errors.Is(got.err, driver.ErrAmbiguous), "TryAcquire: got %v, want a lease or %v", got.err, driver.ErrAmbiguous)
				if got.err == nil {
					got.l.StillHeld("behind a lost reply")
					got.l.GiveBack()
				}
				begun := c.History.Now()
				next := b.Acquire(key)
				c.InTime(next.Got-begun <= c.T+c.Soon(), "the key was free %v later, want at most %v", next.Got-begun, c.T)
				next.GiveBack()
			}
		},
	},
	{
		ID:      "network/lost-reply-of-renewal",
		Rule:    "A lease goes on, with its token, when the reply of a renewal is lost and the network heals.",
		Surface: OnLock,
		Needs:   needsNetwork,
		Run: func(c *C) {
			a := c.sick("A")
			l := a.Try(c.Key("k"))
			token := l.Token()
			a.net.Set(LoseReplies, 0)
			before := a.Sent(faultlock.Renew)
			if !c.Eventually(c.T/2, func() bool { return a.Sent(faultlock.Renew) > before }) {
				c.Latef("no renewal within T/2")
			}
			c.Eventually(c.T/4, func() bool { return a.net.Fired() > 0 }) // the end of the case asks
			a.heal()
			if !l.HoldFor(c.Times(1.2)) {
				c.Latef("the lease is over: got %v, want it held", l.Err())
			}
			c.Must(l.Token() == token, "its token: got %v, want %v", l.Token(), token)
			l.GiveBack()
		},
	},
	{
		ID:      "network/lost-reply-of-release",
		Rule:    "A release whose reply is lost succeeds, and the key is free at once.",
		Surface: OnLock,
		Needs:   needsNetwork,
		Run: func(c *C) {
			a, b, key := c.sick("A"), c.Peer("B"), c.Key("k")
			l := a.Try(key)
			a.net.Set(LoseReplies, 0)
			done := make(chan error, 1)
			c.Go(func() { done <- l.Give() })
			c.Sleep(c.T / 20)
			next := b.Acquire(key)
			c.InTime(next.Got-next.Begun <= c.T/10+c.Soon(), "the key was free %v after the release, want at once", next.Got-next.Begun)
			a.heal()
			err := <-done
			c.alive()
			c.Must(!errors.Is(err, driver.ErrLost), "Release: got %v, want nil", err)
			c.InTime(err == nil, "Release: got %v, want nil", err)
			next.StillHeld("behind the release that was sent again")
			next.GiveBack()
		},
	},
	{
		ID:      "network/cut-off",
		Rule:    "A holder that is cut off ends in time, another is granted the key, and the healed one touches nobody.",
		Surface: OnLock,
		Needs:   needsNetwork,
		Run: func(c *C) {
			a, b, key := c.sick("A"), c.Peer("B"), c.Key("k")
			l := a.Try(key)
			a.net.Set(BlackHole, 0)
			cut := c.History.Now()
			done := make(chan *Lease, 1)
			c.Go(func() { done <- b.Acquire(key) })
			last := l.UntilOver(c.Times(1.5))
			c.Must(last <= cut+beliefLasts(l.TTL()), "A was sure for %v behind the cut, want at most %v", last-cut, beliefLasts(l.TTL()))
			next := c.lease(done)
			c.InTime(next.Got <= cut+c.T+c.Soon(), "B was granted the key %v behind the cut, want at most %v", next.Got-cut, c.T)
			c.SleepUntil(cut + c.Times(3))
			a.heal()
			c.Must(errors.Is(l.Renew(c.Ctx), driver.ErrLost), "the healed holder renews: got nil or another error, want %v", driver.ErrLost)
			err := l.Give()
			c.Must(errors.Is(err, driver.ErrLost), "it releases: got %v, want %v", err, driver.ErrLost)
			if !next.HoldFor(c.T / 2) {
				c.Latef("B's lease is over: got %v, want it held", next.Err())
			}
			next.GiveBack()
		},
	},
	{
		ID:      "network/mute",
		Rule:    "A holder that hears no answers ends in time although the backend keeps extending, and the key is free a ttl later.",
		Surface: OnLock,
		Needs:   needsNetwork,
		Run: func(c *C) {
			a, b, key := c.sick("A"), c.Peer("B"), c.Key("k")
			l := a.Try(key)
			a.net.Set(Mute, 0)
			cut := c.History.Now()
			done := make(chan *Lease, 1)
			c.Go(func() { done <- b.Acquire(key) })
			last := l.UntilOver(c.Times(1.5))
			c.Must(last <= cut+beliefLasts(l.TTL()), "A was sure for %v behind the cut, want at most %v", last-cut, beliefLasts(l.TTL()))
			next := c.lease(done)
			c.InTime(next.Got <= last+c.T+c.Soon(), "B was granted the key %v after A stopped, want at most %v", next.Got-last, c.T)
			a.heal()
			next.GiveBack()
		},
	},
	{
		ID:      "network/black-hole",
		Rule:    "An Acquire into a black hole returns when its context ends.",
		Surface: OnLock,
		Needs:   needsNetwork,
		Run: func(c *C) {
			a := c.sick("A")
			a.net.Set(BlackHole, 0)
			ctx, cancel := context.WithTimeout(c.Ctx, c.T/2)
			defer cancel()
			begun := c.History.Now()
			_, err := a.AcquireErr(ctx, c.Key("k"))
			took := c.History.Now() - begun
			a.heal()
			c.Must(err != nil && !errors.Is(err, driver.ErrHeld), "Acquire: got %v, want an error that is not %v", err, driver.ErrHeld)
			c.InTime(took <= c.T/2+c.Soon(), "it took %v, want at most %v", took, c.T/2+c.Soon())
		},
	},
	{
		ID:      "network/unreachable",
		Rule:    "A client that cannot reach its server says so at once, in an error that has a type and is definite.",
		Level:   Extended,
		Surface: OnDriver,
		Needs:   []Feature{FeatureUnreachable},
		Run: func(c *C) {
			for wrong, open := range c.h.Faults.Unreachable {
				begun := c.History.Now()
				ctx, cancel := context.WithTimeout(c.Ctx, c.T/2)
				d, err := open(ctx)
				if err == nil {
					_, err = d.TryAcquire(ctx, driver.Request{Key: c.Key(wrong), Attempt: driver.NewAttempt(), TTL: c.T, Owner: "nobody"})
					_ = d.Close()
				}
				cancel()
				took := c.History.Now() - begun
				c.Must(err != nil, "%s: got nil, want an error", wrong)
				c.InTime(took <= c.T/2+c.Soon(), "%s: it took %v, want at most %v", wrong, took, c.T/2+c.Soon())
				c.Must(!driver.IsAmbiguous(err), "%s: got %v, want a definite error", wrong, err)
				c.Must(errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrUnsupported), "%s: got %v, want %v or %v",
					wrong, err, driver.ErrUnavailable, driver.ErrUnsupported)
			}
		},
	},
	{
		ID:      "network/copy-after-release",
		Rule:    "A copy of an acquire that arrives behind the release keeps the key for a ttl at most.",
		Surface: OnLock,
		Needs:   needsNetwork,
		Run: func(c *C) {
			a, b, key := c.sick("A"), c.Peer("B"), c.Key("k")
			late := c.Times(0.3)
			a.net.Set(Copies, late)
			l := a.Try(key)
			begun := l.Begun
			l.GiveBack()
			a.heal()
			c.SleepUntil(begun + late + c.T/20)
			next := b.Acquire(key)
			c.InTime(next.Got <= begun+late+c.T/20+c.T+c.Soon(), "the key was free %v after the copy came, want at most %v", next.Got-begun-late, c.T)
			c.Must(next.Token() > l.Token(), "token behind it: got %v, want more than %v", next.Token(), l.Token())
			next.GiveBack()
		},
	},
	{
		ID:      "network/resets",
		Rule:    "With connections that are reset at random the history stays legal.",
		Surface: OnLock,
		Needs:   needsNetwork,
		Load:    true,
		Push:    Size{N: 8, TTLs: 1.5}, Full: Size{N: 8, TTLs: 150},
		Run: func(c *C) { shaken(c, Resets, 0) },
	},
	{
		ID:      "network/delays",
		Rule:    "With requests and replies that are late at random, up to beyond the ttl, the history stays legal and beliefs are disjoint.",
		Surface: OnLock,
		Needs:   needsNetwork,
		Load:    true,
		Push:    Size{N: 4, TTLs: 3}, Full: Size{N: 8, TTLs: 150},
		Run: func(c *C) { shaken(c, Delays, c.Times(2)) },
	},
}

// shaken lets clients acquire, hold and release over a network that fails at random. Only
// the history is judged. d is for Delays: they are short mostly, and up to d at times.
func shaken(c *C, f NetworkFault, d time.Duration) {
	key := c.Key("k")
	c.Check.Late = d
	peers, fired, served := make([]sick, c.N()), make([]int, c.N()), make([]int, c.N())
	for i := range peers {
		peers[i] = c.sick(fmt.Sprintf("client %d", i))
	}
	end := c.History.Now() + c.For()
	c.Each(c.N(), func(i int) {
		p := peers[i]
		p.net.Set(f, d)
		shake := func() {
			if f != Delays {
				return
			}
			fired[i] += p.net.Fired() // counting begins anew with each Set
			most := d / 100
			if rand.IntN(6) == 0 {
				most = d
			}
			p.net.Set(f, most)
		}
		for round := 0; c.History.Now() < end; round++ {
			shake()
			ctx, cancel := context.WithTimeout(c.Ctx, min(end-c.History.Now()+1, c.T/2))
			l, err := p.AcquireErr(ctx, key)
			cancel()
			if err != nil {
				c.Sleep(time.Millisecond)
				continue
			}
			served[i]++
			l.HoldFor(time.Duration(1+(i+round)%10) * c.T / 100)
			shake()
			_ = l.Give()      // what came of it is in the history
			c.Sleep(c.T / 20) // a waiter that polls needs a chance
		}
		fired[i] += p.net.Fired()
		p.net.Set(Sound, 0)
	})
	sum := 0
	for _, n := range fired {
		sum += n
	}
	c.InTime(sum > 0, "the networks harmed nothing: the case has tested nothing")
	c.busy(served, max(3, int(c.size.TTLs/3)))
}
