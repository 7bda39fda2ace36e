package conformance

import (
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/faultlock"
)

// renewalCases are about grants that are kept.
var renewalCases = []Case{
	{
		ID:      "renewal/keeps-the-key",
		Rule:    "A lease that is renewed keeps its key and its token for as long as it is wanted, whoever waits.",
		Surface: OnLock,
		Push:    Size{TTLs: 3}, Full: Size{TTLs: 5},
		Run: func(c *C) {
			a, b, key := c.Peer("A"), c.Peer("B"), c.Key("k")
			l := a.Try(key)
			token := l.Token()
			c.Go(func() {
				got, err := b.AcquireErr(c.Ctx, key, locker.WithWait(c.For()))
				if err == nil && l.Sure() {
					c.Failf("B was granted the key (token %v) while A held it with token %v", got.Token(), token)
				}
			})
			if !l.HoldFor(c.For()) {
				c.Latef("A's lease is over: got %v, want it renewed", l.Err())
			}
			c.Must(l.Token() == token, "token behind renewals: got %v, want %v", l.Token(), token)
			l.GiveBack()
		},
	},
	{
		ID:      "renewal/by-hand",
		Rule:    "Each renewal by hand moves the end of a lease.",
		Surface: OnLock,
		Push:    Size{N: 3}, Full: Size{N: 10},
		Run: func(c *C) {
			p := c.Peer("A")
			l := p.Try(c.Key("k"), locker.WithManualRenew())
			for i := range c.N() {
				c.Sleep(c.T / 2)
				before := l.Remaining()
				if err := l.Renew(c.Ctx); err != nil {
					c.fail(ByRule, soft(err), "renewal %d: got %v, want nil", i+1, err)
				}
				c.InTime(l.Remaining() > before+c.T/4, "left behind renewal %d: got %v, and %v before it", i+1, l.Remaining(), before)
			}
			l.StillHeld("behind renewals by hand")
			l.GiveBack()
		},
	},
	{
		ID:      "renewal/counts-from-send",
		Rule:    "A renewed lease counts from the renewal's send, never from its answer.",
		Surface: OnLock,
		Run: func(c *C) {
			p := c.Peer("A")
			l := p.Try(c.Key("k"), locker.WithManualRenew())
			c.Sleep(c.Times(0.3))
			delay := c.Times(0.2)
			p.Faults(fmt.Sprintf("renew#1=delayback:%v", delay))
			if err := l.Renew(c.Ctx); err != nil {
				c.fail(ByRule, soft(err), "Renew: got %v, want nil", err)
			}
			answered := c.History.Now()
			last := l.UntilOver(c.Times(1.5))
			most := beliefLasts(l.TTL()) - delay
			c.Must(last-answered <= most, "behind an answer that took %v the holder was sure for %v, want at most %v", delay, last-answered, most)
		},
	},
	{
		ID:      "renewal/answer-too-late",
		Rule:    "A renewal that is answered after the end of the belief counts for nothing: a lost lease is never revived.",
		Surface: OnLock,
		Run: func(c *C) {
			a, key := c.Peer("A"), c.Key("k")
			l := a.Try(key, locker.WithManualRenew())
			sent := l.Got
			c.Sleep(c.Times(0.75))
			l.Unrenewed()
			// The answer would come at 0.95 T; the belief ends at 0.89 T.
			a.Faults(fmt.Sprintf("renew#1=delayback:%v", c.Times(0.2)))
			err := l.Renew(c.Ctx)
			c.Must(err != nil, "Renew that is answered too late: got nil, want an error")
			c.Must(!l.HoldFor(c.T/4), "a lost lease is valid again")
			c.Must(l.lastSure() <= sent+beliefLasts(l.TTL()), "A was sure for %v, want at most %v", l.lastSure()-sent, beliefLasts(l.TTL()))
		},
	},
	{
		ID:      "renewal/no-answers",
		Rule:    "A lease whose renewals are applied but never answered ends at its old end, and nobody is granted the key before.",
		Surface: OnLock,
		Run: func(c *C) {
			a, b, key := c.Peer("A"), c.Peer("B"), c.Key("k")
			l := a.Try(key)
			a.Faults("renew=hangback")
			done := make(chan *Lease, 1)
			c.Go(func() { done <- b.Acquire(key) })
			last := l.UntilOver(c.Times(1.5))
			c.Must(last-l.Got <= beliefLasts(l.TTL()), "A was sure for %v, want at most %v", last-l.Got, beliefLasts(l.TTL()))
			l.LostBy(c.History.Now(), "with no answers")
			next := c.lease(done)
			early := l.Begun + l.TTL() - l.TTL()/100 - next.Got
			c.Must(early <= 0, "B was granted the key %v before A's deadline", early)
			deadline := l.Got + c.T
			c.InTime(next.Got <= deadline+c.T/4+c.Soon(), "B was granted the key %v after A's deadline: the lost lease was not given back", next.Got-deadline)
			next.GiveBack()
		},
	},
	{
		ID:      "renewal/all-fail",
		Rule:    "When every renewal fails the lease ends at its end, no sooner, after two to eight tries.",
		Surface: OnLock,
		Run: func(c *C) {
			p := c.Peer("A")
			p.Faults("renew=before")
			l := p.Try(c.Key("k"))
			last := l.UntilOver(c.Times(1.5))
			c.Must(last-l.Got <= beliefLasts(l.TTL()), "the holder was sure for %v, want at most %v", last-l.Got, beliefLasts(l.TTL()))
			c.InTime(last-l.Begun >= beliefLasts(l.TTL())-c.T/8, "the holder was sure for %v, want %v: it gave up too early", last-l.Begun, beliefLasts(l.TTL()))
			l.LostBy(c.History.Now(), "with every renewal failing")
			n := p.Sent(faultlock.Renew)
			c.Must(n <= 8, "renewals sent: got %d, want at most 8", n)
			c.InTime(n >= 2, "renewals sent: got %d, want 2 at least", n)
		},
	},
	{
		ID:      "renewal/errors-pass",
		Rule:    "A lease survives one failed renewal of any kind, and three in a row that fail at once.",
		Surface: OnLock,
		Run: func(c *C) {
			kinds := []string{"renew#1=before", "renew#1=after", "renew#1=hang", "renew#1=hangback", "renew#1-3=before", "renew#1-3=after"}
			c.Each(len(kinds), func(i int) {
				p := c.Peer("A" + fmt.Sprint(i))
				l := p.Try(c.Key(fmt.Sprint(i)))
				p.Faults(kinds[i])
				if !l.HoldFor(c.Times(1.5)) {
					c.Latef("with %s the lease is over: got %v, want it held", kinds[i], l.Err())
				}
				l.GiveBack()
			})
		},
	},
	{
		ID:      "renewal/stuck-neighbour",
		Rule:    "A key that is stuck at the server delays neither the renewals nor the release of its neighbours.",
		Surface: OnLock,
		Run: func(c *C) {
			p := c.Peer("A")
			stuck, freed, kept := p.Try(c.Key("stuck")), p.Try(c.Key("freed")), p.Try(c.Key("kept"))
			p.Faults(fmt.Sprintf("renew[%q]=hang", stuck.Key()))
			c.Sleep(c.Times(0.45)) // the first renewals were due at T/3
			begun := c.History.Now()
			freed.GiveBack()
			took := c.History.Now() - begun
			c.InTime(took <= c.Soon(), "the neighbour's release took %v, want at most %v", took, c.Soon())
			if !kept.HoldFor(c.T) {
				c.Latef("the neighbour's lease is over: got %v, want it renewed", kept.Err())
			}
			kept.GiveBack()
		},
	},
	{
		ID:      "renewal/mixed-ttls",
		Rule:    "Leases of different ttls in one Locker each keep their own.",
		Surface: OnLock,
		Push:    Size{TTLs: 5}, Full: Size{TTLs: 15},
		Run: func(c *C) {
			p := c.Peer("A")
			short, long := p.Try(c.Key("short")), p.Try(c.Key("long"), locker.WithTTL(c.For()))
			c.Sleep(c.Times(1.5))
			short.StillHeld("after 1.5 T")
			long.StillHeld("after 1.5 T")
			p.Faults("renew=before")
			cut := c.History.Now()
			short.LostBy(cut+c.T, "with its renewals failing")
			c.SleepUntil(cut + c.Times(1.2))
			long.StillHeld("1.2 T after its renewals began to fail")
			long.GiveBack()
		},
	},
	{
		ID:      "renewal/one-in-flight",
		Rule:    "A lease has one renewal under way at a time: a second one by hand joins it.",
		Surface: OnLock,
		Run: func(c *C) {
			p := c.Peer("A")
			l := p.Try(c.Key("k"), locker.WithManualRenew())
			p.Faults(fmt.Sprintf("renew#1=delayback:%v", c.T/5))
			c.Each(3, func(int) {
				if err := l.Renew(c.Ctx); err != nil {
					c.fail(ByRule, soft(err), "Renew: got %v, want nil", err)
				}
			})
			c.InTime(p.Sent(faultlock.Renew) == 1, "renewals sent: got %d, want 1", p.Sent(faultlock.Renew))
			l.GiveBack()
		},
	},
	{
		ID:      "renewal/stops-at-release",
		Rule:    "Behind a release nothing more is renewed.",
		Surface: OnLock,
		Run: func(c *C) {
			p := c.Peer("A")
			l := p.Try(c.Key("k"))
			l.GiveBack()
			before := p.Sent(faultlock.Renew)
			c.Sleep(c.Times(1.2))
			n := p.Sent(faultlock.Renew) - before
			c.Must(n == 0, "renewals behind the release: got %d, want none", n)
		},
	},
	{
		ID:      "renewal/of-a-day",
		Rule:    "A day of renewals is exact: one per third of the ttl, no drift.",
		Surface: OnLock,
		Needs:   []Feature{FeatureVirtual},
		Run: func(c *C) {
			p := c.Peer("A")
			const ttl, day = 30 * time.Second, 24 * time.Hour
			l := p.Try(c.Key("k"), locker.WithTTL(ttl))
			p.Faults("renew=delayback:10ms") // or nothing could make it drift
			c.Sleep(day)
			l.StillHeld("after a day")
			n := p.Sent(faultlock.Renew)
			want := int(day / (ttl / 3))
			c.Must(n >= want && n <= want+1, "renewals of a day: got %d, want %d", n, want)
			l.GiveBack()
		},
	},
	{
		ID:      "renewal/idle-holder",
		Rule:    "An idle holder sends at most one renewal per third of the ttl, and one more.",
		Surface: OnLock,
		Push:    Size{TTLs: 3}, Full: Size{TTLs: 10},
		Run: func(c *C) {
			p := c.Peer("A")
			l := p.Try(c.Key("k"))
			begun, before := c.History.Now(), p.Sent()
			c.Sleep(c.For())
			elapsed := c.History.Now() - begun
			n := p.Sent() - before
			most := int((elapsed+c.T/3-1)/(c.T/3)) + 1
			c.InTime(n <= most, "requests of an idle holder in %v: got %d, want at most %d: %v", elapsed, n, most, p.Counts())
			l.StillHeld("after it was idle")
			l.GiveBack()
		},
	},
	{
		ID:      "renewal/release-errors-pass",
		Rule:    "A release that fails, or whose answer is lost, is sent again: it succeeds, and the key is free.",
		Surface: OnLock,
		Run: func(c *C) {
			kinds := []string{"release#1=before", "release#1=after", "release#1-2=before", "release#1-2=after"}
			c.Each(len(kinds), func(i int) {
				name, key := fmt.Sprint(i), c.Key(fmt.Sprint(i))
				a, b := c.Peer("A"+name), c.Peer("B"+name)
				l := a.Try(key)
				a.Faults(kinds[i])
				err := l.Give()
				c.Must(!errors.Is(err, driver.ErrLost) || !l.Early(), "with %s the release says %v, want nil", kinds[i], err)
				c.InTime(err == nil, "with %s the release says %v, want nil", kinds[i], err)
				b.Try(key).GiveBack()
			})
		},
	},
}
