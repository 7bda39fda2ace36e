package memlock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/memlock"
)

func TestTryGrantsAFreeKey(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		r := request("k")
		got := w.try(r)
		equal(t, "grant", got, driver.Grant{Request: r, Token: 1, Left: ttl})
	})
}

func TestTryIsRefusedAndToldWhoHolds(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder := request("k")
		w.try(holder)
		after(300 * time.Millisecond)
		got := *w.tryHeld(request("k"))
		want := driver.HeldError{
			Owner: "owner", Note: "note", Token: 1, Attempt: holder.Attempt,
			ExpiresIn: 700 * time.Millisecond,
		}
		equal(t, "refusal", got, want)
	})
}

func TestKeysAreIndependent(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for _, key := range []string{"a", "a/b", "ab", "A", "ä", " ", "a\n"} {
			equal(t, "token of "+key, w.try(request(key)).Token, 1)
		}
	})
}

func TestGrantEndsAtItsExpiryNotAfterIt(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.try(request("k"))
		after(ttl - 1)
		w.tryHeld(request("k"))
		after(1)
		equal(t, "token", w.try(request("k")).Token, 2)
	})
}

func TestResentTryReturnsTheFirstGrantAndExtendsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		r := request("k")
		first := w.try(r)
		after(600 * time.Millisecond)
		// Zero Sent: the core counts Left from the attempt's first send.
		equal(t, "second answer", w.try(r), first)
		equal(t, "ExpiresIn", w.tryHeld(request("k")).ExpiresIn, 400*time.Millisecond)
	})
}

func TestResentTryOfAGrantFromTheQueueCountsWhatRemains(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder := w.try(request("k"))
		r := w.wait("k")
		w.release(holder.Request)
		after(100 * time.Millisecond)
		now := driver.PackageNow()
		got := w.try(r)
		// A copy of its try must not promise a ttl that the queue never gave.
		equal(t, "Left", got.Left, driver.ClaimWindow(ttl)-100*time.Millisecond)
		equal(t, "Sent − now", got.Sent.Sub(now), 0)
	})
}

func TestTokensRiseOverReleaseExpiryAndBreak(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		first := w.try(request("k"))
		w.release(first.Request)
		second := w.try(request("k"))
		after(ttl)
		third := w.try(request("k"))
		w.is("Break", w.client().Break(w.ctx, "k", third.Token, driver.Break{Now: true}), nil)
		fourth := w.try(request("k"))
		got := []driver.Token{first.Token, second.Token, third.Token, fourth.Token}
		for i, token := range got {
			equal(t, "token", token, driver.Token(i+1))
		}
	})
}

func TestAnAttemptSentAfterItsGrantEndedGetsAnotherToken(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		r := request("k")
		w.try(r)
		after(ttl)
		equal(t, "token", w.try(r).Token, 2)
	})
}

func TestFloorRaisesAndNeverLowersTheCounter(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for _, step := range []struct{ floor, want driver.Token }{{0, 1}, {41, 42}, {7, 43}, {43, 44}} {
			r := request("k")
			r.Floor = step.floor
			equal(t, "token", w.try(r).Token, step.want)
			w.release(r)
		}
	})
}

func TestNoTokenAboveTheGreatest(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		r := request("k")
		r.Floor = driver.MaxToken
		_, err := w.client().TryAcquire(w.ctx, r)
		w.is("TryAcquire", err, driver.ErrTokenRegression)
		_, err = w.client().Enqueue(w.ctx, r)
		w.is("Enqueue", err, driver.ErrTokenRegression)

		// In a queue such a place is passed over, and its poll says gone.
		holder := w.try(request("k"))
		w.enqueue(r)
		next := w.wait("k")
		w.release(holder.Request)
		w.pollGone(r)
		equal(t, "token", w.pollGrant(next).Token, 2)
	})
}

func TestTokenBase(t *testing.T) {
	t.Parallel()
	s := memlock.NewServer()
	d, err := s.Open(&memlock.Options{TokenBase: 1000})
	if err != nil {
		t.Fatal(err)
	}
	refused := request("k")
	refused.Floor = driver.MaxToken // leaves a record without a grant
	if _, err := d.TryAcquire(t.Context(), refused); err == nil {
		t.Fatal("TryAcquire above the greatest token: got a grant, want an error")
	}
	st, err := d.Inspect(t.Context(), "k")
	equal(t, "error", err, nil)
	equal(t, "token before any grant", st.Token, 0)
	g, err := d.TryAcquire(t.Context(), request("k"))
	equal(t, "error", err, nil)
	equal(t, "token", g.Token, 1001)

	if _, err := s.Open(nil); !errors.Is(err, driver.ErrLayout) {
		t.Fatalf("Open with another base: got %v, want %v", err, driver.ErrLayout)
	}
	if _, err := s.Open(&memlock.Options{TokenBase: 1000}); err != nil {
		t.Fatalf("Open with the same base: got %v, want nil", err)
	}
}

func TestTheFirstClientFixesTheBase(t *testing.T) {
	t.Parallel()
	s := memlock.NewServer()
	s.Driver()
	if _, err := s.Open(&memlock.Options{TokenBase: 5}); !errors.Is(err, driver.ErrLayout) {
		t.Fatalf("Open: got %v, want %v", err, driver.ErrLayout)
	}
}

func TestNamed(t *testing.T) {
	t.Parallel()
	s := memlock.Named(t.Name())
	if s != memlock.Named(t.Name()) {
		t.Fatal("got two servers for one name, want one")
	}
	if s == memlock.Named(t.Name()+"2") {
		t.Fatal("got one server for two names, want two")
	}
}

func TestImpossibleTTL(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for _, d := range []time.Duration{-1, 0, w.client().Info().MinTTL - 1} {
			r := request("k")
			r.TTL = d
			_, err := w.client().TryAcquire(w.ctx, r)
			w.is("TryAcquire", err, driver.ErrInvalidTTL)
			_, err = w.client().Enqueue(w.ctx, r)
			w.is("Enqueue", err, driver.ErrInvalidTTL)
		}
	})
}

func TestOneOfManyTriesIsGranted(t *testing.T) {
	t.Parallel()
	s := memlock.NewServer()
	for round := range 50 {
		var wg sync.WaitGroup
		grants := make(chan driver.Grant, 64)
		for range cap(grants) {
			d := s.Driver()
			wg.Go(func() {
				r := request("k")
				r.TTL = time.Hour
				g, err := d.TryAcquire(context.Background(), r)
				if err == nil {
					grants <- g
				} else if !errors.Is(err, driver.ErrHeld) {
					t.Errorf("TryAcquire: got %v, want %v", err, driver.ErrHeld)
				}
			})
		}
		wg.Wait()
		equal(t, "grants", len(grants), 1)
		g := <-grants
		equal(t, "token", g.Token, driver.Token(round+1))
		equal(t, "Release", s.Driver().Release(t.Context(), g), nil)
	}
}
