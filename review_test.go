package locker_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/internal/seam"
)

// Each of these was a bug once; docs/track-record.md has a row for it.

func (w *world) nothingLeft(l *locker.Locker) {
	w.Helper()
	if left := l.Left(); len(left) != 0 {
		w.Errorf("left in the Locker: %v", left)
	}
}

func TestSlowListenerKeepsNoContextAlive(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(&locker.Options{TTL: ttl, OnEvent: func(e locker.Event) {
			if e.Kind == locker.EventEnded {
				<-time.After(time.Minute)
			}
		}})
		begun := time.Now()
		var contexts []context.Context
		for i := range 5 {
			ctx, cancel := w.acquire(l, fmt.Sprint(i)).Context(w.ctx)
			t.Cleanup(cancel)
			contexts = append(contexts, ctx)
		}
		tp.when(opRenew, unavailable)
		for _, ctx := range contexts {
			<-ctx.Done()
		}
		if d := time.Since(begun); d != end {
			t.Errorf("the last context ended after %v, want %v: a listener kept it alive", d, end)
		}
		pass(10 * time.Minute)
	})
}

type queuer interface {
	driver.Driver
	driver.Queuer
}

func TestR04SuspendMakesRenewalsDue(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.suspendable()
		lease := w.acquire(l, "k")
		pass(time.Second)
		seam.SkewBoot(l, 6*time.Second) // 2.9 s are left, and a third of the ttl has long passed
		pass(ttl/10 + time.Millisecond)
		if n := tp.requests(opRenew); n != 1 || !lease.Valid() {
			t.Errorf("%d renewals after the machine woke (%v), want one at once", n, lease.Err())
		}
	})
}

func TestR04RenewByHandTakesNoAutomaticTry(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		lease := w.acquire(l, "k")
		tp.when(opRenew, first(10, unavailable))
		for range 10 {
			_ = lease.Renew(w.ctx)
		}
		pass(5 * ttl)
		w.wants(lease.Err())
	})
}

func TestR14OvertakenLeaseOfTheSameProcessEnds(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.locker(tenSeconds())
		old := w.acquire(l, "k")
		got := make(chan *locker.Lease, 1)
		go func() { got <- w.acquire(l, "k") }()
		synctest.Wait()
		w.wants(w.locker(nil).Break(w.ctx, "k", old.Token(), locker.Break{Now: true}))
		<-got
		w.wants(old.Err(), locker.ErrLost)
	})
}

func TestCancelledWaiterIsForgotten(t *testing.T) {
	for name, make := range map[string]func(*world, *locker.Options) (*locker.Locker, *tap){
		"queue": (*world).tapped, "poll": (*world).polling,
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				holder := w.acquire(w.locker(tenSeconds()), "k")
				l, _ := make(w, tenSeconds())
				for range 3 {
					_, err := l.Acquire(w.ctx, "k", locker.WithWait(time.Second))
					w.wants(err, locker.ErrHeld)
				}
				w.wants(holder.Release(w.ctx))
				pass(time.Second)
				lease, err := l.TryAcquire(w.ctx, "k")
				w.wants(err)
				w.wants(lease.Release(w.ctx))
				w.nothingLeft(l)
			})
		})
	}
}

func TestR05EnqueueBehindAnUnansweredTryIsAFreshAttempt(t *testing.T) {
	inWorld(t, func(w *world) {
		other := w.locker(tenSeconds())
		l, tp := w.tapped(tenSeconds())
		tp.when(opTry, func(ctx context.Context, s seen, send next) (driver.Grant, error) {
			if s.n > 1 {
				return send(ctx)
			}
			w.acquire(other, "k")
			return lostReply(ctx, s, send)
		})
		_, err := l.Acquire(w.ctx, "k", locker.WithWait(3*time.Second))
		w.wants(err, locker.ErrHeld)
		if try, place := tp.saw(opTry)[0].req.Attempt, tp.saw(opEnqueue)[0].req.Attempt; try == place {
			t.Error("the place carries an attempt whose first send may still be under way")
		}
	})
	inBubble(t, func(w *world) {
		w.acquire(w.locker(tenSeconds()), "k")
		l, tp := w.tapped(tenSeconds())
		_, err := l.Acquire(w.ctx, "k", locker.WithWait(3*time.Second))
		w.wants(err, locker.ErrHeld)
		if try, place := tp.saw(opTry)[0].req.Attempt, tp.saw(opEnqueue)[0].req.Attempt; try != place {
			t.Error("a fresh attempt although every send of the try was answered")
		}
	})
}

func TestReleaseOfAMaxHoldLeaseIsTheOnlyOne(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		lease := w.acquire(l, "k", locker.WithMaxHold(time.Second))
		if r := lease.Remaining(); r != time.Second {
			t.Errorf("remaining %v, want the maximum hold", r)
		}
		<-lease.Done()
		w.wants(lease.Release(w.ctx))
		pass(2 * ttl)
		if n := tp.requests(opRelease); n != 1 {
			t.Errorf("%d releases, want 1", n)
		}
	})
}

func TestR03SuspendReordersTheSchedule(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.suspendable()
		tp.when(opRenew, unavailable)
		long := w.acquire(l, "long", locker.WithTTL(time.Hour))
		short := w.acquire(l, "short")
		seam.SkewBoot(l, time.Hour)
		begun := time.Now()
		<-short.Done()
		<-long.Done()
		if d := time.Since(begun); d > ttl/10 {
			t.Errorf("Done after %v", d)
		}
	})
}

func TestSecondReleaseOfAMaxHoldLease(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.locker(tenSeconds())
		lease := w.acquire(l, "k", locker.WithMaxHold(time.Second))
		<-lease.Done()
		w.wants(lease.Release(w.ctx))
		w.wants(lease.Release(w.ctx), locker.ErrReleased)
	})
}
