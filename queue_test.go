package locker_test

import (
	"context"
	"errors"
	"regexp"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
)

func TestR07LocalCallsAreServedInOrder(t *testing.T) {
	for name, make := range map[string]func(*world, *locker.Options) (*locker.Locker, *tap){
		"queue": (*world).tapped, "poll": (*world).polling,
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				l, tp := make(w, tenSeconds())
				holder := w.acquire(l, "k")
				var mu sync.Mutex
				var order []int
				var wg sync.WaitGroup
				atBackend := map[driver.Attempt]bool{}
				for i := range 20 {
					wg.Go(func() {
						lease := w.acquire(l, "k")
						mu.Lock()
						order = append(order, i)
						atBackend[lease.Grant().Attempt] = true
						mu.Unlock()
						if got := lease.Token(); got != driver.Token(i+2) {
							t.Errorf("call %d got token %v, want %d", i, got, i+2)
						}
						<-time.After(100 * time.Millisecond)
						w.wants(lease.Release(w.ctx))
					})
					synctest.Wait()
				}
				if n := len(tp.saw(opListen)); n > 1 {
					t.Errorf("%d calls of one Locker wait at the backend for one key, want 1", n)
				}
				w.wants(holder.Release(w.ctx))
				wg.Wait()
				for i, got := range order {
					if got != i {
						t.Fatalf("served in order %v", order)
					}
				}
				if len(atBackend) != 20 {
					t.Errorf("%d attempts for 20 grants: a grant was passed on", len(atBackend))
				}
			})
		})
	}
}

func TestR07TwoRequestsPerHandOff(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(&locker.Options{TTL: 30 * time.Second})
		const n = 1000
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				lease, err := l.Acquire(w.ctx, "k")
				if err != nil {
					t.Error(err)
					return
				}
				<-time.After(5 * time.Millisecond)
				_ = lease.Release(w.ctx)
			})
		}
		wg.Wait()
		if got := tp.requests(opTry, opEnqueue, opPoll, opRelease, opRenew); got > 2*n+1 {
			t.Errorf("%d requests for %d hand-offs, want two each", got, n)
		}
	})
}

func TestR07NextWaiterQueuesWhileThisLockerHolds(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		holder := w.acquire(l, "k")
		got := make(chan *locker.Lease, 1)
		go func() { got <- w.acquire(l, "k") }()
		synctest.Wait()
		if n, m := tp.requests(opEnqueue), tp.requests(opTry); n != 1 || m != 1 {
			t.Errorf("%d places and %d tries while the Locker holds the key, want 1 and the holder's own", n, m)
		}
		begun := time.Now()
		w.wants(holder.Release(w.ctx))
		<-got
		if d := time.Since(begun); d != 0 {
			t.Errorf("the hand-off took %v", d)
		}
	})
}

func TestR07PollerStartsWhenTheLocalHolderIsDone(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.polling(tenSeconds())
		holder := w.acquire(l, "k")
		got := make(chan *locker.Lease, 1)
		go func() { got <- w.acquire(l, "k") }()
		pass(ttl)
		if n := tp.requests(opTry); n != 1 {
			t.Errorf("%d tries while this Locker holds the key, want the holder's own", n)
		}
		begun := time.Now()
		w.wants(holder.Release(w.ctx))
		<-got
		if d := time.Since(begun); d != 0 {
			t.Errorf("the hand-off took %v", d)
		}
	})
}

