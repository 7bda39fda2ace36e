package conformance

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
)

// contractCases are the sequential rules, as a user of a lock sees them.
var contractCases = []Case{
	{
		ID:   "contract/fresh-key",
		Rule: "A key that nobody holds is granted at once, with a token of at least 1.",
		Run: func(c *C) {
			h := c.User("A").Try(c.Key("k"))
			c.Must(h.Token() >= 1, "token: got %v, want at least 1", h.Token())
			c.InTime(h.Sure(), "Valid right behind the grant: got false, want true")
			h.GiveBack()
		},
	},
	{
		ID:      "contract/fresh-lease",
		Rule:    "A new lease tells its key, its ttl, and a remaining time above zero and at most that ttl.",
		Surface: OnLock,
		Run: func(c *C) {
			p := c.Peer("A")
			l := p.Try(c.Key("k"))
			left := l.Remaining()
			c.Must(left <= l.TTL(), "Remaining: got %v, want at most %v", left, l.TTL())
			c.InTime(left > 0, "Remaining right behind the grant: got %v, want more than 0", left)
			c.Must(l.TTL() >= c.T, "TTL: got %v, want at least %v", l.TTL(), c.T)
			c.Must(l.Key() == c.Key("k"), "Key: got %q, want %q", l.Key(), c.Key("k"))
			l.GiveBack()
			c.Must(l.Remaining() == 0 && !l.Valid() && errors.Is(l.Err(), driver.ErrReleased),
				"a released lease: got %v left and %v, want 0 and %v", l.Remaining(), l.Err(), driver.ErrReleased)
		},
	},
	{
		ID:   "contract/exclusion",
		Rule: "While one client holds a key, no other client is granted it.",
		Push: Size{N: 20}, Full: Size{N: 200},
		Run: func(c *C) {
			a, b, key := c.User("A"), c.User("B"), c.Key("k")
			h := a.Try(key)
			for range c.N() {
				b.Refused(key, h)
			}
			h.GiveBack()
		},
	},
	{
		ID:      "contract/refusal-names-holder",
		Rule:    "A refusal names the holder, its token, and how long it will last at most.",
		Surface: OnLock,
		Run: func(c *C) {
			a, b, key := c.Peer("A"), c.Peer("B"), c.Key("k")
			l := a.Try(key)
			held := b.Refused(key, l)
			c.Must(held.Owner == "A", "Owner: got %q, want %q", held.Owner, "A")
			c.Must(held.Token == l.Token(), "Token: got %v, want %v", held.Token, l.Token())
			c.Must(held.ExpiresIn <= l.TTL()+c.Slack, "ExpiresIn: got %v, want at most %v", held.ExpiresIn, l.TTL()+c.Slack)
			c.InTime(held.ExpiresIn > 0, "ExpiresIn: got %v, want more than 0", held.ExpiresIn)
			l.StillHeld("after the refusal")
			l.GiveBack()
		},
	},
	{
		ID:   "contract/hand-over",
		Rule: "A released key is free at once, and the next grant's token is greater.",
		Run: func(c *C) {
			a, b, key := c.User("A"), c.User("B"), c.Key("k")
			h := a.Try(key)
			h.GiveBack()
			next := b.Try(key)
			c.Must(next.Token() > h.Token(), "token behind a release: got %v, want more than %v", next.Token(), h.Token())
			next.GiveBack()
		},
	},
	{
		ID:   "contract/tokens-rise",
		Rule: "Over many rounds of several clients each token is greater than the one before.",
		Push: Size{N: 50}, Full: Size{N: 1000},
		Run: func(c *C) {
			users, key := []*User{c.User("A"), c.User("B"), c.User("C")}, c.Key("k")
			var last driver.Token
			for i := range c.N() {
				h := users[i%3].Try(key)
				c.Must(h.Token() > last, "token of round %d: got %v, want more than %v", i, h.Token(), last)
				last = h.Token()
				h.GiveBack()
			}
		},
	},
	{
		ID:   "contract/keys-are-apart",
		Rule: "Keys that differ in any byte are different locks.",
		Push: Size{N: 300}, Full: Size{N: 10_000},
		Load: true,
		Run: func(c *C) {
			a, b := c.User("A"), c.User("B")
			var held []*Holding
			names := oddNames(c, "")
			for i := range c.N() {
				names = append(names, c.Key("n"+randomName(i)))
			}
			for i, key := range names {
				h, err := a.TryErr(key)
				if errors.Is(err, driver.ErrHeld) {
					c.Failf("%q is said to be held, while only %d other keys are", key, i)
				}
				if err != nil {
					c.fail(ByRule, soft(err), "acquire %q: got %v, want it", key, err)
				}
				held = append(held, h)
				if i < 40 {
					b.Refused(key, h)
				}
			}
			for _, h := range held {
				h.GiveBack()
			}
		},
	},
	{
		ID:      "contract/invalid-keys",
		Rule:    "A key that is empty, too long, not UTF-8, or contains NUL is refused before any request.",
		Surface: OnLock,
		Run: func(c *C) {
			p := c.Peer("A")
			for _, key := range []string{"", strings.Repeat("x", 513), "a\x00b", "a\xff"} {
				_, err := p.TryErr(key)
				c.Must(errors.Is(err, driver.ErrInvalidKey), "TryAcquire(%.20q): got %v, want %v", key, err, driver.ErrInvalidKey)
				_, err = p.AcquireErr(c.Ctx, key)
				c.Must(errors.Is(err, driver.ErrInvalidKey), "Acquire(%.20q): got %v, want %v", key, err, driver.ErrInvalidKey)
			}
			c.Must(p.Sent() == 0, "requests: got %v, want none", p.Counts())
		},
	},
	{
		ID:   "contract/second-release",
		Rule: "A second release of a lock touches nobody who has it by then.",
		Run: func(c *C) {
			a, b, third, key := c.User("A"), c.User("B"), c.User("C"), c.Key("k")
			h := a.Try(key)
			h.GiveBack()
			next := b.Try(key)
			_ = h.Release(c.Ctx) // ErrReleased from ours; others may say nothing
			third.Refused(key, next)
			if err := next.Renew(c.Ctx); err != nil {
				c.fail(ByRule, soft(err), "B renews behind A's second release: got %v, want nil", err)
			}
			next.GiveBack()
		},
	},
	{
		ID:      "contract/not-reentrant",
		Rule:    "A key held through a Locker is refused to a second call of the same Locker, without a request.",
		Surface: OnLock,
		Run: func(c *C) {
			a, key := c.Peer("A"), c.Key("k")
			l := a.Try(key, locker.WithManualRenew())
			before := a.Sent()
			_, err := a.TryErr(key)
			sent := a.Sent() - before
			l.StillHeld("after the refusal") // or the refusal means nothing
			c.Must(errors.Is(err, driver.ErrHeld), "TryAcquire of what is held: got %v, want %v", err, driver.ErrHeld)
			c.Must(sent == 0, "requests: got %d more, want none", sent)
			l.GiveBack()
		},
	},
	{
		ID:   "contract/goroutines-exclude",
		Rule: "Two goroutines that use one client never hold a key together.",
		Push: Size{N: 50}, Full: Size{N: 500},
		Run: func(c *C) {
			u, key := c.User("A"), c.Key("k")
			var inside atomic.Pointer[Holding]
			c.Each(2, func(int) {
				for range c.N() / 2 {
					h := u.Acquire(key)
					if other := inside.Swap(h); other != nil && other.Sure() && h.Sure() {
						c.Failf("two goroutines hold the key, with tokens %v and %v", other.Token(), h.Token())
					}
					c.Sleep(time.Millisecond)
					inside.CompareAndSwap(h, nil)
					h.GiveBack()
				}
			})
		},
	},
	{
		ID:      "contract/ended-context",
		Rule:    "An Acquire whose context has ended sends nothing and says so.",
		Surface: OnLock,
		Run: func(c *C) {
			p := c.Peer("A")
			ended, cancel := context.WithCancel(c.Ctx)
			cancel()
			_, err := p.AcquireErr(ended, c.Key("k"))
			c.Must(errors.Is(err, context.Canceled), "got %v, want %v", err, context.Canceled)
			c.Must(p.Sent() == 0, "requests: got %v, want none", p.Counts())
		},
	},
	{
		ID:      "contract/cancelled-wait",
		Rule:    "A wait that ends says who holds the key and why it ended, and leaves nothing behind.",
		Surface: OnLock,
		Run: func(c *C) {
			a, b, third, key := c.Peer("A"), c.Peer("B"), c.Peer("C"), c.Key("k")
			l := a.Try(key)
			begun := c.History.Now()
			wait := c.T / 4 // a first answer may be several requests
			_, err := b.AcquireErr(c.Ctx, key, locker.WithWait(wait))
			took := c.History.Now() - begun
			c.Must(err != nil || !l.Sure(), "B was granted the key while A held it with token %v", l.Token())
			c.Must(err == nil || soft(err), "got %v, want %v", err, context.DeadlineExceeded)
			c.InTime(errors.Is(err, context.DeadlineExceeded), "got %v, want %v", err, context.DeadlineExceeded)
			c.InTime(errors.Is(err, driver.ErrHeld), "got %v, want %v too", err, driver.ErrHeld)
			c.InTime(took <= wait+c.Soon(), "a wait of %v took %v, want at most %v more", wait, took, c.Soon())
			c.Sleep(c.T / 20) // the undo runs in the background
			l.GiveBack()
			begun = c.History.Now()
			next := third.Acquire(key)
			took = c.History.Now() - begun
			c.InTime(took <= c.T/4+c.Soon(), "the key was free %v after its release, want at most %v: the ended wait left something behind",
				took, c.T/4+c.Soon())
			next.GiveBack()
		},
	},
	{
		ID:      "contract/impossible-ttl",
		Rule:    "An impossible ttl is an error before any request; one that is rounded is told as granted.",
		Surface: OnLock,
		Run: func(c *C) {
			cl := c.Client("A")
			p := cl.Peer(nil)
			ttls := []time.Duration{0, -time.Second}
			if c.Info.MinTTL > 1 {
				ttls = append(ttls, c.Info.MinTTL-1)
			}
			for _, ttl := range ttls {
				_, err := p.TryErr(c.Key("k"), locker.WithTTL(ttl))
				c.Must(errors.Is(err, driver.ErrInvalidTTL), "WithTTL(%v): got %v, want %v", ttl, err, driver.ErrInvalidTTL)
				if ttl != 0 { // in Options zero is the default
					_, err = locker.New(cl, &locker.Options{TTL: ttl})
					c.Must(errors.Is(err, driver.ErrInvalidTTL), "Options.TTL %v: got %v, want %v", ttl, err, driver.ErrInvalidTTL)
				}
			}
			c.Must(p.Sent() == 0, "requests: got %v, want none", p.Counts())
			odd := c.T + c.T/7 + 1
			l := p.Try(c.Key("k"), locker.WithTTL(odd))
			c.Must(l.TTL() >= odd, "TTL of a lease for %v: got %v, want as much at least", odd, l.TTL())
			c.Must(c.Info.Granularity > 0 || l.TTL() == odd, "TTL of a lease for %v: got %v, and no granularity is declared", odd, l.TTL())
			l.GiveBack()
		},
	},
	{
		ID:      "contract/close-ends-waits",
		Rule:    "Close ends every wait at once with ErrClosed.",
		Surface: OnLock,
		Push:    Size{N: 10}, Full: Size{N: 100},
		Run: func(c *C) {
			a, b, key := c.Peer("A"), c.Peer("B"), c.Key("k")
			l := a.Try(key)
			errs := make(chan error, c.N())
			for range c.N() {
				c.Go(func() {
					_, err := b.AcquireErr(c.Ctx, key)
					errs <- err
				})
			}
			c.Sleep(c.T / 10)
			begun := c.History.Now()
			if err := b.L.Close(); err != nil {
				c.fail(ByRule, soft(err), "Close: got %v, want nil", err)
			}
			for range c.N() {
				c.Closed(<-errs)
			}
			took := c.History.Now() - begun
			c.InTime(took <= c.T/4+c.Soon(), "Close took %v, want at most %v", took, c.T/4+c.Soon())
			_, err := b.TryErr(c.Key("other"))
			c.Must(errors.Is(err, driver.ErrClosed), "TryAcquire behind Close: got %v, want %v", err, driver.ErrClosed)
			l.StillHeld("after another Locker was closed")
			l.GiveBack()
		},
	},
	{
		ID:      "contract/close-frees-keys",
		Rule:    "Close ends the leases of its Locker with ErrClosed and frees their keys, and touches no other client.",
		Surface: OnLock,
		Run: func(c *C) {
			a, b := c.Peer("A"), c.Peer("B")
			mine, other := a.Try(c.Key("k")), b.Try(c.Key("other"))
			mine.Sure()
			mine.record()
			if err := a.L.Close(); err != nil {
				c.fail(ByRule, soft(err), "Close: got %v, want nil", err)
			}
			c.Must(errors.Is(mine.Err(), driver.ErrClosed), "Err of a lease behind Close: got %v, want %v", mine.Err(), driver.ErrClosed)
			b.Try(c.Key("k")).GiveBack()
			if err := other.Renew(c.Ctx); err != nil {
				c.fail(ByRule, soft(err), "B renews behind the Close of A: got %v, want nil", err)
			}
			other.GiveBack()
		},
	},
	{
		ID:      "contract/again-after-loss",
		Rule:    "A Locker that lost a lease can acquire the key again.",
		Surface: OnLock,
		Run: func(c *C) {
			a, key := c.Peer("A"), c.Key("k")
			lost := a.Try(key, locker.WithManualRenew())
			c.Must(!lost.HoldFor(c.Times(1.1)), "a lease that nobody renews is still valid after 1.1 T")
			next := a.Acquire(key)
			c.Must(next.Token() > lost.Token(), "token behind the loss: got %v, want more than %v", next.Token(), lost.Token())
			next.StillHeld("right behind the grant")
			next.GiveBack()
		},
	},
	{
		ID:      "contract/outlives-context",
		Rule:    "A lease lives on when the context of its Acquire ends.",
		Surface: OnLock,
		Run: func(c *C) {
			p := c.Peer("A")
			ctx, cancel := context.WithCancel(c.Ctx)
			l, err := p.AcquireErr(ctx, c.Key("k"))
			if err != nil {
				c.fail(ByRule, soft(err), "Acquire: got %v, want a lease", err)
			}
			cancel()
			c.Sleep(c.Times(1.2))
			l.StillHeld("1.2 T after its context ended")
			l.GiveBack()
		},
	},
	{
		ID:      "contract/release-without-context",
		Rule:    "A release with a context that has ended still frees the key.",
		Surface: OnLock,
		Run: func(c *C) {
			a, b, key := c.Peer("A"), c.Peer("B"), c.Key("k")
			l := a.Try(key)
			l.Sure()
			l.record()
			ended, cancel := context.WithCancel(c.Ctx)
			cancel()
			if err := l.Release(ended); err != nil {
				c.fail(ByRule, driver.IsAmbiguous(err) && !errors.Is(err, context.Canceled), "Release: got %v, want nil", err)
			}
			b.Try(key).GiveBack()
		},
	},
}

// oddNames are keys with that beginning which a careless mapping confuses.
func oddNames(c *C, begin string) []string {
	names := []string{
		"a", "A", "ab", "a/b", "a/", "/a", "a//b", "a b", " a", "a ", "a\tb", "a\nb", "ä", "a\u0308", "日本", "%61", "a%2Fb",
		".", "..", "a.lock", "a:b", "a{b}", "a*", "a?", `a\b`, `a"b`, "a'b", "-a", "~a", "\u200b",
	}
	for i, n := range names {
		names[i] = c.Key(begin + n)
	}
	long := c.Key(begin)
	long += strings.Repeat("x", 512-len(long))
	return append(names, long, long[:511], long[:511]+"y")
}

// randomName is the i-th of many names that share long beginnings.
func randomName(i int) string {
	const letters = "aAbB01/._"
	var b strings.Builder
	for n := i + 1; n > 0; n /= len(letters) {
		b.WriteByte(letters[n%len(letters)])
	}
	return b.String()
}
