package memlock_test

import (
	"testing"
	"time"

	"github.com/fencelock/locker/driver"
)

func TestEnqueueTakesAFreeKeyForItsTTL(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		r := request("k")
		g, err := w.client().Enqueue(w.ctx, r)
		equal(t, "error", err, nil)
		equal(t, "Left", g.Left, ttl)
		equal(t, "token", g.Token, 1)
		w.tryHeldBy(g)
	})
}

func TestQueueIsServedInTheOrderOfArrival(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder := w.try(request("k")).Request
		var queue []driver.Request
		for i := range 5 {
			r := request("k")
			equal(t, "Ahead", w.enqueue(r).Ahead, i)
			queue = append(queue, r)
		}
		for i, r := range queue {
			w.release(holder)
			equal(t, "token", w.pollGrant(r).Token, driver.Token(i+2))
			for ahead, later := range queue[i+1:] {
				equal(t, "Ahead", w.pollHeld(later).Ahead, ahead)
			}
			holder = r
		}
	})
}

func TestResentEnqueueFindsItsPlace(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.try(request("k"))
		first, second := w.wait("k"), w.wait("k")
		equal(t, "Ahead of the first", w.enqueue(first).Ahead, 0)
		equal(t, "Ahead of the second", w.enqueue(second).Ahead, 1)
		equal(t, "Waiters", w.inspect("k").Waiters, 2)
	})
}

func TestResentEnqueueFindsItsGrant(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder := w.try(request("k"))
		r := w.wait("k")
		w.release(holder.Request)
		after(100 * time.Millisecond)
		now := driver.PackageNow()
		g, err := w.client().Enqueue(w.ctx, r)
		equal(t, "error", err, nil)
		equal(t, "token", g.Token, 2)
		equal(t, "Left", g.Left, driver.ClaimWindow(ttl)-100*time.Millisecond)
		equal(t, "Sent − now", g.Sent.Sub(now), 0)
	})
}

func TestAPlaceLivesForItsHorizon(t *testing.T) {
	horizon := driver.Horizon(ttl)
	inBubble(t, func(t *testing.T, w *world) {
		g := w.try(request("k"))
		r := w.wait("k")
		for range 3 { // each poll counts anew
			after(horizon - 1)
			w.renew(g)
			w.pollHeld(r)
		}
		after(horizon - 1)
		w.renew(g)
		equal(t, "Waiters just before the horizon", w.inspect("k").Waiters, 1)
		after(1)
		equal(t, "Waiters at the horizon", w.inspect("k").Waiters, 0)
		w.pollGone(r) // and a late poll does not bring it back
		w.pollGone(r)
		w.release(g.Request)
		equal(t, "Held", w.inspect("k").Held, false)
	})
}

func TestAResentEnqueueKeepsAPlaceAlive(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.try(request("k"))
		r := w.wait("k")
		after(driver.Horizon(ttl) - 1)
		w.renew(g)
		w.enqueue(r)
		after(driver.Horizon(ttl) - 1)
		w.pollHeld(r)
	})
}

func TestADeadWaiterIsPassedOver(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.try(request("k"))
		dead := w.wait("k")
		after(driver.Horizon(ttl) / 2)
		alive := w.wait("k")
		after(driver.Horizon(ttl) / 2)
		w.release(g.Request)
		w.tryHeldBy(w.pollGrant(alive))
		w.pollGone(dead)
	})
}

func TestTheHorizonIsTheWaitersOwn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder := request("k")
		holder.TTL = time.Minute
		w.try(holder)
		slow, quick := request("k"), w.wait("k")
		slow.TTL = 30 * time.Second
		w.enqueue(slow)
		after(driver.Horizon(slow.TTL) - 1)
		equal(t, "Ahead of the slow one", w.pollHeld(slow).Ahead, 0)
		w.pollGone(quick)
	})
}

func TestAGrantFromTheQueueLastsItsClaimWindow(t *testing.T) {
	window := driver.ClaimWindow(ttl)
	inBubble(t, func(t *testing.T, w *world) {
		holder := w.try(request("k"))
		killed, next := w.wait("k"), w.wait("k")
		w.release(holder.Request)
		after(window - 1)
		equal(t, "attempt just before its end", w.inspect("k").Attempt, killed.Attempt)
		w.pollHeld(next)
		after(1)
		equal(t, "token of the next", w.pollGrant(next).Token, 3)
		w.pollGone(killed)
	})
}

func TestTheFirstRenewalExtendsAClaim(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder := w.try(request("k"))
		r := w.wait("k")
		w.release(holder.Request)
		after(driver.ClaimWindow(ttl) / 2)
		equal(t, "Left", w.renew(w.pollGrant(r)).Left, ttl)
		equal(t, "ExpiresIn", w.inspect("k").ExpiresIn, ttl)
	})
}