func TestR07TryAcquireAnswersWithoutARequest(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(&locker.Options{TTL: ttl, Owner: "me"})
		holder := w.acquire(l, "k")
		n := len(tp.saw(opTry))
		_, err := l.TryAcquire(w.ctx, "k")
		w.wants(err, locker.ErrHeld)
		var held *locker.HeldError
		if !errors.As(err, &held) || held.Token != holder.Token() || held.Owner != "me" || held.ExpiresIn <= 0 || held.ExpiresIn > ttl {
			t.Errorf("got %+v, want this Locker's own lease", held)
		}
		w.wants(holder.Release(w.ctx))

		// Behind a waiter.
		other := w.acquire(w.locker(&locker.Options{TTL: ttl, Owner: "other"}), "k")
		go func() { _, _ = l.Acquire(w.ctx, "k", locker.WithWait(time.Second)) }()
		synctest.Wait()
		n2 := len(tp.saw(opTry))
		_, err = l.TryAcquire(w.ctx, "k")
		if !errors.As(err, &held) || held.Token != other.Token() || held.Owner != "other" {
			t.Errorf("got %v, want the holder that the waiter was told", err)
		}
		if got := len(tp.saw(opTry)) - n2; got != 0 || n != 1 {
			t.Errorf("%d requests", got)
		}
		pass(2 * time.Second)
	})
}

func TestR07TryAcquireWaitsForAnAttemptInFlight(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer handler
		want   error
		sends  int
	}{
		{"granted", late(time.Second), locker.ErrHeld, 1},
		{"refused", func(context.Context, seen, next) (driver.Grant, error) {
			<-time.After(time.Second)
			return driver.Grant{}, &driver.HeldError{Owner: "x", Token: 9}
		}, locker.ErrHeld, 1},
		{"failed", func(ctx context.Context, s seen, send next) (driver.Grant, error) {
			if s.n > 1 {
				return send(ctx)
			}
			<-time.After(time.Second)
			return driver.Grant{}, driver.ErrUnavailable
		}, nil, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				l, tp := w.tapped(tenSeconds())
				tp.when(opTry, c.answer)
				go func() { _, _ = l.TryAcquire(w.ctx, "k") }()
				synctest.Wait()
				begun := time.Now()
				lease, err := l.TryAcquire(w.ctx, "k")
				if c.want == nil {
					w.wants(err)
					if !lease.Valid() {
						t.Error("not valid")
					}
				} else {
					w.wants(err, c.want)
				}
				if got := time.Since(begun); got != time.Second {
					t.Errorf("answered after %v, want with the first call's answer", got)
				}
				if n := tp.requests(opTry); n != c.sends {
					t.Errorf("%d requests, want %d", n, c.sends)
				}
			})
		})
	}
}

func TestR07CancelledWaiterLeavesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		holder := w.acquire(w.locker(tenSeconds()), "k")
		begun := time.Now()
		_, err := l.Acquire(w.ctx, "k", locker.WithWait(2*time.Second))
		w.wants(err, locker.ErrHeld, context.DeadlineExceeded)
		if d := time.Since(begun); d != 2*time.Second {
			t.Errorf("waited %v, want 2s", d)
		}
		pass(0)
		if s, _ := w.server.Driver().Inspect(w.ctx, "k"); s.Waiters != 0 {
			t.Errorf("%d places left behind", s.Waiters)
		}
		closed := tp.saw(opClose)
		if undo := tp.saw(opRelease); len(closed) != 1 || len(undo) != 1 {
			t.Errorf("%d tickets closed and %d undos, want 1 and 1", len(closed), len(undo))
		}
		calls := tp.saw(opClose, opRelease)
		if calls[0].op != opClose {
			t.Error("the place was undone before its ticket was closed")
		}
		w.wants(holder.Release(w.ctx))
	})
}

func TestWaitErrorIsOneLine(t *testing.T) {
	inWorld(t, func(w *world) {
		w.acquire(w.locker(&locker.Options{TTL: ttl, Owner: "web-3:81"}), "k")
		_, err := w.locker(tenSeconds()).Acquire(w.ctx, "k", locker.WithWait(2*time.Second))
		want := regexp.MustCompile(`^memlock: acquire "k": waited 2s: held by web-3:81 \(token 1, [0-9.]+s left\)$`)
		if !want.MatchString(err.Error()) {
			t.Errorf("got %s, want %s", err, want)
		}
	})
}

