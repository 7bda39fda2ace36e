package memlock_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/locker/driver"
)

func TestInspect(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		equal(t, "never used", w.inspect("k"), driver.State{Key: "k"})
		g := w.try(request("k"))
		after(ttl / 2)
		waiter := w.wait("k")
		equal(t, "held", w.inspect("k"), driver.State{
			Key: "k", Held: true, Token: 1, Attempt: g.Attempt, Owner: "owner", Note: "note",
			HeldFor: ttl / 2, ExpiresIn: ttl / 2, Waiters: 1,
		})
		w.renew(g)
		after(ttl / 4)
		w.pollHeld(waiter)
		equal(t, "HeldFor", w.inspect("k").HeldFor, ttl*3/4)
		equal(t, "ExpiresIn", w.inspect("k").ExpiresIn, ttl*3/4)
		w.release(waiter)
		after(ttl)
		equal(t, "lapsed", w.inspect("k"), driver.State{Key: "k", Token: 1})
		w.release(w.try(request("k")).Request)
		equal(t, "released", w.inspect("k"), driver.State{Key: "k", Token: 2})
	})
}

func TestListYieldsWhatIsHeldByPrefix(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const n = 600 // more than two pages
		for i := range n {
			w.try(request(fmt.Sprintf("a/%03d", i)))
		}
		w.try(request("b/0"))
		w.release(w.try(request("a/released")).Request)
		var got []string
		for st, err := range w.client().List(w.ctx, "a/") {
			equal(t, "error", err, nil)
			equal(t, "held", st.Held, true)
			got = append(got, st.Key)
			// The server's lock is free while we look at a state.
			equal(t, "token", w.inspect(st.Key).Token, st.Token)
		}
		equal(t, "keys", len(got), n)
		for i, key := range got {
			equal(t, "key", key, fmt.Sprintf("a/%03d", i))
		}
		for _, err := range w.client().List(w.ctx, "a/") {
			equal(t, "error", err, nil)
			break // must not go on yielding
		}
	})
}

func TestListEndsAfterItsFirstError(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for i := range 600 {
			w.try(request(fmt.Sprint(i)))
		}
		ctx, cancel := context.WithCancel(w.ctx)
		defer cancel()
		var states, errs int
		for _, err := range w.client().List(ctx, "") {
			if err != nil {
				w.is("List", err, driver.ErrUnavailable)
				errs++
				continue
			}
			states++
			cancel()
		}
		equal(t, "errors", errs, 1)
		if states == 0 || states == 600 {
			t.Fatalf("states: got %d, want the first page only", states)
		}
	})
}

func TestBreakWaitsForTheDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.try(request("k"))
		after(ttl / 2)
		waiter := w.wait("k")
		b := driver.Break{By: "ops", Reason: "stuck"}
		w.is("Break", w.client().Break(w.ctx, "k", g.Token, b), nil)
		w.is("Break again", w.client().Break(w.ctx, "k", g.Token, b), nil)
		w.renewLost(g)
		w.releaseLost(g.Request)

		st := w.inspect("k")
		if st.Attempt == g.Attempt || st.Attempt.IsZero() {
			t.Fatalf("attempt: got %v, want nobody's", st.Attempt)
		}
		st.Attempt = driver.Attempt{}
		equal(t, "state", st, driver.State{
			Key: "k", Held: true, Broken: true, Token: 1, Owner: "owner", Note: "note; broken by ops: stuck",
			HeldFor: ttl / 2, ExpiresIn: ttl / 2, Waiters: 1,
		})

		after(ttl/2 - 1)
		w.pollHeld(waiter)
		// The holder's own try, sent again, finds somebody else: its grant is broken.
		w.tryHeld(g.Request)
		after(1)
		equal(t, "token after the deadline", w.pollGrant(waiter).Token, 2)
	})
}

func TestBreakNowGivesTheKeyAwayAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.try(request("k"))
		waiter := w.wait("k")
		now := driver.Break{Now: true}
		w.is("Break", w.client().Break(w.ctx, "k", g.Token, driver.Break{}), nil)
		w.is("Break now", w.client().Break(w.ctx, "k", g.Token, now), nil)
		equal(t, "attempt at once", w.inspect("k").Attempt, waiter.Attempt)
		w.renewLost(g)
		w.releaseLost(g.Request)
		w.tryHeldBy(w.pollGrant(waiter))
	})
}

func TestBreakNeedsTheHoldersToken(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for _, b := range []driver.Break{{}, {Now: true}} {
			w.is("Break of a key never used", w.client().Break(w.ctx, "k", 1, b), driver.ErrLost)
		}
		old := w.try(request("k"))
		w.release(old.Request)
		for _, b := range []driver.Break{{}, {Now: true}} {
			w.is("Break of a free key", w.client().Break(w.ctx, "k", old.Token, b), driver.ErrLost)
		}
		g := w.try(request("k"))
		for _, b := range []driver.Break{{}, {Now: true}} {
			held := w.held("Break", w.client().Break(w.ctx, "k", old.Token, b))
			equal(t, "holder", held.Attempt, g.Attempt)
		}
		w.renew(g)
	})
}

func TestABreakIsExplainedInTheNote(t *testing.T) {
	for _, c := range []struct {
		b    driver.Break
		want string
	}{
		{driver.Break{}, "note; broken"},
		{driver.Break{By: "ops"}, "note; broken by ops"},
		{driver.Break{Reason: "stuck"}, "note; broken: stuck"},
	} {
		t.Run(strings.ReplaceAll(c.want, " ", "_"), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				g := w.try(request("k"))
				w.is("Break", w.client().Break(w.ctx, "k", g.Token, c.b), nil)
				equal(t, "note", w.tryHeld(request("k")).Note, c.want)
				after(time.Second)
			})
		})
	}
}
