package locker_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
)

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

func (earless) Listen(context.Context, driver.Request) (driver.Ticket, error) {
	return nil, nil //nolint:nilnil // what it is for
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