func TestWaitThatEndsBeforeAnyAnswer(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		ctx, cancel := context.WithCancel(w.ctx)
		cancel()
		_, err := l.Acquire(ctx, "k")
		w.wants(err, context.Canceled)
		if n := len(tp.saw()); n != 0 {
			t.Errorf("%d requests for a context that had ended", n)
		}
		tp.when(opTry, hang)
		begun := time.Now()
		_, err = l.Acquire(w.ctx, "k", locker.WithWait(time.Second))
		w.wants(err, context.DeadlineExceeded, locker.ErrAmbiguous)
		if errors.Is(err, locker.ErrHeld) {
			t.Errorf("held, without a refusal: %v", err)
		}
		if d := time.Since(begun); d != time.Second {
			t.Errorf("returned after %v, want 1s", d)
		}
	})
}

func TestR08IdleHolderAndWaiterAreQuiet(t *testing.T) {
	for name, make := range map[string]func(*world, *locker.Options) (*locker.Locker, *tap){
		"queue": (*world).tapped, "poll": (*world).polling,
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				a, tpA := w.tapped(tenSeconds())
				w.acquire(a, "k")
				b, tpB := make(w, tenSeconds())
				ctx, cancel := context.WithCancel(w.ctx)
				done := make2()
				go func() { defer close(done); _, _ = b.Acquire(ctx, "k") }()
				synctest.Wait()
				tpA.forget()
				tpB.forget()
				const time10 = 10 * ttl
				pass(time10)
				if got, most := tpA.requests(opRenew, opTry, opPoll, opEnqueue, opRelease), 30+1; got > most {
					t.Errorf("the holder sent %d requests in 10 ttl, want at most %d", got, most)
				}
				// A poll interval is ttl/4, jitter shortens it by up to a quarter; and the
				// first in the queue polls at each expiry it was told, one per interval.
				if got, most := tpB.requests(opTry, opPoll, opEnqueue), 10*4*4/3+2; got > most {
					t.Errorf("the waiter sent %d requests in 10 ttl, want at most %d", got, most)
				}
				cancel()
				<-done
			})
		})
	}
}

func make2() chan struct{} { return make(chan struct{}) }

func TestR08WaiterPollsEachInterval(t *testing.T) {
	inWorld(t, func(w *world) {
		w.acquire(w.locker(tenSeconds()), "k")
		l, tp := w.tapped(&locker.Options{TTL: 2 * time.Second})
		go func() { _, _ = l.Acquire(w.ctx, "k", locker.WithWait(time.Minute)) }()
		pass(30 * time.Second)
		calls := tp.saw(opEnqueue, opPoll)
		for i := 1; i < len(calls); i++ {
			if gap := calls[i].at.Sub(calls[i-1].at); gap > driver.PollInterval(2*time.Second) {
				t.Errorf("%v between two signs of life, want at most %v", gap, driver.PollInterval(2*time.Second))
			}
		}
		if n := tp.requests(opEnqueue); n != 1 {
			t.Errorf("%d places, want the first to stay alive", n)
		}
		pass(time.Minute)
	})
}

func TestR08FirstInQueuePollsAtTheExpiry(t *testing.T) {
	inWorld(t, func(w *world) {
		dead := w.server.Driver()
		r := driver.Request{Key: "k", Attempt: driver.NewAttempt(), TTL: 11 * time.Second}
		if _, err := dead.TryAcquire(w.ctx, r); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		w.acquire(w.locker(&locker.Options{TTL: time.Minute}), "k")
		if got := time.Since(begun); got < r.TTL || got > r.TTL+100*time.Millisecond {
			t.Errorf("granted after %v, want at the dead holder's expiry %v", got, r.TTL)
		}
	})
}

func TestR08PollerKnowsTheExpiry(t *testing.T) {
	inWorld(t, func(w *world) {
		dead := w.server.Driver()
		r := driver.Request{Key: "k", Attempt: driver.NewAttempt(), TTL: 11 * time.Second}
		if _, err := dead.TryAcquire(w.ctx, r); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		l, tp := w.polling(&locker.Options{TTL: time.Minute})
		w.acquire(l, "k")
		if got := time.Since(begun); got < r.TTL || got > r.TTL+200*time.Millisecond {
			t.Errorf("granted after %v, want at the dead holder's expiry %v", got, r.TTL)
		}
		if n := tp.requests(opTry); n > 15 {
			t.Errorf("%d polls in 11s, want a doubling pause", n)
		}
	})
}

