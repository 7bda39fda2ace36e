package conformance

import (
	"sync/atomic"
	"time"

	"github.com/fencelock/locker/driver"
)

// fenceCases are about tokens at work.
var fenceCases = []Case{
	{
		ID:      "fence/late-write",
		Rule:    "Once a new holder has written, the fence refuses the old one's writes.",
		Surface: OnDriver,
		Needs:   []Feature{FeatureCore},
		Run: func(c *C) {
			old, next, f := staleHolder(c)
			c.raise(f, next)
			c.write(f, next, "new")
			c.stale(f, old)
			c.reads(f, next, "new")
		},
	},
	{
		ID:      "fence/raised",
		Rule:    "Once a new holder has raised the fence, it refuses the old one's writes.",
		Surface: OnDriver,
		Needs:   []Feature{FeatureCore},
		Run: func(c *C) {
			old, next, f := staleHolder(c)
			c.raise(f, next)
			c.stale(f, old)
		},
	},
	{
		ID:      "fence/not-raised",
		Rule:    "A new holder that only read has not raised the fence: the old one's write is accepted. (Raise before you read.)",
		Surface: OnDriver,
		Needs:   []Feature{FeatureCore},
		Run: func(c *C) {
			old, next, f := staleHolder(c)
			if _, err := f.Read(c.Ctx, next); err != nil {
				c.fail(ByRule, soft(err), "the new holder reads: got %v, want nil", err)
			}
			c.write(f, old, "late")
		},
	},
	{
		ID:   "fence/one-token-many-writes",
		Rule: "A holder writes as often as it likes with its token.",
		Run: func(c *C) {
			u, f := c.User("A"), c.Fence("resource")
			h := u.Try(c.Key("k"))
			c.raise(f, h.Token())
			for range 10 {
				c.write(f, h.Token(), "x")
			}
			h.GiveBack()
		},
	},
	{
		ID:   "fence/each-resource-its-own",
		Rule: "Each resource keeps its own mark: a new holder that reached one of them stops the old one only there.",
		Run: func(c *C) {
			u, first, second := c.User("A"), c.Fence("first"), c.Fence("second")
			h := u.Try(c.Key("k"))
			old := h.Token()
			h.GiveBack()
			h = u.Try(c.Key("k"))
			c.write(first, old, "old")
			c.write(second, old, "old")
			c.write(first, h.Token(), "new")
			c.stale(first, old)
			c.write(second, old, "old")
			h.GiveBack()
		},
	},
	{
		ID:   "fence/rising",
		Rule: "Under contention the tokens that reach a fenced resource strictly rise.",
		Push: Size{N: 8, TTLs: 1.5}, Full: Size{N: 16, TTLs: 30},
		Load: true,
		Run: func(c *C) {
			key, f, users := c.Key("k"), c.Fence("resource"), c.Users()
			end := c.History.Now() + c.For()
			var last atomic.Uint64
			served := make([]int, c.N())
			c.Each(c.N(), func(i int) {
				u := users[i]
				for c.History.Now() < end {
					h := u.Acquire(key)
					served[i]++
					if err := f.Write(c.Ctx, h.Token(), u.name); err != nil && h.Sure() {
						c.fail(ByRule, soft(err), "%s writes with token %v: got %v, want nil", u.name, h.Token(), err)
					}
					if before := last.Swap(uint64(h.Token())); h.Sure() {
						c.Must(uint64(h.Token()) > before, "token %v behind token %v", h.Token(), before)
					}
					c.Sleep(time.Millisecond)
					h.GiveBack()
				}
			})
			c.busy(served, c.N()) // who has begun waits for one
		},
	},
	{
		ID:      "fence/clients-restart",
		Rule:    "Tokens go on rising when every client has gone and new ones come.",
		Surface: OnDriver,
		Run: func(c *C) {
			key := c.Key("k")
			var last driver.Token
			for range 3 {
				cl := c.Client("A")
				g := cl.Grant(key)
				c.Must(g.Token > last, "token of a new client: got %v, want more than %v", g.Token, last)
				last = g.Token
				if err := cl.Freed(g); err != nil {
					c.fail(ByRule, soft(err), "Release: got %v, want nil", err)
				}
				_ = cl.Close()
			}
		},
	},
}

// staleHolder makes a holder that was heard of no more, another one behind it, and a
// resource that knows neither.
func staleHolder(c *C) (old, next driver.Token, f Fence) {
	a, b, key := c.Client("A"), c.Peer("B"), c.Key("k")
	g := a.Grant(key)
	l := b.Acquire(key)
	c.Must(l.Token() > g.Token, "token behind the expiry: got %v, want more than %v", l.Token(), g.Token)
	return g.Token, l.Token(), c.Fence("resource")
}

func (c *C) raise(f Fence, t driver.Token) {
	if err := f.Raise(c.Ctx, t); err != nil {
		c.fail(ByRule, soft(err), "Raise with token %v: got %v, want nil", t, err)
	}
}

func (c *C) write(f Fence, t driver.Token, v string) {
	if err := f.Write(c.Ctx, t, v); err != nil {
		c.fail(ByRule, soft(err), "Write with token %v: got %v, want nil", t, err)
	}
}

func (c *C) stale(f Fence, t driver.Token) {
	c.Says(f.Write(c.Ctx, t, "late"), driver.ErrStale, "a write with the old token %v", t)
}

func (c *C) reads(f Fence, t driver.Token, want string) {
	got, err := f.Read(c.Ctx, t)
	if err != nil {
		c.fail(ByRule, soft(err), "Read with token %v: got %v, want %q", t, err, want)
	}
	c.Must(got == want, "value: got %q, want %q", got, want)
}
