package locker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
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

func TestCloseFinishesItsUndos(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		tp.when(opTry, lostReply)
		tp.when(opRelease, late(200*time.Millisecond))
		ctx, cancel := context.WithTimeout(w.ctx, time.Millisecond)
		defer cancel()
		const n = 100
		for i := range n {
			go func() { _, _ = l.TryAcquire(ctx, fmt.Sprint(i)) }()
		}
		pass(2 * time.Millisecond)
		w.wants(l.Close())
		for i := range n {
			w.free(fmt.Sprint(i))
		}
		w.nothingLeft(l)
	})
}

func TestCloseWaitsForAReleaseUnderWay(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		lease := w.acquire(l, "k")
		tp.when(opRelease, func(ctx context.Context, _ seen, send next) (driver.Grant, error) {
			<-time.After(time.Second)
			return send(ctx)
		})
		go func() { _ = lease.Release(w.ctx) }()
		synctest.Wait()
		w.wants(l.Close())
		w.free("k")
	})
}

func TestPanicsBreakNothing(t *testing.T) {
	for name, panics := range map[string]func(w *world, l *locker.Locker, tp *tap){
		"driver": func(w *world, l *locker.Locker, tp *tap) {
			tp.when(opTry, func(ctx context.Context, _ seen, send next) (driver.Grant, error) {
				_, _ = send(ctx)
				panic("boom")
			})
			_, _ = l.TryAcquire(w.ctx, "k")
		},
		"listener, granted": func(w *world, l *locker.Locker, _ *tap) { _, _ = l.TryAcquire(w.ctx, "k") },
		"listener, refused": func(w *world, l *locker.Locker, _ *tap) {
			lease := w.acquire(w.locker(tenSeconds()), "k")
			defer func() { _ = lease.Release(w.ctx) }()
			_, _ = l.Acquire(w.ctx, "k")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				armed := true
				l, tp := w.tapped(&locker.Options{TTL: ttl, OnEvent: func(locker.Event) {
					if armed && name != "driver" {
						armed = false
						panic("boom")
					}
				}})
				func() {
					defer func() {
						if recover() == nil {
							t.Error("the panic was swallowed")
						}
					}()
					panics(w, l, tp)
				}()
				tp.when(opTry, nil)
				pass(time.Second)
				w.free("k")
				w.wants(w.acquire(l, "k", locker.WithWait(time.Second)).Release(w.ctx))
				w.nothingLeft(l)
			})
		})
	}
}

func TestMissingTicketIsAnError(t *testing.T) {
	inWorld(t, func(w *world) {
		w.acquire(w.locker(tenSeconds()), "k")
		l := w.over(earless{w.server.Driver()}, tenSeconds())
		_, err := l.Acquire(w.ctx, "k", locker.WithWait(time.Minute))
		w.wants(err, locker.ErrHeld, context.DeadlineExceeded)
	})
}

// earless gives no tickets.
type earless struct{ queuer }

type queuer interface {
	driver.Driver
	driver.Queuer
}

func (earless) Listen(context.Context, driver.Request) (driver.Ticket, error) {
	return nil, nil //nolint:nilnil // what it is for
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

func TestCloseFromAListenerOrBesideAStuckDriverReturns(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		w.acquire(l, "k")
		tp.when(opRenew, func(context.Context, seen, next) (driver.Grant, error) {
			<-time.After(24 * time.Hour)
			return driver.Grant{}, driver.ErrAmbiguous
		})
		pass(ttl / 2)
		begun := time.Now()
		w.wants(l.Close())
		if d := time.Since(begun); d > 20*time.Second {
			t.Errorf("Close took %v", d)
		}
		pass(48 * time.Hour)
	})
	inBubble(t, func(w *world) {
		var l *locker.Locker
		var once sync.Once
		closed := make(chan struct{})
		l, _ = w.tapped(&locker.Options{TTL: ttl, OnEvent: func(e locker.Event) {
			if e.Kind == locker.EventRenewed {
				once.Do(func() { _ = l.Close(); close(closed) })
			}
		}})
		w.acquire(l, "k")
		<-closed
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

func TestUnsupportedQueueIsAsIfAbsentForAll(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		tp.when(opListen, func(context.Context, seen, next) (driver.Grant, error) { return driver.Grant{}, driver.ErrUnsupported })
		other := w.acquire(w.locker(tenSeconds()), "k")
		_, err := l.Acquire(w.ctx, "k", locker.WithWait(time.Second)) // it learns
		w.wants(err, locker.ErrHeld)
		w.wants(other.Release(w.ctx))
		holder := w.acquire(l, "k")
		got := make(chan *locker.Lease, 1)
		go func() { got <- w.acquire(l, "k") }()
		synctest.Wait()
		tp.forget()
		pass(10 * ttl)
		if n := tp.requests(opTry, opEnqueue, opPoll, opListen); n != 0 {
			t.Errorf("%d requests while this Locker holds the key", n)
		}
		w.wants(holder.Release(w.ctx))
		<-got
	})
}

