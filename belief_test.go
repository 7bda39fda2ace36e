package locker_test

import (
	"context"
	"testing"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/internal/seam"
)

// The ttl of these tests: deadline 9.9 s, grace 1 s, end 8.9 s.
const (
	ttl      = 10 * time.Second
	deadline = ttl - ttl/100
	end      = deadline - ttl/10
)

func tenSeconds() *locker.Options { return &locker.Options{TTL: ttl} }

func TestR01AcquireCountsFromTheFirstSend(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		tp.when(opTry, first(1, func(ctx context.Context, s seen, send next) (driver.Grant, error) {
			_, _ = send(ctx)
			<-time.After(2 * time.Second)
			return driver.Grant{}, driver.ErrAmbiguous
		}))
		begun := time.Now()
		lease := w.acquire(l, "k")
		if got, want := lease.Remaining(), end-time.Since(begun); !near(got, want) || time.Since(begun) < 2*time.Second {
			t.Errorf("remaining: got %v, want %v", got, want)
		}
	})
}

func TestR01RenewalCountsFromItsSend(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		lease := w.acquire(l, "k", locker.WithManualRenew())
		pass(time.Second)
		tp.when(opRenew, late(2*time.Second))
		w.wants(lease.Renew(w.ctx))
		if got, want := lease.Remaining(), end-2*time.Second; !near(got, want) {
			t.Errorf("remaining: got %v, want %v", got, want)
		}
	})
}

func TestR01DriverMaySetSent(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		tp.when(opTry, func(ctx context.Context, _ seen, send next) (driver.Grant, error) {
			g, err := send(ctx)
			g.Sent = driver.PackageNow().Add(-3 * time.Second)
			return g, err
		})
		if got, want := w.acquire(l, "k").Remaining(), end-3*time.Second; !near(got, want) {
			t.Errorf("remaining: got %v, want %v", got, want)
		}
	})
}

func TestR01QueuedGrantCountsFromItsPoll(t *testing.T) {
	inWorld(t, func(w *world) {
		holder := w.acquire(w.locker(tenSeconds()), "k")
		l, tp := w.tapped(tenSeconds())
		tp.when(opWait, func(ctx context.Context, _ seen, _ next) (driver.Grant, error) { // deaf
			<-ctx.Done()
			return driver.Grant{}, ctx.Err()
		})
		tp.when(opPoll, late(time.Second))
		got := make(chan *locker.Lease, 1)
		go func() { got <- w.acquire(l, "k") }()
		pass(time.Second)
		w.wants(holder.Release(w.ctx))
		lease := <-got
		// The claim window is two poll intervals of 2.5 s.
		if left, most := lease.Remaining(), 5*time.Second-time.Second; left > most {
			t.Errorf("remaining: got %v, want at most %v", left, most)
		}
	})
}

// suspendable is a Locker whose driver does not live on package time, so that a suspend of
// the machine shows.
func (w *world) suspendable() (*locker.Locker, *tap) {
	tp := &tap{d: w.server.Driver(), info: func(i driver.Info) driver.Info { i.PackageTime = false; return i }}
	return w.over(tp, tenSeconds()), tp
}

func TestR01SuspendCounts(t *testing.T) {
	inWorld(t, func(w *world) {
		l, _ := w.suspendable()
		lease := w.acquire(l, "k")
		seam.SkewBoot(l, time.Minute)
		w.wants(lease.Err(), locker.ErrLost)
		if lease.Valid() || lease.Remaining() != 0 {
			t.Error("the lease is valid after a suspend longer than its ttl")
		}
	})
}

func TestR02DoneWithoutAnyAnswer(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		lease := w.acquire(l, "k")
		begun := time.Now()
		tp.when(opRenew, func(context.Context, seen, next) (driver.Grant, error) {
			<-time.After(time.Hour) // a driver that breaks its contract
			return driver.Grant{}, driver.ErrAmbiguous
		})
		tp.when(opRelease, unavailable)
		<-lease.Done()
		if got := time.Since(begun); got != end {
			t.Errorf("Done after %v, want %v", got, end)
		}
		w.wants(lease.Err(), locker.ErrLost)
		<-time.After(2 * time.Hour)
	})
}