func TestPollNeverExtendsAndNeverEnqueues(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.pollGone(request("never used"))
		holder := w.try(request("k"))
		w.pollGone(request("k"))
		equal(t, "Waiters", w.inspect("k").Waiters, 0)
		r := w.wait("k")
		w.release(holder.Request)
		equal(t, "first Left", w.pollGrant(r).Left, driver.ClaimWindow(ttl))
		after(100 * time.Millisecond)
		equal(t, "second Left", w.pollGrant(r).Left, driver.ClaimWindow(ttl)-100*time.Millisecond)
	})
}

// Whoever finds the key free or expired hands it on; who only looks, or has lost,
// changes nothing.
func TestWhoHandsOn(t *testing.T) {
	for _, c := range []struct {
		name string
		look func(w *world, lapsed driver.Grant, waiter driver.Request)
		want bool
	}{
		{"try", func(w *world, _ driver.Grant, _ driver.Request) { w.tryHeld(request("k")) }, true},
		{"enqueue", func(w *world, _ driver.Grant, _ driver.Request) { w.wait("k") }, true},
		{"poll", func(w *world, _ driver.Grant, r driver.Request) { w.pollGrant(r) }, true},
		{"poll of a stranger", func(w *world, _ driver.Grant, _ driver.Request) { w.pollGone(request("k")) }, true},
		{"late release", func(w *world, g driver.Grant, _ driver.Request) { w.releaseLost(g.Request) }, true},
		{"late renewal", func(w *world, g driver.Grant, _ driver.Request) { w.renewLost(g) }, false},
		{"inspect", func(w *world, _ driver.Grant, _ driver.Request) { w.inspect("k") }, false},
		{"list", func(w *world, _ driver.Grant, _ driver.Request) {
			for st, err := range w.client().List(w.ctx, "") {
				w.t.Fatalf("got %v, %v, want nothing: the grant has expired", st, err)
			}
		}, false},
		{"late break", func(w *world, g driver.Grant, _ driver.Request) {
			w.is("Break", w.client().Break(w.ctx, "k", g.Token, driver.Break{Now: true}), driver.ErrLost)
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				g := w.try(request("k"))
				after(ttl / 2)
				waiter := w.wait("k")
				after(ttl / 2)
				c.look(w, g, waiter)
				st := w.inspect("k")
				equal(t, "held", st.Held, c.want)
				if c.want {
					equal(t, "attempt", st.Attempt, waiter.Attempt)
				} else {
					equal(t, "Waiters", st.Waiters, 1)
				}
			})
		})
	}
}

func TestATryNeverOvertakesTheQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.try(request("k"))
		after(ttl / 2)
		first := w.wait("k")
		w.wait("k")
		after(ttl / 2)
		equal(t, "holder that the try is told of", w.tryHeld(request("k")).Attempt, first.Attempt)
		equal(t, "Waiters", w.inspect("k").Waiters, 1)
	})
}

func TestAPlaceKeepsItsFloor(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder := w.try(request("k"))
		r := request("k")
		r.Floor = 41
		w.enqueue(r)
		w.release(holder.Request)
		equal(t, "token", w.pollGrant(r).Token, 42)
	})
}

func TestACancelledPlaceIsRemovedFromTheRequestAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder := w.try(request("k"))
		first, second, third := w.wait("k"), w.wait("k"), w.wait("k")
		w.release(second)
		w.pollGone(second)
		w.releaseLost(second)
		equal(t, "Ahead of the third", w.pollHeld(third).Ahead, 1)
		w.release(holder.Request)
		w.release(first) // granted meanwhile: released
		w.tryHeldBy(w.pollGrant(third))
	})
}

func TestExpiryByTheCrowdAndTheQueueTogether(t *testing.T) {
	// The holder and a waiter before us die: we have the key within what G6 allows.
	inBubble(t, func(t *testing.T, w *world) {
		w.try(request("k"))
		w.wait("k") // dies at once
		r := w.wait("k")
		start := time.Now()
		for {
			after(driver.PollInterval(ttl))
			g, err := w.client().Poll(w.ctx, r)
			if err == nil {
				equal(t, "token", g.Token, 2)
				break
			}
			w.held("Poll", err)
		}
		bound := ttl + driver.Horizon(ttl) + driver.ClaimWindow(ttl)
		if got := time.Since(start); got > bound {
			t.Fatalf("waited: got %v, want at most %v", got, bound)
		}
	})
}