func TestDoubtWinsOverAnAnswer(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		tp.when(opTry, func(ctx context.Context, _ seen, send next) (driver.Grant, error) {
			_, _ = send(ctx)
			return driver.Grant{}, driver.Wrap(driver.ErrAmbiguous, &driver.HeldError{Owner: "x"})
		})
		_, err := l.TryAcquire(w.ctx, "k")
		w.wants(err, locker.ErrAmbiguous)
		if errors.Is(err, locker.ErrHeld) {
			t.Errorf("got %v: a doubt was taken for a refusal", err)
		}
		pass(time.Second)
		w.free("k")

		tp.when(opTry, nil)
		lease := w.acquire(l, "k2")
		tp.when(opRelease, func(ctx context.Context, s seen, send next) (driver.Grant, error) {
			if s.n < 3 {
				return driver.Grant{}, driver.Wrap(driver.ErrAmbiguous, driver.ErrLost)
			}
			return send(ctx)
		})
		w.wants(lease.Release(w.ctx))
		w.free("k2")
	})
}

func TestBareRefusalIsARefusal(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.polling(tenSeconds())
		tp.when(opTry, func(context.Context, seen, next) (driver.Grant, error) { return driver.Grant{}, driver.ErrHeld })
		begun := time.Now()
		_, err := l.Acquire(w.ctx, "k", locker.WithWait(time.Minute))
		w.wants(err, locker.ErrHeld, context.DeadlineExceeded)
		if d := time.Since(begun); d != time.Minute {
			t.Errorf("waited %v, want a minute", d)
		}
	})
}

func TestRenewalMayGrantAnotherTTL(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		lease := w.acquire(l, "k", locker.WithNote("n"))
		tp.when(opRenew, func(ctx context.Context, s seen, send next) (driver.Grant, error) {
			g, err := send(ctx)
			// A driver that forgets the request, and grants a little more each time.
			return driver.Grant{Request: driver.Request{Attempt: g.Attempt, TTL: ttl + time.Duration(s.n)*time.Millisecond}, Token: g.Token, Left: g.Left}, err
		})
		pass(5 * ttl)
		w.wants(lease.Err())
		if g := lease.Grant(); g.Key != "k" || g.Note != "n" || lease.TTL() <= ttl {
			t.Errorf("got %+v", g)
		}
		w.wants(lease.Release(w.ctx))
		w.nothingLeft(l)
	})
}

func TestNonsenseGrantsAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(*driver.Grant){
		"no token":        func(g *driver.Grant) { g.Token = 0 },
		"huge token":      func(g *driver.Grant) { g.Token = driver.MaxToken + 1 },
		"no ttl":          func(g *driver.Grant) { g.TTL = 0 },
		"another attempt": func(g *driver.Grant) { g.Attempt = driver.NewAttempt() },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				l, tp := w.tapped(tenSeconds())
				tp.when(opTry, func(ctx context.Context, _ seen, send next) (driver.Grant, error) {
					g, err := send(ctx)
					spoil(&g)
					return g, err
				})
				if lease, err := l.TryAcquire(w.ctx, "k"); err == nil {
					t.Errorf("got a lease: %+v", lease.Grant())
				}
				pass(ttl)
				w.free("k")
			})
		})
	}
}

