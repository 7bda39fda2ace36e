package memlock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/memlock"
)

// listen opens a ticket that the test closes.
func (w *world) listen(d *memlock.Driver, r driver.Request) driver.Ticket {
	w.t.Helper()
	ticket, err := d.Listen(w.ctx, r)
	if err != nil {
		w.t.Fatalf("Listen: got %v, want a ticket", err)
	}
	w.t.Cleanup(ticket.Close)
	return ticket
}

func TestAPushIsJudgedByTheLastAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		d, holder, r := w.client(), w.try(request("k")), request("k")
		ticket := w.listen(d, r)
		_, err := d.Enqueue(w.ctx, r)
		w.held("Enqueue", err)
		after(200 * time.Millisecond)
		polled := driver.PackageNow()
		_, err = d.Poll(w.ctx, r)
		w.held("Poll", err)
		after(100 * time.Millisecond)
		w.release(holder.Request)
		after(100 * time.Millisecond) // the push is fetched late
		g, err := ticket.Wait(w.ctx)
		equal(t, "error", err, nil)
		equal(t, "request", g.Request, r)
		equal(t, "token", g.Token, 2)
		equal(t, "Sent − poll", g.Sent.Sub(polled), 0)
		equal(t, "Left", g.Left, driver.ClaimWindow(ttl)+100*time.Millisecond)
	})
}

func TestReadingsAreRoundedUp(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		after(300 * time.Microsecond) // the server's clock now reads 1 ms
		d, r := w.client(), request("k")
		holder := w.try(request("k"))
		ticket := w.listen(d, r)
		_, err := d.Enqueue(w.ctx, r)
		w.held("Enqueue", err)
		w.release(holder.Request)
		want := driver.ClaimWindow(ttl) - 700*time.Microsecond
		g, err := ticket.Wait(w.ctx)
		equal(t, "error", err, nil)
		equal(t, "Left of the push", g.Left, want)
		equal(t, "Left of the poll", w.pollGrant(r).Left, want)
	})
}

func TestAPushThatOvertakesTheAnswerIsKept(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		d, holder, r := w.client(), w.try(request("k")), request("k")
		ticket := w.listen(d, r)
		// The request reached the server on another way: its answer is not here yet.
		w.enqueue(r)
		w.release(holder.Request)
		pushed := make(chan driver.Grant)
		go func() {
			g, err := ticket.Wait(w.ctx)
			w.is("Wait", err, nil)
			pushed <- g
		}()
		after(100 * time.Millisecond)
		select {
		case g := <-pushed:
			t.Fatalf("Wait: got %v before any answer, want it to wait for one", g)
		default:
		}
		now := driver.PackageNow()
		_, err := d.Enqueue(w.ctx, r)
		equal(t, "error", err, nil)
		g := <-pushed
		equal(t, "token", g.Token, 2)
		equal(t, "Sent − enqueue", g.Sent.Sub(now), 0)
		equal(t, "Left", g.Left, driver.ClaimWindow(ttl)-100*time.Millisecond)
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		d, r := w.client(), request("k")
		w.try(request("k"))
		ticket := w.listen(d, r)
		for _, state := range []string{"before an answer", "after it"} {
			ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
			start := time.Now()
			_, err := ticket.Wait(ctx)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("Wait %s: got %v, want %v", state, err, context.DeadlineExceeded)
			}
			equal(t, "waited "+state, time.Since(start), time.Minute)
			cancel()
			_, err = ticket.Wait(ctx)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("Wait with an ended context: got %v, want its error", err)
			}
			_, _ = d.Enqueue(w.ctx, r)
		}
	})
}

func TestTheCallersOwnGrantIsNotPushed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		d, r := w.client(), request("k")
		w.try(request("k"))
		ticket := w.listen(d, r)
		after(ttl / 2)
		_, err := d.Enqueue(w.ctx, r)
		w.held("Enqueue", err)
		after(ttl / 2)
		_, err = d.Poll(w.ctx, r)
		equal(t, "Poll", err, nil)
		ctx, cancel := context.WithTimeout(w.ctx, time.Second)
		defer cancel()
		if g, err := ticket.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Wait: got %v, %v, want nothing", g, err)
		}
	})
}

func TestANewerPushReplacesAnOlderOne(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		d, r := w.client(), request("k")
		ticket := w.listen(d, r)
		for range 2 {
			holder := w.try(request("k"))
			_, err := d.Enqueue(w.ctx, r)
			w.held("Enqueue", err)
			w.release(holder.Request) // pushes
			w.release(r)
		}
		g, err := ticket.Wait(w.ctx)
		equal(t, "error", err, nil)
		equal(t, "token", g.Token, 4)
	})
}

func TestAClosedTicketHearsAndReleasesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		d, holder, r := w.client(), w.try(request("k")), request("k")
		ticket := w.listen(d, r)
		_, err := d.Enqueue(w.ctx, r)
		w.held("Enqueue", err)
		ticket.Close()
		w.release(holder.Request)
		w.tryHeldBy(w.pollGrant(r))
		ticket.Close() // harmless
	})
}

func TestPushesGoToTheirOwnAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		d, holder := w.client(), w.try(request("k"))
		first, second := request("k"), request("k")
		tickets := []driver.Ticket{w.listen(d, first), w.listen(d, second)}
		for _, r := range []driver.Request{first, second} {
			_, err := d.Enqueue(w.ctx, r)
			w.held("Enqueue", err)
		}
		w.release(holder.Request)
		g, err := tickets[0].Wait(w.ctx)
		equal(t, "error", err, nil)
		equal(t, "attempt", g.Attempt, first.Attempt)
		ctx, cancel := context.WithTimeout(w.ctx, time.Millisecond)
		defer cancel()
		if g, err := tickets[1].Wait(ctx); err == nil {
			t.Fatalf("second ticket: got %v, want nothing", g)
		}
	})
}

// Many waiters, pushes only: everybody is served once, in order, one at a time.
func TestHandOffByPushesAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const waiters = 100
		holder := request("k")
		holder.TTL = time.Minute
		w.try(holder)
		var wg sync.WaitGroup
		served := make(chan driver.Token, waiters)
		for range waiters {
			d, r := w.client(), request("k")
			r.TTL = time.Minute
			ticket := w.listen(d, r)
			_, err := d.Enqueue(w.ctx, r)
			w.held("Enqueue", err)
			wg.Go(func() {
				g, err := ticket.Wait(w.ctx)
				if err != nil {
					t.Errorf("Wait: got %v, want a push", err)
					return
				}
				served <- g.Token
				if err := d.Release(w.ctx, g); err != nil {
					t.Errorf("Release: got %v, want nil", err)
				}
			})
		}
		synctest.Wait()
		w.release(holder)
		wg.Wait()
		close(served)
		want := driver.Token(2)
		for got := range served {
			equal(t, "token", got, want)
			want++
		}
		equal(t, "grants", want, waiters+2)
	})
}
