package conformance

import (
	"fmt"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/faultlock"
)

// pushCases are about places and hand-offs whose messages are lost, late, or cross.
var pushCases = []Case{
	{
		ID:      "queue/lost-push",
		Rule:    "A waiter whose notification is lost gets the key by its slow poll.",
		Surface: OnLock,
		Needs:   needsQueue,
		Run: func(c *C) {
			a, b, key := c.Peer("A"), c.Peer("B"), c.Key("k")
			l := a.Try(key)
			b.Faults("wait=after")
			done := make(chan *Lease, 1)
			c.Go(func() { done <- b.Acquire(key) })
			b.queues()
			released := c.History.Now()
			l.GiveBack()
			next := c.lease(done)
			most := driver.PollInterval(c.T) + c.Soon()
			c.InTime(next.Got-released <= most, "B was granted the key %v after the release, want at most %v", next.Got-released, most)
			next.GiveBack()
		},
	},
	{
		ID:      "queue/deaf-waiter",
		Rule:    "A waiter that hears no answers costs the others at most one ttl.",
		Surface: OnLock,
		Needs:   needsQueue,
		Push:    Size{TTLs: 3}, Full: Size{TTLs: 10},
		Run: func(c *C) {
			a, deaf, b, key := c.Peer("A"), c.Peer("deaf"), c.Peer("B"), c.Key("k")
			l := a.Try(key)
			c.Go(func() {
				got, err := deaf.AcquireErr(c.Ctx, key, locker.WithWait(c.For()))
				if err == nil {
					_ = got.Give()
				}
			})
			deaf.queues()
			deaf.MayFault("poll=hangback; wait=hangback; enqueue=hangback; try=hangback")
			end := c.History.Now() + c.For()
			done := make(chan *Lease, 1)
			c.Go(func() { done <- b.Acquire(key) })
			b.queues()
			released := c.History.Now()
			l.GiveBack()
			next := c.lease(done)
			for {
				c.InTime(next.Got-released <= c.T+c.Soon(), "a hand-off beside a deaf waiter took %v, want at most %v", next.Got-released, c.T)
				next.HoldFor(c.T / 20)
				released = c.History.Now()
				next.GiveBack()
				if c.History.Now() > end-c.Times(1.2) {
					break
				}
				next = b.Acquire(key)
			}
			c.SleepUntil(end)
			c.InTime(deaf.Fired() > 0, "no answer to the deaf waiter was cut off: the case has tested nothing")
		},
	},
	{
		ID:      "queue/late-push",
		Rule:    "A push that arrives when a poll has long granted the key touches nothing.",
		Surface: OnLock,
		Needs:   needsQueue,
		Run: func(c *C) {
			a, b, third, key := c.Peer("A"), c.Peer("B"), c.Client("C"), c.Key("k")
			l := a.Try(key)
			b.Faults(fmt.Sprintf("wait#1=delayback:%v", c.Times(0.6)))
			done := make(chan *Lease, 1)
			c.Go(func() { done <- b.Acquire(key) })
			b.queues()
			l.GiveBack()
			next := c.lease(done)
			if !next.HoldFor(c.T) {
				c.Latef("the live lease is over behind a late push: got %v, want it held", next.Err())
			}
			_, err := third.TryOf(third.Request(key))
			c.Must(err != nil || !next.Sure(), "C was granted the key while B held it with token %v", next.Token())
			next.GiveBack()
		},
	},
	{
		ID:      "queue/push-confirmed",
		Rule:    "A push that is heard with less than half of its time left is confirmed by a renewal before it is believed.",
		Surface: OnLock,
		Needs:   needsQueue,
		Run: func(c *C) {
			a, b, key := c.Peer("A"), c.Peer("B"), c.Key("k")
			l := a.Try(key)
			b.Faults(fmt.Sprintf("wait#1=delayback:%v; poll=hang", driver.ClaimWindow(c.T)*6/10))
			done := make(chan *Lease, 1)
			c.Go(func() {
				next := b.Acquire(key)
				c.InTime(b.Sent(faultlock.Renew) > 0, "renewals before the push was believed: got none, want one")
				done <- next
			})
			b.queues()
			c.Sleep(c.T / 10) // the push is heard behind the poll that hangs, in its claim window
			l.GiveBack()
			c.lease(done).GiveBack()
		},
	},
	{
		ID:      "queue/push-after-expiry",
		Rule:    "A push that is heard when the key has gone to somebody else is not believed.",
		Surface: OnLock,
		Needs:   needsQueue,
		Run: func(c *C) {
			a, b, third, key := c.Peer("A"), c.Peer("B"), c.Peer("C"), c.Key("k")
			l := a.Try(key)
			b.MayFault(fmt.Sprintf("wait#1=delayback:%v; poll=hang", c.Times(0.8)))
			done := make(chan *Lease, 1)
			c.Go(func() { done <- b.Acquire(key) })
			b.queues()
			l.GiveBack()
			next := third.Acquire(key) // B's claim window has passed
			c.Go(func() {
				late := c.lease(done)
				late.HoldFor(c.T / 10) // what it believes is in the history
				_ = late.Give()
			})
			if !next.HoldFor(c.T) {
				c.Latef("C's lease is over: got %v, want it held", next.Err())
			}
			c.InTime(b.Fired() > 0, "no push was held back: the case has tested nothing")
			b.MayFault("")
			next.GiveBack()
		},
	},
	{
		ID:      "queue/broken-ear",
		Rule:    "A waiter that cannot listen polls: it neither spins nor misses its turn.",
		Surface: OnLock,
		Needs:   needsQueue,
		Run: func(c *C) {
			a, b, key := c.Peer("A"), c.Peer("B"), c.Key("k")
			l := a.Try(key)
			b.Faults("wait=before")
			done := make(chan *Lease, 1)
			c.Go(func() { done <- b.Acquire(key) })
			c.Sleep(c.Times(1.2))
			waits := b.Sent(faultlock.Wait)
			c.Must(waits <= 40, "waits of a broken ear in 1.2 T: got %d, want a few", waits)
			released := c.History.Now()
			l.GiveBack()
			next := c.lease(done)
			most := driver.PollInterval(c.T) + c.Soon()
			c.InTime(next.Got-released <= most, "B was granted the key %v after the release, want at most %v", next.Got-released, most)
			next.GiveBack()
		},
	},
	{
		ID:      "queue/expired-push",
		Rule:    "A push that is heard when its grant is over says that nothing is left.",
		Surface: OnDriver,
		Needs:   needsQueue,
		Run: func(c *C) {
			a, b, key := c.Client("A"), c.Client("B"), c.Key("k")
			g := a.Grant(key)
			r := b.Request(key)
			ctx, cancel := b.call()
			ticket, err := b.Listen(ctx, r)
			cancel()
			if err != nil {
				c.fail(ByRule, soft(err), "Listen: got %v, want a ticket", err)
			}
			defer ticket.Close()
			b.queued(b.Enqueue, r)
			if err := a.Freed(g); err != nil {
				c.fail(ByRule, soft(err), "A releases: got %v, want nil", err)
			}
			c.Sleep(driver.ClaimWindow(c.T) + c.Soon())
			ctx, cancel = b.call()
			defer cancel()
			pushed, err := ticket.Wait(ctx)
			if err != nil || pushed.Token == 0 {
				return // it was lost, which is allowed
			}
			c.Must(pushed.Attempt == r.Attempt, "the push names attempt %v, want %v", pushed.Attempt, r.Attempt)
			left := pushed.Left - b.now().Sub(pushed.Sent)
			c.Must(left <= 0, "left of a hand-off that nobody claimed: got %v, want nothing", left)
		},
	},
	{
		ID:      "queue/early-push",
		Rule:    "A push that overtakes the enqueue's answer is kept for it, and used without a poll.",
		Surface: OnLock,
		Needs:   needsQueue,
		Run: func(c *C) {
			a, b, key := c.Peer("A"), c.Peer("B"), c.Key("k")
			l := a.Try(key)
			b.Faults(fmt.Sprintf("enqueue#1=delayback:%v", c.Times(0.05)))
			done := make(chan *Lease, 1)
			c.Go(func() { done <- b.Acquire(key) })
			if !c.Eventually(c.T, func() bool { return b.Sent(faultlock.Enqueue) > 0 }) {
				c.Latef("B did not enqueue within a ttl")
			}
			c.Sleep(c.T / 50)
			released := c.History.Now()
			l.GiveBack()
			next := c.lease(done)
			c.InTime(next.Got-released <= c.Times(0.05)+c.Soon(), "B was granted the key %v after the release, want at most %v",
				next.Got-released, c.Times(0.05)+c.Soon())
			c.InTime(b.Sent(faultlock.Poll) == 0, "polls: got %d, want none", b.Sent(faultlock.Poll))
			c.Sleep(c.T / 50)
			renewed := b.Sent(faultlock.Renew)
			if short := c.History.Now()-next.Got < c.T/20; short && !c.Info.ConfirmPushes { // it is due at T/16
				c.InTime(renewed == 0, "renewals of a short hold: got %d, want none", renewed)
			}
			next.GiveBack()
		},
	},
	{
		ID:      "queue/lost-enqueue",
		Rule:    "A place whose owner never heard of it, and whose undo failed, is dead within its horizon.",
		Surface: OnLock,
		Needs:   needsQueue,
		Run: func(c *C) {
			a, lost, b, key := c.Peer("A"), c.Peer("lost"), c.Peer("B"), c.Key("k")
			l := a.Try(key)
			lost.Faults("enqueue=after; release=before")
			_, err := lost.AcquireErr(c.Ctx, key, locker.WithWait(c.T/4))
			c.Must(err != nil || !l.Sure(), "Acquire without an answer: got a lease")
			c.InTime(err != nil, "Acquire without an answer: got a lease")
			silent := c.History.Now()
			done := make(chan *Lease, 1)
			c.Go(func() { done <- b.Acquire(key) })
			c.SleepUntil(silent + driver.Horizon(c.T) + c.Soon())
			released := c.History.Now()
			l.GiveBack()
			next := c.lease(done)
			most := c.T/8 + c.Soon()
			c.InTime(next.Got-released <= most, "B was granted the key %v after the release, want at most %v: the dead place was served", next.Got-released, most)
			next.GiveBack()
		},
	},
	{
		ID:      "queue/re-sent-enqueue",
		Rule:    "An enqueue that is sent again after an unanswered send has one place and one grant, which its owner keeps.",
		Surface: OnLock,
		Needs:   needsQueue,
		Run: func(c *C) {
			a, b, third, key := c.Peer("A"), c.Peer("B"), c.Client("C"), c.Key("k")
			l := a.Try(key)
			b.Faults("enqueue#1=after")
			done := make(chan *Lease, 1)
			c.Go(func() { done <- b.Acquire(key) })
			if !c.Eventually(c.T, func() bool { return b.Sent(faultlock.Enqueue) > 1 }) {
				c.Latef("B did not send its enqueue again within a ttl")
			}
			c.Sleep(c.T / 10)
			if c.Info.Has(driver.FeatureInspect) {
				ctx, cancel := third.call()
				st, err := third.Inspect(ctx, key)
				cancel()
				c.Must(err != nil || st.Waiters <= 1, "places: got %d, want 1", st.Waiters)
			}
			l.GiveBack()
			next := c.lease(done)
			if !next.HoldFor(c.Times(1.2)) {
				c.Latef("B's lease is over: got %v, want it held", next.Err())
			}
			next.GiveBack()
		},
	},
	{
		ID:      "queue/short-behind-long",
		Rule:    "A waiter keeps its one place behind a holder with a long ttl, also when an answer to a poll is lost.",
		Surface: OnDriver,
		Needs:   []Feature{driver.FeatureQueue, FeatureCore},
		Push:    Size{TTLs: 3}, Full: Size{TTLs: 30},
		Run: func(c *C) {
			a, b, key := c.Client("A"), c.Peer("B"), c.Key("k")
			r := a.Request(key)
			r.TTL = c.For()
			g := a.GrantOf(r)
			end := c.History.At(g.Sent) + g.Left
			b.Faults("poll#2=after")
			next := b.Acquire(key)
			c.Must(next.Got >= end-g.Left/100, "B was granted the key %v before A's %v were over", end-next.Got, g.TTL)
			c.InTime(next.Got <= end+c.Soon(), "B was granted the key %v after A's time was over, want at most %v", next.Got-end, c.Soon())
			c.InTime(b.Sent(faultlock.Enqueue) == 1, "enqueues: got %d, want 1: %v", b.Sent(faultlock.Enqueue), b.Counts())
			next.GiveBack()
		},
	},
	{
		ID:      "queue/long-behind-short",
		Rule:    "A waiter with a long ttl behind a holder with a short one keeps its place and is served when that one dies.",
		Surface: OnDriver,
		Needs:   []Feature{driver.FeatureQueue, FeatureCore},
		Push:    Size{TTLs: 4}, Full: Size{TTLs: 30},
		Run: func(c *C) {
			a, b, key := c.Client("A"), c.Peer("B"), c.Key("k")
			g := a.Grant(key)
			end := c.History.At(g.Sent) + g.Left
			next := b.Acquire(key, locker.WithTTL(c.For()))
			c.Must(next.Got >= end-g.Left/100, "B was granted the key %v before A's time was over", end-next.Got)
			c.InTime(next.Got <= end+c.Soon(), "B was granted the key %v after A's time was over, want at most %v", next.Got-end, c.Soon())
			c.InTime(b.Sent(faultlock.Enqueue) == 1, "enqueues: got %d, want 1", b.Sent(faultlock.Enqueue))
			next.GiveBack()
		},
	},
	{
		ID:      "queue/short-holds",
		Rule:    "The first renewal of a grant that was handed on does not delay the release of a short hold.",
		Surface: OnLock,
		Needs:   needsQueue,
		Run: func(c *C) {
			a, b, key := c.Peer("A"), c.Peer("B"), c.Key("k")
			l := a.Try(key)
			b.Faults(fmt.Sprintf("renew#1=delayback:%v", c.Times(0.15)))
			done := make(chan *Lease, 1)
			c.Go(func() { done <- b.Acquire(key) })
			b.queues()
			l.GiveBack()
			next := c.lease(done)
			if !c.Eventually(c.T/2, func() bool { return b.Sent(faultlock.Renew) > 0 }) {
				c.Latef("no renewal of what was handed on within T/2")
			}
			begun := c.History.Now()
			next.GiveBack()
			took := c.History.Now() - begun
			most := c.Soon()
			if c.Info.RenewChangesState {
				most += max(c.T, time.Second) / 4
			}
			c.InTime(took <= most, "the release took %v beside a renewal, want at most %v", took, most)
		},
	},
	{
		ID:      "queue/crossing",
		Rule:    "An enqueue that crosses a release does not wait for the slow poll.",
		Surface: OnLock,
		Needs:   needsQueue,
		Load:    true,
		Push:    Size{N: 100}, Full: Size{N: 10_000},
		Run: func(c *C) {
			a, b, key := c.Peer("A"), c.Peer("B"), c.Key("k")
			for range c.N() {
				l := a.Try(key)
				var released time.Duration
				var next *Lease
				c.Each(2, func(i int) {
					if i == 0 {
						l.GiveBack()
						released = c.History.Now()
						return
					}
					next = b.Acquire(key)
				})
				late := next.Got - max(released, next.Begun)
				c.InTime(late <= driver.PollInterval(c.T)/2+c.Slack, "a hand-off took %v, want at most %v", late, driver.PollInterval(c.T)/2+c.Slack)
				next.GiveBack()
			}
		},
	},
}
