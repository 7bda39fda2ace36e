package conformance

import (
	"context"
	"errors"

	"github.com/fencelock/locker/driver"
)

// serverCases are about a server that stops, restarts and dies.
var serverCases = []Case{
	{
		ID:      "server/short-stop",
		Rule:    "A server that stands still for half a ttl costs time and no lease.",
		Surface: OnLock,
		Needs:   []Feature{FeatureStop},
		Load:    true,
		Run: func(c *C) {
			a := c.Peer("A")
			l := a.Try(c.Key("k"))
			c.stopped(func() { l.HoldFor(c.T / 2) })
			if !l.HoldFor(c.Times(1.2)) {
				c.Latef("the lease is over: got %v, want it held", l.Err())
			}
			l.GiveBack()
		},
	},
	{
		ID:      "server/long-stop",
		Rule:    "When a server stands still beyond the ttl holders end in time; afterwards one at most is granted the key, and no token is used twice.",
		Surface: OnLock,
		Needs:   []Feature{FeatureStop},
		Load:    true,
		Push:    Size{TTLs: 1.5}, Full: Size{TTLs: 3},
		Run: func(c *C) {
			a, b, key := c.Peer("A"), c.Peer("B"), c.Key("k")
			l := a.Try(key)
			done := make(chan *Lease, 1)
			c.Go(func() { done <- b.Acquire(key) })
			c.Sleep(c.T / 10)
			c.stopped(func() {
				begun := c.History.Now() // to stop a server takes a moment, in which it may still renew
				last := l.UntilOver(c.For())
				c.Must(last <= begun+beliefLasts(l.TTL()), "A was sure for %v behind the stop, want at most %v", last-begun, beliefLasts(l.TTL()))
				c.SleepUntil(begun + c.For())
			})
			next := c.lease(done)
			c.Must(next.Token() > l.Token(), "token behind the stop: got %v, want more than %v", next.Token(), l.Token())
			if !next.HoldFor(c.Times(1.2)) {
				c.Latef("B's lease is over: got %v, want it held", next.Err())
			}
			next.GiveBack()
		},
	},
	{
		ID:      "server/restart",
		Rule:    "Tokens go on rising when the server is restarted in an orderly way.",
		Surface: OnLock,
		Needs:   []Feature{FeatureRestart},
		Load:    true,
		Run:     func(c *C) { rebooted(c, c.h.Faults.Restart, true) },
	},
	{
		ID:      "server/killed",
		Rule:    "When the server is killed its tokens go on as declared; where they do not, whoever saw a greater one notices.",
		Surface: OnLock,
		Needs:   []Feature{FeatureKill},
		Load:    true,
		Run:     func(c *C) { rebooted(c, c.h.Faults.Kill, c.Info.Tokens >= driver.Durable) },
	},
}

// stopped runs f while the server stands still.
func (c *C) stopped(f func()) {
	c.watch.hold()
	defer c.watch.resume()
	if err := c.h.Faults.Stop(c.Ctx); err != nil {
		c.Setupf("stop the server: %v", err)
	}
	defer func() {
		if err := c.h.Faults.Continue(context.WithoutCancel(c.Ctx)); err != nil {
			c.Setupf("continue the server: %v", err)
		}
	}()
	f()
}

// rebooted lets the server go and come back, and looks at the tokens.
func rebooted(c *C, reboot func(context.Context) error, lasting bool) {
	a, waiter, key := c.Peer("A"), c.Peer("waiter"), c.Key("k")
	c.Check.MayForget = !lasting
	var l *Lease
	for range 5 {
		l = a.Try(key)
		l.GiveBack()
	}
	l = a.Try(key)
	waiter.Refused(key, l)
	last := l.Token()
	l.GiveBack()
	if err := reboot(c.Ctx); err != nil {
		c.Setupf("restart the server: %v", err)
	}
	// ask tries until the client has found the server again.
	ask := func(p *Peer) (got *Lease, err error) {
		c.Eventually(c.Times(10), func() bool {
			got, err = p.TryErr(key)
			return !soft(err) && !errors.Is(err, driver.ErrHeld)
		})
		return got, err
	}
	for _, p := range []*Peer{a, waiter} {
		begun := c.History.Now()
		got, err := ask(p)
		took := c.History.Now() - begun
		c.InTime(p == a || took <= c.T/2, "%s was answered %v after it had asked, want at most %v: a refused grant keeps the key", p.name, took, c.T/2)
		switch {
		case err == nil:
			c.Must(got.Token() > last, "%s, who saw token %v, was granted token %v without a word", p.name, last, got.Token())
			last = got.Token()
			got.GiveBack()
		case lasting:
			c.fail(ByRule, soft(err), "%s asks behind the restart: got %v, want a token greater than %v", p.name, err, last)
		default:
			c.InTime(!soft(err), "%s asks behind the restart: got %v, want an answer", p.name, err)
			c.Must(errors.Is(err, driver.ErrTokenRegression), "%s, who saw token %v: got %v, want %v", p.name, last, err, driver.ErrTokenRegression)
		}
	}
	if lasting {
		return
	}
	for range 2 { // it goes away by a decision, not by asking again
		if got, err := ask(a); err == nil { // it kept its tokens, though it does not declare that
			got.GiveBack()
			break
		} else if !errors.Is(err, driver.ErrTokenRegression) {
			c.fail(ByRule, soft(err), "A asks again: got %v, want %v", err, driver.ErrTokenRegression)
		}
	}
	a.L.AcceptTokenReset(key)
	got, err := ask(a)
	if err != nil {
		c.fail(ByRule, soft(err), "A, who accepted the reset: got %v, want a lease", err)
	}
	if c.Info.Has(driver.FeatureFloor) {
		c.Must(got.Token() > last, "token behind the accepted reset: got %v, want more than %v", got.Token(), last)
	}
	got.GiveBack()
}
