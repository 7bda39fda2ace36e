package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
)

// operationCases are what operators do: look, break, lead, move.
var operationCases = []Case{
	{
		ID:      "break/wrong-token",
		Rule:    "A break with a token that is not the holder's is refused and touches nobody.",
		Surface: OnLock,
		Needs:   []Feature{driver.FeatureBreak},
		Run: func(c *C) {
			a, b, key := c.Peer("A"), c.Peer("B"), c.Key("k")
			err := b.L.Break(c.Ctx, key, 0, driver.Break{})
			c.Must(err != nil && b.Sent() == 0, "break with no token: got %v and %d requests, want an error and none", err, b.Sent())
			err = b.L.Break(c.Ctx, key, 1, driver.Break{})
			c.Says(err, driver.ErrLost, "break of a free key")
			l := a.Try(key)
			err = b.L.Break(c.Ctx, key, l.Token()+1, driver.Break{By: "operator"})
			c.Says(err, driver.ErrHeld, "break with token %v of %v's key", l.Token()+1, l.Token())
			var held *driver.HeldError
			c.Must(errors.As(err, &held) && held.Token == l.Token(), "its token: got %v, want a *HeldError with %v", err, l.Token())
			if err := l.Renew(c.Ctx); err != nil {
				c.fail(ByRule, soft(err) && (!errors.Is(err, driver.ErrLost) || !l.Early()), "A renews behind it: got %v, want nil", err)
			}
			l.GiveBack()
		},
	},
	{
		ID:      "break/ends-holder",
		Rule:    "A broken holder learns it from its next renewal, renews and releases no more, and the next token is greater.",
		Surface: OnLock,
		Needs:   []Feature{driver.FeatureBreak},
		Run: func(c *C) {
			a, b, key := c.Peer("A"), c.Peer("B"), c.Key("k")
			l := a.Try(key)
			if err := b.L.Break(c.Ctx, key, l.Token(), driver.Break{By: "operator", Reason: "test"}); err != nil {
				c.fail(ByRule, soft(err), "Break: got %v, want nil", err)
			}
			l.LostBy(c.History.Now()+c.T/2, "behind a break") // the next renewal is due within a third
			c.Must(errors.Is(l.Renew(c.Ctx), driver.ErrLost), "A renews: got nil or another error, want %v", driver.ErrLost)
			err := l.Give()
			c.Must(errors.Is(err, driver.ErrLost), "A releases: got %v, want %v", err, driver.ErrLost)
			next := b.Acquire(key)
			c.Must(next.Token() > l.Token(), "token behind the break: got %v, want more than %v", next.Token(), l.Token())
			next.GiveBack()
		},
	},
	{
		ID:      "break/waits-for-deadline",
		Rule:    "A broken key is given away when its last deadline has passed, not before, and within a ttl of the break.",
		Surface: OnDriver,
		Needs:   []Feature{driver.FeatureBreak, FeatureCore},
		Run: func(c *C) {
			a, b, op, key := c.Client("A"), c.Peer("B"), c.Peer("operator"), c.Key("k")
			g := a.Grant(key)
			end := c.History.At(g.Sent) + g.Left
			done := make(chan *Lease, 1)
			c.Go(func() { done <- b.Acquire(key) })
			c.Sleep(c.Times(0.2))
			// A backend whose records cannot tell when they were renewed counts from the break.
			latest := max(end, c.History.Now()+g.TTL)
			if err := op.L.Break(c.Ctx, key, g.Token, driver.Break{}); err != nil {
				c.fail(ByRule, soft(err) || !a.InForce(g), "Break: got %v, want nil", err)
			}
			_, err := a.Renewed(g)
			c.Must(err != nil, "the broken grant was renewed")
			next := c.lease(done)
			c.Must(next.Got >= end-g.Left/100, "B was granted the key %v before the broken grant's deadline", end-next.Got)
			c.InTime(next.Got <= latest+c.Soon(), "B was granted the key %v after a ttl from the break, want at most %v", next.Got-latest, c.Soon())
			next.GiveBack()
		},
	},
	{
		ID:      "break/now",
		Rule:    "A break with Now frees the key at once, and the fence refuses what the old holder still writes.",
		Surface: OnDriver,
		Needs:   []Feature{driver.FeatureBreakNow, FeatureCore},
		Run: func(c *C) {
			a, b, key := c.Client("A"), c.Peer("B"), c.Key("k")
			f := c.Fence("resource")
			g := a.Grant(key)
			c.write(f, g.Token, "a")
			if err := b.L.Break(c.Ctx, key, g.Token, driver.Break{Now: true, By: "operator"}); err != nil {
				c.fail(ByRule, soft(err), "Break: got %v, want nil", err)
			}
			next := b.Try(key)
			c.Must(next.Token() > g.Token, "token behind the break: got %v, want more than %v", next.Token(), g.Token)
			c.raise(f, next.Token())
			c.stale(f, g.Token)
			_, err := a.Renewed(g)
			c.Must(err != nil, "the broken grant was renewed")
			next.StillHeld("after the old holder's late calls")
			next.GiveBack()
		},
	},
	{
		ID:      "inspect/states",
		Rule:    "An inspection tells free, held and released keys apart, names the holder, and disturbs nobody.",
		Surface: OnLock,
		Needs:   []Feature{driver.FeatureInspect},
		Run: func(c *C) {
			a, b, key := c.Peer("A"), c.Peer("B"), c.Key("k")
			look := func(want bool) driver.State {
				st, err := b.L.Inspect(c.Ctx, key)
				if err != nil {
					c.fail(ByRule, soft(err), "Inspect: got %v, want a state", err)
				}
				c.Must(st.Key == key, "Key: got %q, want %q", st.Key, key)
				if st.Held != want {
					c.Latef("Held: got %v, want %v", st.Held, want)
				}
				return st
			}
			look(false)
			l := a.Try(key, locker.WithNote("note"))
			for range 3 {
				st := look(true)
				c.Must(st.Token == l.Token() && st.Owner == "A" && st.Note == "note", "state: got token %v, owner %q, note %q, want %v, %q, %q",
					st.Token, st.Owner, st.Note, l.Token(), "A", "note")
				c.Must(st.Attempt == l.Grant().Attempt || st.Attempt.IsZero(), "Attempt: got %v, want %v", st.Attempt, l.Grant().Attempt)
				c.Must(st.ExpiresIn <= l.TTL()+c.Slack, "ExpiresIn: got %v, want at most %v", st.ExpiresIn, l.TTL()+c.Slack)
			}
			c.Sleep(c.Times(1.2))
			look(true)
			l.StillHeld("after inspections")
			l.GiveBack()
			look(false)
			g := a.Grant(key)
			c.SleepUntil(c.History.At(g.Sent) + g.Left + c.Soon())
			look(false)
		},
	},
	{
		ID:      "inspect/list",
		Rule:    "A list yields every held key with the prefix once, over any number of pages, and no other.",
		Surface: OnLock,
		Needs:   []Feature{driver.FeatureList},
		Push:    Size{N: 300}, Full: Size{N: 5000},
		Load: true,
		Run: func(c *C) {
			a, b := c.Peer("A"), c.Peer("B")
			held := map[string]bool{}
			ttl := locker.WithTTL(c.Times(10))
			names := oddNames(c, "in/")
			for i := range c.N() {
				names = append(names, c.Key(fmt.Sprintf("in/%d ä", i)))
			}
			var last *Lease
			for _, key := range names {
				last = a.Try(key, ttl)
				held[key] = true
			}
			a.Try(c.Key("im"), ttl)
			released := a.Try(c.Key("in/released"), ttl)
			released.GiveBack()
			seen := map[string]bool{}
			for st, err := range b.L.List(c.Ctx, c.Key("in/")) {
				if err != nil {
					c.fail(ByRule, soft(err), "List: got %v", err)
				}
				c.Must(held[st.Key], "List yields %q, which is not held below the prefix", st.Key)
				c.Must(!seen[st.Key], "List yields %q twice", st.Key)
				seen[st.Key] = true
			}
			c.InTime(len(seen) == len(held), "List yields %d of %d held keys", len(seen), len(held))
			last.StillHeld("after the list")
		},
	},
	{
		ID:      "operate/record-removed",
		Rule:    "A holder whose record was removed from outside learns it within its ttl, and nobody else is harmed.",
		Surface: OnLock,
		Needs:   []Feature{FeatureRemove},
		Run:     func(c *C) { harmed(c, c.h.Faults.Remove, "removed") },
	},
	{
		ID:      "operate/record-overwritten",
		Rule:    "A holder whose record was overwritten from outside learns it within its ttl, and nobody else is harmed.",
		Surface: OnLock,
		Needs:   []Feature{FeatureOverwrite},
		Run:     func(c *C) { harmed(c, c.h.Faults.Overwrite, "overwritten") },
	},
	{
		ID:      "lead/one-leader",
		Rule:    "One leads at a time; when the leader is cut off or its function returns another leads, and all end when told.",
		Surface: OnLock,
		Run:     leadCase,
	},
	{
		ID:      "namespace/other-layout",
		Rule:    "A client that wants another token base is refused with ErrLayout, and the namespace is unchanged.",
		Surface: OnDriver,
		Needs:   []Feature{FeatureReopen},
		Run: func(c *C) {
			a, key := c.Client("A"), c.Key("k")
			g := a.Grant(key)
			d, err := c.h.Reopen(c.Ctx, 1_000_000)
			if err == nil {
				_ = d.Close()
			}
			c.Says(err, driver.ErrLayout, "opened with another token_base")
			renewed, err := a.Renewed(g)
			if err != nil {
				c.Latef("A renews behind it: got %v, want nil", err)
			}
			c.Must(renewed.Token == g.Token, "A's token: got %v, want %v", renewed.Token, g.Token)
			b := c.Client("B")
			b.Refused(key, a, renewed)
		},
	},
	{
		ID:      "namespace/token-base",
		Rule:    "Tokens of a namespace begin above its token base, so that a fence fed by another backend accepts them.",
		Surface: OnDriver,
		Needs:   []Feature{FeatureFresh},
		Run: func(c *C) {
			old := c.Client("old")
			g := old.Grant(c.Key("k"))
			f := c.Fence("resource")
			c.write(f, g.Token, "old")
			d, err := c.h.Fresh(c.Ctx, g.Token+41)
			if err != nil {
				c.Setupf("open a namespace: %v", err)
			}
			fresh := c.adopt("new", d)
			n := fresh.Grant(c.Key("new k"))
			c.Must(n.Token > g.Token+41, "first token: got %v, want more than the base %v", n.Token, g.Token+41)
			c.write(f, n.Token, "new")
		},
	},
}