func TestR02SuspendClosesDoneUnasked(t *testing.T) {
	inWorld(t, func(w *world) {
		l, _ := w.suspendable()
		lease := w.acquire(l, "k")
		<-time.After(time.Second)
		seam.SkewBoot(l, time.Minute)
		begun := time.Now()
		<-lease.Done()
		if got := time.Since(begun); got > ttl/10 {
			t.Errorf("Done %v after the machine woke, want at most %v", got, ttl/10)
		}
	})
}

func TestR02ErrComparesTheClock(t *testing.T) {
	inWorld(t, func(w *world) {
		l, _ := w.suspendable()
		lease := w.acquire(l, "k", locker.WithManualRenew())
		seam.SkewBoot(l, end-time.Second)
		if !lease.Valid() {
			t.Error("not valid before its end")
		}
		seam.SkewBoot(l, time.Second)
		if lease.Valid() {
			t.Error("valid at its end")
		}
		select {
		case <-lease.Done():
		default:
			t.Error("Done is open although Err said lost")
		}
	})
}

func TestR03LateRenewalDoesNotCount(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		lease := w.acquire(l, "k")
		tp.when(opRenew, late(end)) // sent at a third, applied, answered after the end
		<-lease.Done()
		tp.when(opRenew, nil)
		pass(ttl)
		w.wants(lease.Err(), locker.ErrLost)
		w.wants(lease.Renew(w.ctx), locker.ErrLost)
		if lease.Valid() {
			t.Error("a lost lease came back")
		}
	})
}

func TestR03RenewalAnsweredAcrossASuspendDoesNotCount(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.suspendable()
		lease := w.acquire(l, "k")
		// Sent at a third of the ttl; the machine sleeps past the old end, though not past
		// the end that the renewal bought, and the answer is the first thing it sees.
		tp.when(opRenew, func(ctx context.Context, _ seen, send next) (driver.Grant, error) {
			g, err := send(ctx)
			seam.SkewBoot(l, 7*time.Second)
			return g, err
		})
		pass(2 * time.Second)
		seam.SkewBoot(l, 2*time.Second) // the boot clock is real: keep it in step with virtual time
		pass(ttl/3 + time.Millisecond)
		w.wants(lease.Err(), locker.ErrLost)
	})
}

func TestR03NoRenewalAfterTheEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		lease := w.acquire(l, "k")
		begun := time.Now()
		tp.when(opRenew, unavailable)
		<-lease.Done()
		_ = lease.Renew(w.ctx)
		pass(3 * ttl)
		for _, s := range tp.saw(opRenew) {
			if at := s.at.Sub(begun); at >= end || s.deadline.Sub(begun) > end {
				t.Errorf("renewal sent at %v with time until %v, want both before the end at %v", at, s.deadline.Sub(begun), end)
			}
		}
	})
}

func TestR03LostLeaseIsFreedOnlyAfterItsDeadline(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		lease := w.acquire(l, "k")
		begun := time.Now()
		tp.when(opRenew, unavailable)
		<-lease.Done()
		w.wants(lease.Release(w.ctx), locker.ErrLost)
		if n := tp.requests(opRelease); n != 0 {
			t.Fatalf("%d releases of a lost lease before its deadline", n)
		}
		pass(ttl)
		releases := tp.saw(opRelease)
		if len(releases) != 1 {
			t.Fatalf("%d releases, want the one undo", len(releases))
		}
		if at := releases[0].at.Sub(begun); at < deadline {
			t.Errorf("undone after %v, before its deadline %v", at, deadline)
		}
	})
}

func TestR03LossByAnswerEndsAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		lease := w.acquire(l, "k")
		tp.when(opRenew, func(context.Context, seen, next) (driver.Grant, error) { return driver.Grant{}, driver.ErrLost })
		begun := time.Now()
		<-lease.Done()
		if got := time.Since(begun); got > ttl/3 {
			t.Errorf("Done after %v, want with the first renewal", got)
		}
		w.wants(lease.Release(w.ctx), locker.ErrLost)
		pass(2 * ttl)
		if n := tp.requests(opRelease); n != 0 {
			t.Errorf("%d releases of a lease that the backend called lost, want none", n)
		}
	})
}
