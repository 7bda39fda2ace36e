package locker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
)

func TestR06ReleaseEndsTheBeliefBeforeItIsSent(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		lease := w.acquire(l, "k")
		valid := true
		tp.when(opRelease, func(ctx context.Context, _ seen, send next) (driver.Grant, error) {
			valid = lease.Valid()
			return send(ctx)
		})
		w.wants(lease.Release(w.ctx))
		if valid {
			t.Error("the lease was still valid while its release was under way")
		}
		w.wants(lease.Err(), locker.ErrReleased)
		w.wants(lease.Release(w.ctx), locker.ErrReleased)
		w.wants(lease.Renew(w.ctx), locker.ErrReleased)
		if n := tp.requests(opRelease); n != 1 {
			t.Errorf("%d releases, want 1", n)
		}
		w.free("k")
	})
}

func TestR06CancelledContextStillReleases(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		lease := w.acquire(l, "k")
		type keyed struct{}
		ctx, cancel := context.WithCancel(context.WithValue(w.ctx, keyed{}, "v"))
		cancel()
		tp.when(opRelease, func(ctx context.Context, _ seen, send next) (driver.Grant, error) {
			if ctx.Value(keyed{}) != "v" {
				t.Error("the context's values were lost")
			}
			return send(ctx)
		})
		w.wants(lease.Release(ctx))
		w.free("k")
	})
}

func TestR06NoRenewalAfterRelease(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		w.wants(w.acquire(l, "k").Release(w.ctx))
		pass(3 * ttl)
		if n := tp.requests(opRenew, opBatch); n != 0 {
			t.Errorf("%d renewals after the release", n)
		}
	})
}

func TestR06ReleaseOvertakesARenewal(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		lease := w.acquire(l, "k")
		tp.when(opRenew, late(time.Second))
		pass(ttl / 3)
		begun := time.Now()
		w.wants(lease.Release(w.ctx))
		if d := time.Since(begun); d != 0 {
			t.Errorf("the release waited %v for a renewal", d)
		}
		pass(2 * time.Second)
		w.wants(lease.Err(), locker.ErrReleased)
	})
}

// stateful makes renewals change what a release must carry, as an ETag does.
func (w *world) stateful() (*locker.Locker, *tap) {
	tp := &tap{d: w.server.Driver(), info: func(i driver.Info) driver.Info { i.RenewChangesState = true; return i }}
	tp.when(opRenew, func(ctx context.Context, _ seen, send next) (driver.Grant, error) {
		g, err := send(ctx)
		<-time.After(time.Second)
		g.State = "renewed"
		return g, err
	})
	return w.over(bare{tp}, tenSeconds()), tp
}

func TestR06ReleaseWaitsForARenewalThatChangesState(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.stateful()
		lease := w.acquire(l, "k")
		pass(ttl / 3)
		begun := time.Now()
		w.wants(lease.Release(w.ctx))
		if d := time.Since(begun); d == 0 || d > time.Second {
			t.Errorf("the release waited %v, want for the renewal's answer", d)
		}
		if got := tp.saw(opRelease)[0].grant.State; got != "renewed" {
			t.Errorf("state: got %v, want what the renewal said", got)
		}
	})
}

func TestR06ReleaseWaitsNoLongerThanAQuarter(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.stateful()
		lease := w.acquire(l, "k")
		tp.when(opRenew, hang)
		pass(ttl / 3)
		begun := time.Now()
		w.wants(lease.Release(w.ctx))
		if d := time.Since(begun); d != 5*time.Second/4 {
			t.Errorf("the release waited %v, want %v", d, 5*time.Second/4)
		}
	})
}

func TestR06UndoCarriesTheNewestState(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.stateful()
		lease := w.acquire(l, "k")
		tp.when(opRenew, func(ctx context.Context, s seen, send next) (driver.Grant, error) {
			g, err := send(ctx)
			g.State = s.n
			if s.n == 3 { // applied, and answered between end and deadline
				<-time.After(6 * time.Second)
			}
			return g, err
		})
		<-lease.Done()
		pass(ttl)
		if got := tp.saw(opRelease)[0].grant.State; got != 3 {
			t.Errorf("undo carried state %v, want 3", got)
		}
	})
}

func TestR06UnansweredReleaseIsRepeated(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		lease := w.acquire(l, "k")
		tp.when(opRelease, first(2, lostReply))
		w.wants(lease.Release(w.ctx)) // applied by the first send; "not mine" to the third is success
		w.free("k")
		if n := tp.requests(opRelease); n != 3 {
			t.Errorf("%d sends, want 3", n)
		}
	})
}

func TestR06DeadBackendDoesNotHoldARelease(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(&locker.Options{TTL: ttl, ReleaseTimeout: time.Second})
		lease := w.acquire(l, "k")
		tp.when(opRelease, hang)
		begun := time.Now()
		w.wants(lease.Release(w.ctx), locker.ErrAmbiguous)
		if d := time.Since(begun); d > time.Second {
			t.Errorf("Release took %v, want at most its timeout", d)
		}
		tp.when(opRelease, nil) // it heals, and the background finishes the job
		pass(5 * time.Second)
		w.free("k")
	})
}

func TestR14BrokenLeaseEndsAndTheNextTokenIsGreater(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.locker(tenSeconds()), w.locker(tenSeconds())
		lease := w.acquire(a, "k")
		begun := time.Now()
		err := b.Break(w.ctx, "k", lease.Token()+1, locker.Break{})
		w.wants(err, locker.ErrHeld)
		if !lease.Valid() {
			t.Error("a break with a wrong token ended the lease")
		}
		w.wants(b.Break(w.ctx, "k", lease.Token(), locker.Break{By: "ops", Reason: "stuck"}))
		next := w.acquire(b, "k")
		if got := time.Since(begun); got < ttl {
			t.Errorf("given away %v after the grant, before its deadline", got)
		}
		w.wants(lease.Err(), locker.ErrLost)
		w.wants(lease.Release(w.ctx), locker.ErrLost)
		if next.Token() <= lease.Token() || !next.Valid() {
			t.Errorf("next token %v (%v), want greater than %v and valid", next.Token(), next.Err(), lease.Token())
		}
		w.wants(b.Break(w.ctx, "free", 1, locker.Break{}), locker.ErrLost)
	})
}

func TestR14BreakNowGivesTheKeyAwayAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.locker(tenSeconds()), w.locker(tenSeconds())
		lease := w.acquire(a, "k")
		w.wants(b.Break(w.ctx, "k", lease.Token(), locker.Break{Now: true}))
		if next := w.acquire(b, "k", locker.WithWait(time.Millisecond)); next.Token() <= lease.Token() {
			t.Errorf("token %v, want greater than %v", next.Token(), lease.Token())
		}
	})
}

func TestR14BreakNeedsTheHoldersToken(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.locker(tenSeconds())
		lease := w.acquire(l, "k")
		for _, tok := range []locker.Token{0, driver.MaxToken + 1} {
			err := l.Break(w.ctx, "k", tok, locker.Break{Now: true})
			if err == nil || errors.Is(err, locker.ErrHeld) {
				t.Errorf("token %d: got %v, want it refused before any request", uint64(tok), err)
			}
		}
		if !lease.Valid() {
			t.Error(lease.Err())
		}
	})
}
