package conformance

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/faultlock"
)

// contentionCases are about many who want one key, or many keys.
var contentionCases = []Case{
	{
		ID:   "contention/barrier",
		Rule: "Of many tries at one instant exactly one is granted.",
		Load: true,
		Push: Size{N: 20}, Full: Size{N: 100},
		Run: func(c *C) {
			users := make([]*User, 64)
			for i := range users {
				users[i] = c.User(fmt.Sprintf("client %d", i))
			}
			for round := range c.N() {
				key := c.Key(fmt.Sprint(round))
				granted := make(chan *Holding, len(users))
				c.Each(len(users), func(i int) {
					h, err := users[i].TryErr(key)
					if err == nil {
						granted <- h
						return
					}
					c.Says(err, driver.ErrHeld, "TryAcquire that was not granted")
				})
				n := len(granted)
				c.InTime(n > 0, "round %d: nobody of %d was granted a free key", round, len(users))
				first := <-granted
				if n > 1 {
					second := <-granted
					c.Must(!first.Sure() || !second.Sure(), "round %d: %d of %d were granted the key, among them tokens %v and %v",
						round, n, len(users), first.Token(), second.Token())
				}
				first.GiveBack()
			}
		},
	},
	{
		ID:   "contention/loop",
		Rule: "Clients that acquire, hold and release in a loop never hold together, and their history is legal.",
		Load: true,
		Push: Size{N: 16, TTLs: 1.5}, Full: Size{N: 16, TTLs: 30},
		Run: func(c *C) {
			key, users := c.Key("k"), c.Users()
			end := c.History.Now() + c.For()
			served := make([]int, c.N())
			c.Each(c.N(), func(i int) {
				u := users[i]
				for round := 0; c.History.Now() < end; round++ {
					h := u.Acquire(key)
					served[i]++
					h.Rest(time.Duration(1+(i*7+round*3)%20) * c.T / 2000)
					h.GiveBack()
				}
			})
			c.busy(served, c.N()) // who has begun waits for one
			if c.Info.Has(driver.FeatureFIFO) {
				// Each is served once, if only because it waits for that. In turn means as often as the others.
				fewest, most := slices.Min(served), slices.Max(served)
				c.InTime(most <= 3*fewest+3, "clients were served %d to %d times, and the queue is declared fifo: %v", fewest, most, served)
			}
		},
	},
	{
		ID:   "contention/counter",
		Rule: "A counter that is read, and written a moment later, counts each grant once.",
		Load: true,
		Push: Size{N: 50}, Full: Size{N: 1000},
		Run: func(c *C) {
			key := c.Key("k")
			var counter atomic.Int64
			var unsure atomic.Bool
			each := c.N() / 5
			c.Each(5, func(i int) {
				u := c.User(fmt.Sprintf("client %d", i))
				for range each {
					h := u.Acquire(key)
					v := counter.Load()
					c.Sleep(time.Millisecond)
					counter.Store(v + 1)
					if !h.Sure() {
						unsure.Store(true)
					}
					h.GiveBack()
				}
			})
			got, want := counter.Load(), int64(5*each)
			c.InTime(!unsure.Load(), "a lease was lost on the way: the count proves nothing")
			c.Must(got == want, "counter: got %d behind %d grants", got, want)
		},
	},
	{
		ID:      "contention/dead-holder",
		Rule:    "Of those who wait for a dead holder's key exactly one is granted it when the ttl has passed.",
		Surface: OnDriver,
		Needs:   []Feature{FeatureCore},
		Push:    Size{N: 5}, Full: Size{N: 50},
		Run: func(c *C) {
			a, key := c.Client("A"), c.Key("k")
			g := a.Grant(key)
			end := c.History.At(g.Sent) + g.Left
			leases := make(chan *Lease, c.N())
			for i := range c.N() {
				p := c.Peer(fmt.Sprintf("waiter %d", i))
				c.Go(func() { leases <- p.Acquire(key) })
			}
			first := c.lease(leases)
			c.Must(first.Got >= end-g.Left/100, "a waiter was granted the key %v before the dead holder's time was over", end-first.Got)
			c.InTime(first.Got <= end+c.Soon(), "a waiter was granted the key %v after the dead holder's time was over, want at most %v", first.Got-end, c.Soon())
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
		ID:      "contention/many-keys",
		Rule:    "One Locker keeps many leases alive, with a bounded number of renewals.",
		Surface: OnLock,
		Load:    true,
		Push:    Size{N: 300}, Full: Size{N: 10_000},
		Run: func(c *C) {
			cl := c.Client("A")
			cl.info.MaxBatch = c.N() / 6
			p := cl.Peer(nil)
			leases := make([]*Lease, c.N())
			for i := range leases {
				leases[i] = p.Try(c.Key(fmt.Sprint(i)))
			}
			begun, before := c.History.Now(), p.Sent(faultlock.Renew)
			c.Sleep(c.Times(1.2))
			for _, l := range leases {
				l.StillHeld("among many")
			}
			thirds := int((c.History.Now()-begun)/(c.T/3)) + 2
			sent, most := p.Sent(faultlock.Renew)-before, thirds*len(leases)
			if c.Info.Has(driver.FeatureBatch) {
				most = thirds * (8 + len(leases)/cl.info.MaxBatch + 1)
				c.Must(cl.largest <= cl.info.MaxBatch, "the largest batch: got %d, want at most %d", cl.largest, cl.info.MaxBatch)
			}
			c.InTime(sent <= most, "renewal requests for %d leases: got %d, want at most %d", len(leases), sent, most)
			if err := p.L.Close(); err != nil {
				c.fail(ByRule, soft(err), "Close: got %v, want nil", err)
			}
		},
	},
	{
		ID:      "contention/many-goroutines",
		Rule:    "Each of many goroutines of one Locker gets its own grant of a key, with its own token.",
		Surface: OnLock,
		Load:    true,
		Push:    Size{N: 100}, Full: Size{N: 1000},
		Run: func(c *C) {
			p, key := c.Peer("A"), c.Key("k")
			var mu sync.Mutex
			seen := map[driver.Token]bool{}
			c.Each(c.N(), func(int) {
				l := p.Acquire(key)
				mu.Lock()
				again := seen[l.Token()]
				seen[l.Token()] = true
				mu.Unlock()
				c.Must(!again, "token %v was given to two goroutines", l.Token())
				l.GiveBack()
			})
			c.Must(len(seen) == c.N(), "tokens: got %d, want %d", len(seen), c.N())
		},
	},
	{
		ID:      "contention/idle-waiter",
		Rule:    "A waiter asks at a bounded rate: it does not spin.",
		Surface: OnLock,
		Push:    Size{TTLs: 3}, Full: Size{TTLs: 10},
		Run: func(c *C) {
			a, b, key := c.Peer("A"), c.Peer("B"), c.Key("k")
			l := a.Try(key)
			begun := c.History.Now()
			_, err := b.AcquireErr(c.Ctx, key, locker.WithWait(c.For()))
			c.InTime(errors.Is(err, driver.ErrHeld), "Acquire of a held key: got %v, want %v", err, driver.ErrHeld)
			elapsed := c.History.Now() - begun
			slowest := max(driver.PollInterval(c.T), c.Info.Poll.Max)
			if c.Info.Poll.Max > 0 {
				slowest = c.Info.Poll.Max
			}
			n := b.Sent()
			most := int(elapsed/(slowest*3/4)) + 10 // a quarter of jitter; the tries, the doubling, and the undo
			c.Must(n <= most, "requests of a waiter in %v: got %d, want at most %d: %v", elapsed, n, most, b.Counts())
			l.GiveBack()
		},
	},
	{
		ID:      "contention/errors-while-waiting",
		Rule:    "A waiter whose requests fail for a while still gets the key.",
		Surface: OnLock,
		Run: func(c *C) {
			kinds := []string{"poll#1-3=before", "poll#1-2=after", "enqueue#1=before", "try#2-3=before", "listen#1=before", "wait#1-3=before"}
			c.Each(len(kinds), func(i int) {
				name, key := fmt.Sprint(i), c.Key(fmt.Sprint(i))
				a, b := c.Peer("A"+name), c.Peer("B"+name)
				l := a.Try(key)
				b.MayFault(kinds[i])
				done := make(chan *Lease, 1)
				c.Go(func() { done <- b.Acquire(key) })
				c.Sleep(c.Times(0.7))
				l.GiveBack()
				released := c.History.Now()
				next := c.lease(done)
				// A waiter in a queue tries once; one that polls does nothing else.
				applies := strings.HasPrefix(kinds[i], "try") != c.Info.Has(driver.FeatureQueue)
				c.InTime(!applies || b.Fired() > 0, "%s never fired: the case has tested nothing", kinds[i])
				c.InTime(next.Got <= released+c.T+c.Soon(), "with %s the waiter was granted the key %v after the release, want at most %v",
					kinds[i], next.Got-released, c.T)
				next.GiveBack()
			})
		},
	},
}
