package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/faultlock"
)

// localCases are about what one Locker does among its own goroutines.
var localCases = []Case{
	{
		ID:      "local/release-ends-belief",
		Rule:    "A lease is over when its release begins, not when it is answered.",
		Surface: OnLock,
		Run: func(c *C) {
			p := c.Peer("A")
			l := p.Try(c.Key("k"))
			p.Faults(fmt.Sprintf("release#1=delayback:%v", c.Times(0.2)))
			done := make(chan error, 1)
			c.Go(func() { done <- l.Give() })
			if !c.Eventually(c.T, func() bool { return p.Sent(faultlock.Release) > 0 }) {
				c.Latef("no release was sent within a ttl")
			}
			c.Must(!l.Valid(), "Valid beside a release that was sent: got true, want false")
			c.InTime(<-done == nil, "the release failed")
		},
	},
	{
		ID:      "local/first-come-first-served",
		Rule:    "Goroutines of one Locker get a key in the order in which they asked.",
		Surface: OnLock,
		Push:    Size{N: 8}, Full: Size{N: 50},
		Run: func(c *C) {
			p, key := c.Peer("A"), c.Key("k")
			l := p.Try(key)
			var mu sync.Mutex
			var order []int
			var all sync.WaitGroup
			for i := range c.N() {
				all.Add(1)
				c.Go(func() {
					defer all.Done()
					next := p.Acquire(key)
					mu.Lock()
					order = append(order, i)
					mu.Unlock()
					next.GiveBack()
				})
				c.Sleep(c.T / 8) // it has asked
			}
			l.GiveBack()
			all.Wait()
			c.alive()
			for i, who := range order {
				c.InTime(who == i, "served in the order %v, and asked in the order 0, 1, 2, …", order)
			}
		},
	},
	{
		ID:      "local/one-waiter-at-the-backend",
		Rule:    "While a Locker holds a key, those who wait in it cost one place in a queue, and nothing where there is none.",
		Surface: OnLock,
		Run: func(c *C) {
			p, key := c.Peer("A"), c.Key("k")
			l := p.Try(key, locker.WithManualRenew())
			before := p.Sent()
			for range 3 {
				c.Go(func() { p.Acquire(key).GiveBack() })
			}
			c.Sleep(c.T / 5) // before the first slow poll
			sent := p.Sent() - before
			l.StillHeld("before the count") // or the count means nothing
			if c.Info.Has(driver.FeatureQueue) {
				c.InTime(p.Sent(faultlock.Enqueue) == 1, "enqueues beside a holder of the same Locker: got %d, want 1", p.Sent(faultlock.Enqueue))
			} else {
				c.Must(sent == 0, "requests beside a holder of the same Locker: got %d, want none: %v", sent, p.Counts())
			}
			l.GiveBack()
		},
	},
	{
		ID:      "local/do-tells-loss",
		Rule:    "Do says that the lease was lost on the way, also when its function returned nil, and ends the function's context.",
		Surface: OnLock,
		Run: func(c *C) {
			p := c.Peer("A")
			p.Faults("renew=before")
			err := p.L.Do(c.Ctx, c.Key("k"), func(ctx context.Context, _ *locker.Lease) error {
				select {
				case <-ctx.Done():
				case <-time.After(c.Times(1.5)):
					c.note(&failure{cause: ByRule, detail: "the function's context did not end with the lease", soft: true})
				}
				return nil
			})
			c.Must(errors.Is(err, driver.ErrLost), "Do whose lease was lost: got %v, want %v", err, driver.ErrLost)
		},
	},
	{
		ID:      "local/do-releases-on-panic",
		Rule:    "Do releases when its function panics.",
		Surface: OnLock,
		Run: func(c *C) {
			a, b, key := c.Peer("A"), c.Peer("B"), c.Key("k")
			func() {
				defer func() { _ = recover() }()
				_ = a.L.Do(c.Ctx, key, func(context.Context, *locker.Lease) error { panic("on purpose") })
			}()
			b.Try(key).GiveBack()
		},
	},
	{
		ID:      "local/close-waits-for-function",
		Rule:    "Close releases no key under a function of Do that still runs.",
		Surface: OnLock,
		Run: func(c *C) {
			a, b, key := c.Peer("A"), c.Client("B"), c.Key("k")
			running, finish := make(chan driver.Grant, 1), make(chan struct{})
			c.Go(func() {
				_ = a.L.Do(c.Ctx, key, func(_ context.Context, l *locker.Lease) error { // ErrClosed
					running <- l.Grant()
					select {
					case <-finish:
					case <-c.Ctx.Done():
					}
					return nil
				})
			})
			var g driver.Grant
			select {
			case g = <-running:
			case <-c.Ctx.Done():
				c.alive()
			}
			c.Go(func() { _ = a.L.Close() })
			c.Sleep(c.T / 10)
			b.Refused(key, a.Client, g)
			close(finish)
		},
	},
}
