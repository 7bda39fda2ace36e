package memlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/memlock"
)

func TestRenewMakesTheGrantLastItsTTLAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.try(request("k"))
		for range 10 {
			after(ttl / 2)
			g.Sent = driver.PackageNow() // as the core fills it in
			renewed := w.renew(g)
			equal(t, "renewed grant", renewed, driver.Grant{Request: g.Request, Token: 1, Left: ttl})
			equal(t, "ExpiresIn", w.tryHeld(request("k")).ExpiresIn, ttl)
		}
	})
}

func TestRenewComparesAttemptAndToken(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.try(request("k"))
		after(ttl / 2)
		other := g
		other.Attempt = driver.NewAttempt()
		w.renewLost(other)
		other = g
		other.Token++
		w.renewLost(other)
		other = g
		other.Key = "never used"
		w.renewLost(other)
		equal(t, "ExpiresIn", w.tryHeld(request("k")).ExpiresIn, ttl/2)
	})
}

func TestRenewOfWhatEndedIsLostAndTouchesNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.try(request("k"))
		after(ttl)
		w.renewLost(g)
		w.tryHeldBy(w.try(request("k")))
		w.renewLost(g)
		after(ttl / 2)
		w.renewLost(g)
		equal(t, "ExpiresIn", w.tryHeld(request("k")).ExpiresIn, ttl/2)
	})
}

// tryHeldBy checks that the key is held by that grant.
func (w *world) tryHeldBy(g driver.Grant) {
	w.t.Helper()
	held := w.tryHeld(request(g.Key))
	equal(w.t, "holder's attempt", held.Attempt, g.Attempt)
	equal(w.t, "holder's token", held.Token, g.Token)
}

func TestRenewBatchAnswersEachGrant(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b, c := w.try(request("a")), w.try(request("b")), w.try(request("c"))
		w.release(b.Request)
		after(ttl / 2)
		var errs [3]error
		err := w.client().RenewBatch(w.ctx, []driver.Grant{a, b, c}, func(i int, g driver.Grant, err error) {
			errs[i] = err
			if err == nil {
				equal(t, "Left", g.Left, ttl)
			}
		})
		equal(t, "RenewBatch", err, nil)
		w.is("a", errs[0], nil)
		w.is("b", errs[1], driver.ErrLost)
		w.is("c", errs[2], nil)
		equal(t, "ExpiresIn of c", w.inspect("c").ExpiresIn, ttl)
	})
}

func TestReleaseWorksFromTheRequestAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.try(request("k"))
		w.release(g.Request)
		equal(t, "token of the next grant", w.try(request("k")).Token, 2)
	})
}

func TestReleaseOfNothingIsLostAndTouchesNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.releaseLost(request("never used"))
		first := w.try(request("k"))
		w.release(first.Request)
		w.releaseLost(first.Request)
		second := w.try(request("k"))
		w.releaseLost(first.Request)
		w.tryHeldBy(second)
		after(ttl)
		w.releaseLost(second.Request)
		third := w.try(request("k"))
		w.releaseLost(second.Request)
		w.tryHeldBy(third)
	})
}

func TestEndedContextAppliesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ended, cancel := context.WithCancel(w.ctx)
		cancel()
		d := w.client()
		held := w.try(request("held"))
		for op, err := range calls(ended, d, held, request("k")) {
			w.is(op, err, driver.ErrUnavailable)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: got %v, want it to be %v too", op, err, context.Canceled)
			}
		}
		equal(t, "k held", w.inspect("k").Held, false)
		w.tryHeldBy(held)
	})
}

func TestCloseEndsTheClientNotItsGrants(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		d := w.client()
		held, err := d.TryAcquire(w.ctx, request("held"))
		equal(t, "error", err, nil)
		equal(t, "Close", d.Close(), nil)
		equal(t, "second Close", d.Close(), nil)
		for op, err := range calls(w.ctx, d, held, request("k")) {
			w.is(op, err, driver.ErrClosed)
		}
		w.tryHeldBy(held)
		w.release(held.Request) // another client may
	})
}

func TestCloseEndsWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		d := w.client()
		w.try(request("k"))
		deaf, err := d.Listen(w.ctx, request("k"))
		equal(t, "error", err, nil)
		r := request("k")
		queued, err := d.Listen(w.ctx, r)
		equal(t, "error", err, nil)
		_, err = d.Enqueue(w.ctx, r)
		w.held("Enqueue", err)
		errs := make(chan error)
		for _, ticket := range []driver.Ticket{deaf, queued} {
			go func() {
				_, err := ticket.Wait(w.ctx)
				errs <- err
			}()
		}
		synctest.Wait()
		equal(t, "Close", d.Close(), nil)
		w.is("Wait", <-errs, driver.ErrClosed)
		w.is("Wait", <-errs, driver.ErrClosed)
		deaf.Close()
		queued.Close()
	})
}

// calls makes one call of every operation and returns the errors by its name.
func calls(ctx context.Context, d *memlock.Driver, g driver.Grant, r driver.Request) map[string]error {
	errs := map[string]error{}
	_, errs["TryAcquire"] = d.TryAcquire(ctx, r)
	_, errs["Listen"] = d.Listen(ctx, r)
	_, errs["Enqueue"] = d.Enqueue(ctx, r)
	_, errs["Poll"] = d.Poll(ctx, r)
	_, errs["Renew"] = d.Renew(ctx, g)
	_ = d.RenewBatch(ctx, []driver.Grant{g}, func(_ int, _ driver.Grant, err error) { errs["RenewBatch"] = err })
	errs["Release"] = d.Release(ctx, g)
	errs["Break"] = d.Break(ctx, g.Key, g.Token, driver.Break{Now: true})
	_, errs["Inspect"] = d.Inspect(ctx, g.Key)
	for _, err := range d.List(ctx, "") {
		errs["List"] = err
	}
	errs["Ping"] = d.Ping(ctx)
	return errs
}

func TestInfo(t *testing.T) {
	t.Parallel()
	d := memlock.NewServer().Driver()
	info := d.Info()
	equal(t, "name", info.Name, "memlock")
	equal(t, "waiting", info.Waiting, driver.WaitQueue)
	equal(t, "package time", info.PackageTime, true)
	equal(t, "min ttl", info.MinTTL, 20*time.Millisecond)
	for _, f := range []driver.Feature{driver.FeatureProcesses, driver.FeatureFreeOnExit} {
		equal(t, string(f), info.Has(f), false)
	}
	equal(t, "features", len(info.Features), 9)
	equal(t, "Ping", d.Ping(t.Context()), nil)
}
