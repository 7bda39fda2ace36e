package conformance

import (
	"context"
	"errors"

	"github.com/fencelock/locker/driver"
)

// requestCases are the sequential rules of single requests.
var requestCases = []Case{
	{
		ID:      "request/independent-clients",
		Rule:    "Clients are independent: closing one ends its calls, none of its grants, and touches no other client.",
		Surface: OnDriver,
		Run: func(c *C) {
			a, b := c.Client("A"), c.Client("B")
			ga, gb := a.Grant(c.Key("a")), b.Grant(c.Key("b"))
			if err := a.Close(); err != nil {
				c.Failf("Close: got %v, want nil", err)
			}
			_, err := a.TryOf(a.Request(c.Key("c")))
			c.Must(errors.Is(err, driver.ErrClosed), "a call of a closed client: got %v, want %v", err, driver.ErrClosed)
			b.Refused(c.Key("a"), a, ga)
			_, err = b.Renewed(gb)
			c.Must(!errors.Is(err, driver.ErrClosed), "client B, made apart from A: got %v behind the Close of A", err)
			if err != nil {
				c.Latef("B renews: got %v, want nil", err)
			}
			if err := b.Freed(gb); err != nil {
				c.fail(ByRule, soft(err), "B releases: got %v, want nil", err)
			}
		},
	},
	{
		ID:      "request/refusal",
		Rule:    "A refused try answers a *HeldError with the holder's token and attempt, and an end that is not too far.",
		Surface: OnDriver,
		Run: func(c *C) {
			a, b, key := c.Client("A"), c.Client("B"), c.Key("k")
			g := a.Grant(key)
			held := b.Refused(key, a, g)
			c.Must(held.Token == g.Token || held.Token == 0, "Token: got %v, want %v", held.Token, g.Token)
			c.Must(held.Attempt == g.Attempt || held.Attempt.IsZero(), "Attempt: got %v, want %v", held.Attempt, g.Attempt)
			c.Must(held.ExpiresIn <= g.TTL+c.Slack, "ExpiresIn: got %v, want at most %v", held.ExpiresIn, g.TTL+c.Slack)
		},
	},
	{
		ID:      "request/re-sent-try",
		Rule:    "A try that is sent again returns the grant and the expiry of its first send, and extends nothing.",
		Surface: OnDriver,
		Run: func(c *C) {
			a, b, key := c.Client("A"), c.Peer("B"), c.Key("k")
			r := a.Request(key)
			g := a.GrantOf(r)
			c.Sleep(c.Times(0.3))
			ctx, cancel := a.call()
			again, err := a.TryAcquire(ctx, r)
			cancel()
			if err != nil {
				c.fail(ByRule, driver.IsAmbiguous(err) || isErr(err, driver.ErrUnavailable), "the second send: got %v, want the first one's grant", err)
			}
			if !a.InForce(g) { // it may have made another grant, as a request that arrives late does
				c.Check.Late = c.Times(hangLimit)
				c.Latef("the second send was answered when the first one's grant was over")
			}
			c.Must(again.Token == g.Token, "token of the second send: got %v, want %v", again.Token, g.Token)
			end := c.History.At(g.Sent) + g.Left
			if !again.Sent.IsZero() {
				got := c.History.At(again.Sent) + again.Left
				c.InTime(got <= end+c.Soon(), "the second send promises the key until %v, and the first until %v", got, end)
			}
			next := b.Acquire(key)
			c.InTime(next.Got <= end+c.Soon(), "the next grant came %v after the first send's end: the second send extended it", next.Got-end)
			next.GiveBack()
		},
	},
	{
		ID:      "request/release-by-request",
		Rule:    "A release finds the grant by its Request alone, without token and state.",
		Surface: OnDriver,
		Run: func(c *C) {
			a, b, key := c.Client("A"), c.Client("B"), c.Key("k")
			g := a.Grant(key)
			if err := a.Freed(driver.Grant{Request: g.Request}); err != nil {
				c.fail(ByRule, soft(err) && !a.InForce(g) || driver.IsAmbiguous(err), "Release: got %v, want nil", err)
			}
			next := b.Grant(key)
			c.Must(next.Token > g.Token, "token behind the release: got %v, want more than %v", next.Token, g.Token)
			c.Says(a.Freed(driver.Grant{Request: g.Request}), driver.ErrLost, "a second release")
			b.Refused(key, b, next)
		},
	},
	{
		ID:      "request/released-is-over",
		Rule:    "A grant that was released can be neither renewed nor released again, whether the key is free or taken.",
		Surface: OnDriver,
		Run: func(c *C) {
			a, b, key := c.Client("A"), c.Client("B"), c.Key("k")
			g := a.Grant(key)
			if err := a.Freed(g); err != nil {
				c.fail(ByRule, soft(err), "Release: got %v, want nil", err)
			}
			over := func(when string) {
				_, err := a.Renewed(g)
				c.Says(err, driver.ErrLost, "a renewal %s", when)
				c.Says(a.Freed(g), driver.ErrLost, "a release %s", when)
			}
			over("behind the release")
			next := b.Grant(key)
			over("behind the next grant")
			a.Refused(key, b, next)
		},
	},
	{
		ID:      "request/only-owner-releases",
		Rule:    "A release with another attempt has no effect and says ErrLost, whatever its token.",
		Surface: OnDriver,
		Run: func(c *C) {
			a, b, key := c.Client("A"), c.Client("B"), c.Key("k")
			g := a.Grant(key)
			for _, who := range []*Client{a, b} {
				foreign := g
				foreign.Attempt = driver.NewAttempt()
				foreign.State = nil
				c.Says(who.Freed(foreign), driver.ErrLost, "Release by another attempt")
			}
			b.Refused(key, a, g)
			if _, err := a.Renewed(g); err != nil {
				c.Latef("A renews behind it: got %v, want nil", err)
			}
		},
	},
	{
		ID:      "request/only-owner-renews",
		Rule:    "A renewal with another attempt or another token has no effect and says ErrLost.",
		Surface: OnDriver,
		Run: func(c *C) {
			a, key := c.Client("A"), c.Key("k")
			g := a.Grant(key)
			otherAttempt, otherToken := g, g
			otherAttempt.Attempt = driver.NewAttempt()
			otherToken.Token++
			for what, foreign := range map[string]driver.Grant{"attempt": otherAttempt, "token": otherToken} {
				foreign.State = nil
				ctx, cancel := a.call()
				_, err := a.f.Renew(ctx, foreign) // not in the history: nobody ever had this grant
				cancel()
				c.Says(err, driver.ErrLost, "a renewal with another %s", what)
			}
			renewed, err := a.Renewed(g)
			if err != nil {
				c.Latef("A renews behind it: got %v, want nil", err)
			}
			c.Must(renewed.Token == g.Token && renewed.Attempt == g.Attempt, "the renewed grant: got token %v and attempt %v, want %v and %v",
				renewed.Token, renewed.Attempt, g.Token, g.Attempt)
		},
	},
	{
		ID:      "request/ended-context",
		Rule:    "A call whose context has ended is no grant and no refusal.",
		Surface: OnDriver,
		Run: func(c *C) {
			a, b, key := c.Client("A"), c.Client("B"), c.Key("k")
			ended, cancel := context.WithCancel(c.Ctx)
			cancel()
			r := a.Request(key)
			g, err := a.TryAcquire(ended, r)
			c.Must(err != nil && !errors.Is(err, driver.ErrHeld) && !errors.Is(err, driver.ErrLost), "TryAcquire: got %v and %v, want an error that tells why", g.Token, err)
			if driver.IsAmbiguous(err) { // it may have been sent
				_ = a.Freed(driver.Grant{Request: r, State: g.State})
			}
			b.Grant(key)
		},
	},
	{
		ID:      "request/refusals-leave-nothing",
		Rule:    "A refused try leaves nothing behind: no waiter, no key, no grant.",
		Surface: OnDriver,
		Needs:   []Feature{driver.FeatureInspect},
		Push:    Size{N: 200}, Full: Size{N: 10_000},
		Load: true,
		Run: func(c *C) {
			a, b, key := c.Client("A"), c.Client("B"), c.Key("k")
			g := a.Grant(key)
			for range c.N() {
				_, err := b.TryOf(b.Request(key))
				c.Must(err != nil || !a.InForce(g), "B was granted the key while token %v was in force", g.Token)
				c.InTime(err != nil, "B was granted the key when A's time was over: too slow to tell")
				if !a.InForce(g) {
					break
				}
			}
			ctx, cancel := b.call()
			defer cancel()
			st, err := b.Inspect(ctx, key)
			if err != nil {
				c.Latef("Inspect: got %v, want a state", err)
			}
			c.Must(st.Waiters <= 0, "waiters behind %d refused tries: got %d, want none", c.N(), st.Waiters)
			if err := a.Freed(g); err != nil && a.InForce(g) {
				c.fail(ByRule, soft(err), "A releases: got %v, want nil", err)
			}
			b.Grant(key)
		},
	},
	{
		ID:      "request/undeclared-operations",
		Rule:    "An operation that is not declared answers ErrUnsupported.",
		Surface: OnDriver,
		Run: func(c *C) {
			a, key := c.Client("A"), c.Key("k")
			ctx, cancel := a.call()
			defer cancel()
			for f, call := range map[Feature]func() error{
				driver.FeatureQueue:   func() error { _, err := a.Enqueue(ctx, a.Request(key)); return err },
				driver.FeatureBatch:   func() error { return a.RenewBatch(ctx, nil, func(int, driver.Grant, error) {}) },
				driver.FeatureInspect: func() error { _, err := a.Inspect(ctx, key); return err },
				driver.FeatureBreak:   func() error { return a.Break(ctx, key, 1, driver.Break{}) },
				driver.FeaturePing:    func() error { return a.Ping(ctx) },
				driver.FeatureBreakNow: func() error {
					return a.Break(ctx, key, 1, driver.Break{Now: true})
				},
				driver.FeatureList: func() error {
					for _, err := range a.List(ctx, key) {
						return err
					}
					return nil
				},
			} {
				if c.Info.Has(f) {
					continue
				}
				err := call()
				c.Must(errors.Is(err, driver.ErrUnsupported), "%s is not declared, and answers %v, want %v", f, err, driver.ErrUnsupported)
			}
		},
	},
	{
		ID:      "request/floor",
		Rule:    "A grant's token is greater than the floor of its request, and later ones stay above it.",
		Level:   Extended,
		Surface: OnDriver,
		Needs:   []Feature{driver.FeatureFloor},
		Run: func(c *C) {
			a, key := c.Client("A"), c.Key("k")
			g := a.Grant(key)
			if err := a.Freed(g); err != nil {
				c.fail(ByRule, soft(err), "Release: got %v, want nil", err)
			}
			r := a.Request(key)
			r.Floor = g.Token + 1000
			raised := a.GrantOf(r)
			c.Must(raised.Token > r.Floor, "token with floor %v: got %v, want more", r.Floor, raised.Token)
			if err := a.Freed(raised); err != nil {
				c.fail(ByRule, soft(err), "Release: got %v, want nil", err)
			}
			next := a.Grant(key)
			c.Must(next.Token > raised.Token, "token behind it: got %v, want more than %v", next.Token, raised.Token)
		},
	},
	{
		ID:      "request/ping",
		Rule:    "A backend that can be reached answers a ping.",
		Surface: OnDriver,
		Needs:   []Feature{driver.FeaturePing},
		Run: func(c *C) {
			a := c.Client("A")
			ctx, cancel := a.call()
			defer cancel()
			if err := a.Ping(ctx); err != nil {
				c.fail(ByRule, soft(err), "Ping: got %v, want nil", err)
			}
		},
	},
}