func TestRenewalOfAnotherGrantIsALoss(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		lease := w.acquire(l, "k")
		tp.when(opRenew, func(ctx context.Context, _ seen, send next) (driver.Grant, error) {
			g, err := send(ctx)
			g.Token++
			return g, err
		})
		w.wants(lease.Renew(w.ctx), locker.ErrLost)
	})
}

func TestNonsenseTokenInARefusalIsNotBelieved(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		tp.when(opTry, first(1, func(context.Context, seen, next) (driver.Grant, error) {
			return driver.Grant{}, &driver.HeldError{Token: driver.MaxToken + 1}
		}))
		_, err := l.TryAcquire(w.ctx, "k")
		w.wants(err, locker.ErrHeld)
		w.wants(w.acquire(l, "k").Err())
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

func TestCloseWaitsForAFunctionWhoseLeaseWasTaken(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		tp.when(opRenew, func(context.Context, seen, next) (driver.Grant, error) { return driver.Grant{}, driver.ErrLost })
		returned := false
		go func() {
			_ = l.Do(w.ctx, "k", func(ctx context.Context, _ *locker.Lease) error {
				<-ctx.Done()
				<-time.After(2 * time.Second)
				returned = true
				return nil
			})
		}()
		pass(ttl/3 + time.Second)
		w.wants(l.Close())
		if !returned {
			t.Error("Close did not wait for the function")
		}
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

func TestTimedOutBreakIsAmbiguous(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.over(stuckBreaker{w.server.Driver()}, tenSeconds())
		w.wants(l.Break(w.ctx, "k", 1, locker.Break{}), locker.ErrAmbiguous, context.DeadlineExceeded)
	})
}

type stuckBreaker struct{ driver.Driver }

func (stuckBreaker) Break(ctx context.Context, _ string, _ driver.Token, _ driver.Break) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestCloseWaitsForAReleaseBegunMeanwhile(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		lease := w.acquire(l, "k")
		tp.when(opRelease, func(ctx context.Context, _ seen, send next) (driver.Grant, error) {
			<-time.After(time.Second)
			return send(ctx)
		})
		go func() { // the usual holder: woken by Close itself
			<-lease.Done()
			_ = lease.Release(w.ctx)
		}()
		go func() {
			_ = l.Do(w.ctx, "other", func(ctx context.Context, _ *locker.Lease) error {
				<-ctx.Done()
				<-time.After(100 * time.Millisecond)
				return nil
			})
		}()
		synctest.Wait()
		w.wants(l.Close())
		w.free("k")
		w.free("other")
	})
}

func TestPanicsWhileReleasingBreakNothing(t *testing.T) {
	for _, kind := range []locker.EventKind{locker.EventGranted, locker.EventEnded, locker.EventReleased, 0} {
		for _, way := range []string{"Release", "Do", "Close"} {
			t.Run(fmt.Sprint(way, " ", kind), func(t *testing.T) {
				inWorld(t, func(w *world) {
					armed := kind != 0
					l, tp := w.tapped(&locker.Options{TTL: ttl, OnEvent: func(e locker.Event) {
						if armed && e.Kind == kind {
							armed = false
							panic("boom")
						}
					}})
					if kind == 0 {
						tp.when(opRelease, first(1, func(context.Context, seen, next) (driver.Grant, error) { panic("boom") }))
					}
					func() {
						defer func() { _ = recover() }()
						switch way {
						case "Release":
							_ = w.acquire(l, "k").Release(w.ctx)
						case "Do":
							_ = l.Do(w.ctx, "k", func(context.Context, *locker.Lease) error { return nil })
						case "Close":
							if kind != locker.EventEnded {
								return // Close releases on goroutines of its own
							}
							w.acquire(l, "k")
							_ = l.Close()
						}
					}()
					pass(time.Second)
					w.free("k")
					if way != "Close" {
						w.wants(w.acquire(l, "k", locker.WithWait(time.Second)).Release(w.ctx))
						w.nothingLeft(l)
					}
					begun := time.Now()
					_ = l.Close()
					if d := time.Since(begun); d > time.Second {
						t.Errorf("Close took %v", d)
					}
				})
			})
		}
	}
}

