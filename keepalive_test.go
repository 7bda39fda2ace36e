package locker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
)

func TestR04RenewalsAreAThirdApart(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		begun := time.Now()
		lease := w.acquire(l, "k")
		pass(10*ttl + time.Second)
		rs := tp.saw(opRenew)
		slot := ttl / 24
		if first := rs[0].at.Sub(begun); first > ttl/3 || first < ttl/3-slot {
			t.Errorf("first renewal after %v, want at most a slot of %v before %v", first, slot, ttl/3)
		}
		for i := 1; i < len(rs); i++ {
			if got := rs[i].at.Sub(rs[i-1].at); got != 8*slot {
				t.Errorf("renewal %d came %v after the one before, want %v", i, got, 8*slot)
			}
		}
		if got := len(rs); got < 30 || got > 31 {
			t.Errorf("%d renewals in %v, want 30 or 31", got, 10*ttl)
		}
		if !lease.Valid() {
			t.Error(lease.Err())
		}
	})
}

func TestR04LeasesOfOneTTLShareRequests(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		const n = 500
		for i := range n {
			w.acquire(l, fmt.Sprint(i))
			pass(ttl / n)
		}
		pass(ttl)
		tp.forget()
		pass(ttl / 3)
		if got := tp.requests(opBatch) + tp.requests(opRenew)/n; got > 8+1 {
			t.Errorf("%d requests per third of a ttl, want at most 8", got)
		}
		if got := tp.requests(opRenew); got < n-n/8 || got > n+n/8 {
			t.Errorf("%d renewals per third of a ttl, want about %d", got, n)
		}
	})
}

func TestR04BatchesAreBounded(t *testing.T) {
	inWorld(t, func(w *world) {
		tp := &tap{d: w.server.Driver(), info: func(i driver.Info) driver.Info { i.MaxBatch = 10; return i }}
		l := w.over(tp, tenSeconds())
		for i := range 95 {
			w.acquire(l, fmt.Sprint(i))
		}
		pass(ttl / 3)
		if got := tp.requests(opBatch); got != 10 {
			t.Errorf("%d requests for 95 leases in batches of 10, want 10", got)
		}
	})
}

func TestR04RetriesUntilTheEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		lease := w.acquire(l, "k")
		begun := time.Now()
		tp.when(opRenew, unavailable)
		<-lease.Done()
		if got := time.Since(begun); got != end {
			t.Errorf("lost after %v, want exactly %v", got, end)
		}
		rs := tp.saw(opRenew)
		if len(rs) > 8 || len(rs) < 6 {
			t.Errorf("%d tries, want 6 to 8", len(rs))
		}
		for i := 1; i < len(rs); i++ {
			if gap := rs[i].at.Sub(rs[i-1].at); gap > ttl/12 || gap < 50*time.Millisecond {
				t.Errorf("pause %d is %v, want 50ms to %v", i, gap, ttl/12)
			}
		}
	})
}

func TestR04FailedBatchStaysTogether(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		for i := range 200 {
			w.acquire(l, fmt.Sprint(i))
		}
		tp.when(opRenew, unavailable)
		pass(end)
		if got := tp.requests(opBatch); got > 8 {
			t.Errorf("%d requests for one batch that fails, want at most 8", got)
		}
	})
}

func TestR04RecoversFromFailures(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		lease := w.acquire(l, "k")
		tp.when(opRenew, first(3, unavailable))
		pass(5 * ttl)
		if !lease.Valid() {
			t.Error(lease.Err())
		}
	})
}

func TestR04ShortGrantIsRenewedSoonButNotAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		holder := w.acquire(w.locker(tenSeconds()), "k")
		for _, opts := range [][]locker.AcquireOption{nil, {locker.WithManualRenew()}} {
			l, tp := w.tapped(tenSeconds())
			got := make(chan *locker.Lease, 1)
			go func() { got <- w.acquire(l, "k", opts...) }()
			pass(time.Second)
			w.wants(holder.Release(w.ctx))
			lease := <-got
			begun := time.Now()
			left := lease.Grant().Left - time.Since(begun) // the claim window
			pass(400 * time.Millisecond)
			if n := tp.requests(opRenew); n != 0 {
				t.Errorf("%d renewals within 400ms of a hand-off: a short hold pays for them", n)
			}
			pass(200 * time.Millisecond)
			rs := tp.saw(opRenew)
			if len(rs) != 1 {
				t.Fatalf("%d renewals within 600ms of a grant with %v left, want 1", len(rs), left)
			}
			if d := rs[0].deadline.Sub(rs[0].at); d > left/3 {
				t.Errorf("the renewal may take %v, want at most a third of %v", d, left)
			}
			if r := lease.Remaining(); r < end-time.Second {
				t.Errorf("remaining: got %v, want a full ttl's", r)
			}
			holder = lease
		}
	})
}

func TestR04OneRenewalInFlight(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		lease := w.acquire(l, "k")
		tp.when(opRenew, late(time.Second))
		errs := make(chan error, 20)
		for range 20 {
			go func() { errs <- lease.Renew(w.ctx) }()
		}
		for range 20 {
			w.wants(<-errs)
		}
		if n := tp.requests(opRenew); n != 1 {
			t.Errorf("%d requests for 20 calls of Renew at once, want 1", n)
		}
	})
}