func TestR08BrokenTicketDoesNotSpin(t *testing.T) {
	for name, wait := range map[string]handler{
		"error": func(context.Context, seen, next) (driver.Grant, error) {
			return driver.Grant{}, errors.New("torn")
		},
		"empty": func(context.Context, seen, next) (driver.Grant, error) { return driver.Grant{}, nil },
		"stranger": func(context.Context, seen, next) (driver.Grant, error) {
			return driver.Grant{Request: driver.Request{Attempt: driver.NewAttempt()}, Token: 5, Sent: driver.PackageNow(), Left: ttl}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				holder := w.acquire(w.locker(tenSeconds()), "k")
				l, tp := w.tapped(tenSeconds())
				tp.when(opWait, wait)
				got := make(chan *locker.Lease, 1)
				go func() { got <- w.acquire(l, "k") }()
				pass(10 * ttl)
				if n := tp.requests(opPoll); n > 10*4*4/3+10 {
					t.Errorf("%d polls in 10 ttl with a broken ticket", n)
				}
				if n := tp.requests(opWait); n > 1000 {
					t.Errorf("%d waits in 10 ttl on a broken ticket", n)
				}
				w.wants(holder.Release(w.ctx))
				<-got // by its slow poll
			})
		})
	}
}

func TestR08UnavailableBackendIsRetriedWhileWaiting(t *testing.T) {
	for name, make := range map[string]func(*world, *locker.Options) (*locker.Locker, *tap){
		"queue": (*world).tapped, "poll": (*world).polling,
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				holder := w.acquire(w.locker(tenSeconds()), "k")
				l, tp := make(w, tenSeconds())
				got := make2()
				go func() { defer close(got); w.acquire(l, "k") }()
				synctest.Wait()
				for _, o := range []op{opTry, opEnqueue, opPoll, opListen} {
					tp.when(o, unavailable)
				}
				tp.forget()
				pass(10 * ttl)
				if n := tp.requests(opTry, opEnqueue, opPoll, opListen); n > 70 || n < 10 {
					t.Errorf("%d requests to a dead backend in 10 ttl", n)
				}
				for _, o := range []op{opTry, opEnqueue, opPoll, opListen} {
					tp.when(o, nil)
				}
				w.wants(holder.Release(w.ctx))
				<-got
			})
		})
	}
}

func TestR08OtherErrorsEndTheWait(t *testing.T) {
	inWorld(t, func(w *world) {
		w.acquire(w.locker(tenSeconds()), "k")
		l, tp := w.tapped(tenSeconds())
		tp.when(opPoll, func(context.Context, seen, next) (driver.Grant, error) { return driver.Grant{}, driver.ErrCorrupt })
		_, err := l.Acquire(w.ctx, "k")
		w.wants(err, locker.ErrCorrupt)
		pass(0)
		if s, _ := w.server.Driver().Inspect(w.ctx, "k"); s.Waiters != 0 {
			t.Errorf("%d places left behind", s.Waiters)
		}
	})
}

func TestUnsupportedQueueIsAsIfAbsent(t *testing.T) {
	inWorld(t, func(w *world) {
		holder := w.acquire(w.locker(tenSeconds()), "k")
		l, tp := w.tapped(tenSeconds())
		tp.when(opListen, func(context.Context, seen, next) (driver.Grant, error) { return driver.Grant{}, driver.ErrUnsupported })
		tp.when(opBatch, func(context.Context, seen, next) (driver.Grant, error) { return driver.Grant{}, driver.ErrUnsupported })
		got := make(chan *locker.Lease, 1)
		go func() { got <- w.acquire(l, "k") }()
		pass(time.Second)
		w.wants(holder.Release(w.ctx))
		lease := <-got
		pass(10 * ttl)
		if !lease.Valid() {
			t.Error(lease.Err())
		}
	})
}