func TestClientsErrorsCanBeFoundInADoubt(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		raw := &net.OpError{Op: "dial", Err: io.EOF}
		tp.when(opTry, func(ctx context.Context, s seen, send next) (driver.Grant, error) {
			if s.n == 1 {
				return lostReply(ctx, s, send)
			}
			return driver.Grant{}, driver.Wrap(driver.ErrUnavailable, raw)
		})
		_, err := l.TryAcquire(w.ctx, "k")
		w.wants(err, locker.ErrAmbiguous, io.EOF)
		var op *net.OpError
		if !errors.As(err, &op) || errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("got %v: want the client's error in it, and no answer", err)
		}
		tp.when(opTry, func(context.Context, seen, next) (driver.Grant, error) {
			return driver.Grant{}, driver.Wrap(driver.ErrAmbiguous, driver.ErrTokenRegression)
		})
		_, err = l.TryAcquire(w.ctx, "k2")
		w.wants(err, locker.ErrAmbiguous)
		if errors.Is(err, locker.ErrTokenRegression) {
			t.Errorf("got %v: a doubt was taken for an answer", err)
		}
	})
}

func TestPanickingListenerIsToldTheRest(t *testing.T) {
	inWorld(t, func(w *world) {
		var mu sync.Mutex
		told := map[locker.EventKind]int{}
		l, tp := w.tapped(&locker.Options{TTL: ttl, OnEvent: func(e locker.Event) {
			mu.Lock()
			told[e.Kind]++
			mu.Unlock()
			if e.Kind == locker.EventGranted {
				<-time.After(2 * ttl)
				panic("boom")
			}
		}})
		tp.when(opRenew, unavailable)
		func() {
			defer func() { _ = recover() }()
			_, _ = l.TryAcquire(w.ctx, "k")
		}()
		pass(ttl)
		mu.Lock()
		defer mu.Unlock()
		if told[locker.EventEnded] != 1 {
			t.Errorf("told %v, want the end once", told)
		}
	})
}

func TestTinyTTLsFromADriverDoNotSpin(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		lease := w.acquire(l, "k")
		tp.when(opRenew, func(ctx context.Context, _ seen, send next) (driver.Grant, error) {
			g, err := send(ctx)
			g.TTL = 10 * time.Microsecond
			return g, err
		})
		pass(5 * ttl)
		if n := tp.requests(opRenew); n > 20 || !lease.Valid() {
			t.Errorf("%d renewals in 5 ttl (%v)", n, lease.Err())
		}
	})
}

func TestUnsupportedPollEndsTheWait(t *testing.T) {
	inWorld(t, func(w *world) {
		w.acquire(w.locker(tenSeconds()), "k")
		l, tp := w.tapped(tenSeconds())
		tp.when(opPoll, func(context.Context, seen, next) (driver.Grant, error) { return driver.Grant{}, driver.ErrUnsupported })
		_, err := l.Acquire(w.ctx, "k", locker.WithWait(time.Minute))
		w.wants(err, locker.ErrUnsupported)
		if tries, places := tp.saw(opTry), tp.saw(opEnqueue); len(tries) != 1 || len(places) != 1 {
			t.Errorf("%d tries and %d places, want 1 and 1", len(tries), len(places))
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

func TestCloseTellsOfAReleaseWithoutAnAnswer(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		w.acquire(l, "k")
		tp.when(opRelease, func(context.Context, seen, next) (driver.Grant, error) {
			<-time.After(time.Hour)
			return driver.Grant{}, driver.ErrAmbiguous
		})
		w.wants(l.Close(), locker.ErrAmbiguous)
		pass(2 * time.Hour)
	})
}