func TestR04RenewReportsFailureAndHonoursItsContext(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		lease := w.acquire(l, "k")
		tp.when(opRenew, unavailable)
		w.wants(lease.Renew(w.ctx), locker.ErrUnavailable)
		tp.when(opRenew, hang)
		ctx, cancel := context.WithTimeout(w.ctx, 100*time.Millisecond)
		defer cancel()
		w.wants(lease.Renew(ctx), context.DeadlineExceeded)
		if !lease.Valid() {
			t.Error("a failed Renew ended the lease")
		}
	})
}

func TestR04StuckKeyDelaysNobody(t *testing.T) {
	for name, make := range map[string]func(*world, *locker.Options) (*locker.Locker, *tap){
		"batched": (*world).tapped, "one by one": (*world).polling,
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				l, tp := make(w, tenSeconds())
				w.acquire(l, "stuck")
				good := w.acquire(l, "good")
				tp.when(opRenew, func(ctx context.Context, s seen, send next) (driver.Grant, error) {
					if s.req.Key == "stuck" {
						return hang(ctx, s, send)
					}
					return send(ctx)
				})
				pass(ttl / 3)
				if r := good.Remaining(); r < end-time.Second {
					t.Errorf("the neighbour of a stuck key has %v left, want it renewed", r)
				}
				begun := time.Now()
				w.wants(good.Release(w.ctx))
				if d := time.Since(begun); d > 0 {
					t.Errorf("its release took %v", d)
				}
			})
		})
	}
}

func TestR04ManualRenewalIsLeftAlone(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		lease := w.acquire(l, "k", locker.WithManualRenew())
		for range 10 {
			pass(ttl / 2)
			w.wants(lease.Renew(w.ctx))
			if got := lease.Remaining(); !near(got, end) {
				t.Errorf("remaining after Renew: got %v, want %v", got, end)
			}
		}
		if n := tp.requests(opRenew); n != 10 {
			t.Errorf("%d renewals, want the 10 by hand", n)
		}
		<-lease.Done()
		w.wants(lease.Err(), locker.ErrLost)
	})
}

func TestR04EachLeaseKeepsItsOwnTTL(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.locker(tenSeconds())
		short := w.acquire(l, "short", locker.WithTTL(2*time.Second))
		long := w.acquire(l, "long", locker.WithTTL(time.Minute))
		pass(10 * time.Minute)
		if short.TTL() != 2*time.Second || long.TTL() != time.Minute || !short.Valid() || !long.Valid() {
			t.Errorf("got %v (%v) and %v (%v)", short.TTL(), short.Err(), long.TTL(), long.Err())
		}
		if s, n := short.Remaining(), long.Remaining(); s > 2*time.Second || n < 30*time.Second {
			t.Errorf("remaining: got %v and %v", s, n)
		}
	})
}

func TestR04ADayOfRenewals(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(&locker.Options{TTL: 30 * time.Second})
		lease := w.acquire(l, "k")
		tok := lease.Token()
		pass(24 * time.Hour)
		// The first is due up to a slot early; then exactly one each ttl/3.
		if got, want := tp.requests(opRenew), 24*360; got != want && got != want+1 {
			t.Errorf("%d renewals in a day, want %d", got, want)
		}
		if !lease.Valid() || lease.Token() != tok {
			t.Errorf("after a day: %v, token %v, want %v", lease.Err(), lease.Token(), tok)
		}
	})
}

func TestMaxHoldEndsTheLease(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		lease := w.acquire(l, "k", locker.WithMaxHold(ttl*2))
		begun := time.Now()
		<-lease.Done()
		if got := time.Since(begun); got != 2*ttl {
			t.Errorf("Done after %v, want %v", got, 2*ttl)
		}
		w.wants(lease.Err(), locker.ErrMaxHold)
		tp.forget()
		if _, err := w.locker(tenSeconds()).TryAcquire(w.ctx, "k"); err == nil {
			t.Error("the key was free before release and deadline")
		}
		w.wants(lease.Release(w.ctx))
		w.wants(lease.Release(w.ctx), locker.ErrReleased)
		if _, err := w.locker(tenSeconds()).TryAcquire(w.ctx, "k"); err != nil {
			t.Errorf("after release: %v", err)
		}
		if n := tp.requests(opRenew); n != 0 {
			t.Errorf("%d renewals after the maximum", n)
		}
	})
}

func TestMaxHoldFreesTheKeyAtTheDeadline(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.locker(tenSeconds())
		lease := w.acquire(l, "k", locker.WithMaxHold(time.Second))
		begun := time.Now()
		other := w.acquire(w.locker(tenSeconds()), "k")
		if got := time.Since(begun); got > deadline+time.Second {
			t.Errorf("free after %v, want at the deadline", got)
		}
		w.wants(lease.Release(w.ctx), locker.ErrLost)
		if !other.Valid() {
			t.Error("the late release ended somebody else's lease")
		}
	})
}