// Soon is what may come on top of a deadline: σ, and what the control request would not
// show of a slow machine.
func (c *C) Soon() time.Duration { return c.Slack + c.T/controlShare }

// lease waits for a lease that another goroutine of the case gets.
func (c *C) lease(from <-chan *Lease) *Lease {
	select {
	case l := <-from:
		return l
	case <-c.Ctx.Done():
		c.alive()
		return nil
	}
}

// harmed does something to a holder's record from outside.
func harmed(c *C, harm func(context.Context, string) error, done string) {
	a, b, key, other := c.Peer("A"), c.Peer("B"), c.Key("k"), c.Key("other")
	l, untouched := a.Try(key), b.Try(other)
	c.Check.MayForget = true
	if err := harm(c.Ctx, key); err != nil {
		c.Setupf("have the record %s: %v", done, err)
	}
	l.LostBy(c.History.Now()+c.T, "with the record "+done)
	c.Says(l.Renew(c.Ctx), driver.ErrLost, "the renewal of a lost lease")
	untouched.StillHeld("after another key's record was " + done)
	untouched.GiveBack()
}

func leadCase(c *C) {
	peers, key := c.Peers(3), c.Key("k")
	told, end := context.WithCancel(c.Ctx)
	defer end()
	type term struct {
		who   int
		began time.Duration
	}
	var mu sync.Mutex
	leaders := 0
	terms := make(chan term, 100)
	finish := make(chan struct{}, 1)
	ended := make(chan error, len(peers))
	for i, p := range peers {
		c.Go(func() {
			ended <- p.L.Lead(told, key, func(ctx context.Context, l *locker.Lease) error {
				lease := p.lease(key, 0, l)
				mu.Lock()
				leaders++
				n := leaders
				mu.Unlock()
				defer func() {
					lease.record()
					mu.Lock()
					leaders--
					mu.Unlock()
				}()
				if n > 1 { // a function may end a moment after its lease; whether two believed is in the history
					c.note(&failure{cause: ByRule, detail: fmt.Sprintf("%d lead at once", n), soft: true})
				}
				terms <- term{i, c.History.Now()}
				for {
					lease.Sure()
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-finish:
						lease.Sure()
						return nil
					case <-time.After(c.T / 100):
					}
				}
			})
		})
	}
	next := func(within time.Duration, what string) term {
		select {
		case t := <-terms:
			return t
		case <-time.After(within):
			c.Latef("nobody leads %v %s", within, what)
		case <-c.Ctx.Done():
			c.alive()
		}
		return term{}
	}
	first := next(c.T, "after the start")
	peers[first.who].Faults("*=hang")
	// The lease ends at the backend, at the latest, a ttl after its last renewal.
	second := next(c.Times(1.2)+c.Soon(), "after the leader was cut off")
	c.Must(second.who != first.who, "the one that was cut off leads again while it is cut off")
	peers[first.who].Faults("")
	finish <- struct{}{}
	select {
	case err := <-ended:
		c.Must(err == nil, "Lead whose function returned nil: got %v, want nil", err)
	case <-time.After(c.T):
		c.Latef("Lead did not return within a ttl of its function")
	}
	next(c.T, "after the leader's function returned")
	end()
	for range len(peers) - 1 {
		select {
		case err := <-ended:
			c.Must(errors.Is(err, context.Canceled), "Lead behind the end of its context: got %v, want %v", err, context.Canceled)
		case <-time.After(c.T):
			c.Latef("Lead did not end within a ttl of its context")
		}
	}
}
