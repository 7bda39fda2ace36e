package locker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
)

func TestR05LostReplyIsResolvedByTheSameAttempt(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		tp.when(opTry, first(2, lostReply))
		lease, err := l.TryAcquire(w.ctx, "k")
		w.wants(err)
		calls := tp.saw(opTry)
		for _, c := range calls {
			if c.req != calls[0].req {
				t.Errorf("re-sent as %+v, want the same request %+v", c.req, calls[0].req)
			}
		}
		if len(calls) != 3 || lease.Token() != 1 {
			t.Errorf("%d sends and token %v, want 3 and 1", len(calls), lease.Token())
		}
	})
}

func TestR05UnresolvedAttemptIsUndone(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		tp.when(opTry, lostReply)
		begun := time.Now()
		_, err := l.TryAcquire(w.ctx, "k")
		w.wants(err, locker.ErrAmbiguous)
		if errors.Is(err, locker.ErrHeld) {
			t.Errorf("an unknown outcome was reported as held: %v", err)
		}
		if got := time.Since(begun); got > ttl/2 {
			t.Errorf("re-sent for %v, want at most %v", got, ttl/2)
		}
		pass(0)
		w.free("k")
		calls := tp.saw(opTry, opRelease)
		if last := calls[len(calls)-1]; last.op != opRelease || last.req != calls[0].req || last.grant.Token != 0 {
			t.Errorf("last call %s of %v, want the attempt's release from its request alone", last.op, last.req.Attempt)
		}
	})
}

// free fails the test unless the key is free at the server.
func (w *world) free(key string) {
	w.Helper()
	s, err := w.server.Driver().Inspect(w.ctx, key)
	if err != nil || s.Held || s.Waiters != 0 {
		w.Errorf("key %q: %+v, %v; want it free and nobody queued", key, s, err)
	}
}

func TestR05UndoIsRepeatedUntilAnswered(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		tp.when(opTry, lostReply)
		tp.when(opRelease, first(5, unavailable))
		_, err := l.TryAcquire(w.ctx, "k")
		w.wants(err, locker.ErrAmbiguous)
		_, err = l.TryAcquire(w.ctx, "other")
		w.wants(err, locker.ErrAmbiguous)
		pass(ttl)
		if got := len(tp.saw(opRelease)); got != 7 {
			t.Errorf("%d releases for two undos of which five failed, want 7", got)
		}
		w.free("k")
	})
}

func TestR05NothingIsSentAfterOneTTL(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		tp.when(opTry, lostReply)
		tp.when(opRelease, unavailable)
		_, err := l.TryAcquire(w.ctx, "k")
		w.wants(err, locker.ErrAmbiguous)
		pass(10 * ttl)
		for _, o := range []op{opTry, opRelease} {
			calls := tp.saw(o)
			if d := calls[len(calls)-1].at.Sub(calls[0].at); d > ttl {
				t.Errorf("%s sent again %v after its first send, want at most %v", o, d, ttl)
			}
		}
	})
}

func TestR05DefiniteFailureIsReturned(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		tp.when(opTry, unavailable)
		for _, acquire := range []func(context.Context, string, ...locker.AcquireOption) (*locker.Lease, error){l.TryAcquire, l.Acquire} {
			_, err := acquire(w.ctx, "k")
			w.wants(err, locker.ErrUnavailable)
		}
		pass(ttl)
		if got := len(tp.saw(opTry, opRelease)); got != 2 {
			t.Errorf("%d requests, want one for each call and no undo: nothing was applied", got)
		}
	})
}

func TestR05FailureBehindAnUnansweredSendIsUnknown(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		tp.when(opTry, func(ctx context.Context, s seen, send next) (driver.Grant, error) {
			if s.n == 1 {
				return lostReply(ctx, s, send)
			}
			return driver.Grant{}, driver.ErrUnavailable
		})
		_, err := l.TryAcquire(w.ctx, "k")
		w.wants(err, locker.ErrAmbiguous)
		pass(time.Second)
		w.free("k")
	})
}

func TestR05RefusalBehindAnUnansweredSendIsUndone(t *testing.T) {
	inWorld(t, func(w *world) {
		other := w.locker(tenSeconds())
		l, tp := w.tapped(tenSeconds())
		tp.when(opTry, func(ctx context.Context, s seen, send next) (driver.Grant, error) {
			if s.n > 1 {
				return send(ctx)
			}
			w.acquire(other, "k") // somebody else is first, and the answer is lost
			return lostReply(ctx, s, send)
		})
		_, err := l.TryAcquire(w.ctx, "k")
		w.wants(err, locker.ErrHeld)
		pass(0)
		if got := tp.requests(opRelease); got != 1 {
			t.Errorf("%d undos, want 1: the first send may still be under way", got)
		}
	})
}

func TestR05RefusedByItsOwnUndoIsAmbiguous(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		tp.when(opTry, first(1, lostReply))
		tp.when(opRelease, unavailable)
		ctx, cancel := context.WithTimeout(w.ctx, time.Millisecond)
		defer cancel()
		_, err := l.TryAcquire(ctx, "k")
		w.wants(err, context.DeadlineExceeded, locker.ErrAmbiguous)
		_, err = l.TryAcquire(w.ctx, "k")
		w.wants(err, locker.ErrAmbiguous)
		if errors.Is(err, locker.ErrHeld) {
			t.Errorf("held by myself: %v", err)
		}
		// Acquire waits for it instead.
		tp.when(opRelease, nil)
		w.acquire(l, "k")
	})
}

func TestR05UndoneAttemptIsNeverUsedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		holder := w.acquire(w.locker(tenSeconds()), "k")
		tp.when(opPoll, func(context.Context, seen, next) (driver.Grant, error) { return driver.Grant{}, driver.ErrLost })
		tp.when(opEnqueue, first(3, lostReply))
		got := make(chan *locker.Lease, 1)
		go func() { got <- w.acquire(l, "k") }()
		pass(ttl)
		w.wants(holder.Release(w.ctx))
		<-got
		undone := map[driver.Attempt]bool{}
		for _, c := range tp.saw(opTry, opEnqueue, opPoll, opRelease) {
			if c.op == opRelease {
				undone[c.req.Attempt] = true
			} else if undone[c.req.Attempt] {
				t.Errorf("%s of attempt %v after its undo", c.op, c.req.Attempt)
			}
		}
		if len(undone) == 0 {
			t.Error("no attempt was undone: the test shows nothing")
		}
	})
}

func TestR05FreshAttemptForEachTry(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.polling(tenSeconds())
		holder := w.acquire(w.locker(tenSeconds()), "k")
		go func() { <-time.After(ttl); _ = holder.Release(w.ctx) }()
		w.acquire(l, "k")
		ids := map[driver.Attempt]bool{}
		for _, c := range tp.saw(opTry) {
			if ids[c.req.Attempt] {
				t.Fatal("a refused attempt was used again")
			}
			ids[c.req.Attempt] = true
		}
	})
}

func TestR09GrantKnownAfterItsEndIsUndone(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		tp.when(opTry, first(2, late(end)))
		_, err := l.TryAcquire(w.ctx, "k")
		w.wants(err, locker.ErrLost)
		pass(0)
		if n := tp.requests(opRelease); n != 1 {
			t.Errorf("%d undos, want 1", n)
		}
		// A wait goes on with a fresh attempt.
		lease := w.acquire(l, "k")
		if !lease.Valid() || lease.Token() != 3 {
			t.Errorf("token %v (%v), want the third grant", lease.Token(), lease.Err())
		}
	})
}

func TestR09GrantForACallerWhoHasGoneIsUndone(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		tp.when(opTry, late(time.Second))
		ctx, cancel := context.WithCancel(w.ctx)
		go func() { <-time.After(500 * time.Millisecond); cancel() }()
		_, err := l.Acquire(ctx, "k")
		w.wants(err, context.Canceled)
		pass(0)
		w.free("k")
	})
}

func TestR09GrantDuringCloseIsUndone(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		tp.when(opTry, late(time.Second))
		errs := make(chan error, 1)
		go func() { _, err := l.TryAcquire(w.ctx, "k"); errs <- err }()
		pass(500 * time.Millisecond)
		w.wants(l.Close())
		w.wants(<-errs, locker.ErrClosed)
		w.free("k")
	})
}

// amnesia makes a server forget its counters: tokens restart at 1.
func amnesia(tp *tap) {
	tp.when(opTry, func(ctx context.Context, s seen, send next) (driver.Grant, error) {
		g, err := send(ctx)
		if err == nil {
			g.Token = driver.Token(s.n)
			if s.req.Floor >= g.Token {
				g.Token = s.req.Floor + 1
			}
		}
		return g, err
	})
}

func TestR10RegressionIsRefusedAndReleased(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		for range 3 {
			w.wants(w.acquire(l, "k").Release(w.ctx))
		}
		amnesia(tp)
		for range 2 {
			_, err := l.Acquire(w.ctx, "k")
			w.wants(err, locker.ErrTokenRegression)
			pass(0)
			w.free("k")
		}
		l.AcceptTokenReset("k")
		lease := w.acquire(l, "k")
		if lease.Token() != 4 {
			t.Errorf("after AcceptTokenReset: token %v, want one above the floor 3", lease.Token())
		}
		w.wants(lease.Release(w.ctx))
		calls := tp.saw(opTry)
		if floor := calls[len(calls)-1].req.Floor; floor != 3 {
			t.Errorf("floor: got %v, want 3", floor)
		}
		tp.when(opTry, nil)
		tp.forget()
		_, _ = l.TryAcquire(w.ctx, "k")
		if floor := tp.saw(opTry)[0].req.Floor; floor != 0 {
			t.Errorf("floor after a greater token was granted: got %v, want none", floor)
		}
	})
}

func TestR10SeenHoldersCount(t *testing.T) {
	for name, see := range map[string]func(*world, *locker.Locker){
		"by refusal":    func(w *world, l *locker.Locker) { _, _ = l.TryAcquire(w.ctx, "k") },
		"by inspection": func(w *world, l *locker.Locker) { _, _ = l.Inspect(w.ctx, "k") },
		"by list": func(w *world, l *locker.Locker) {
			for s, err := range l.List(w.ctx, "") {
				_, _ = s, err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				other := w.locker(tenSeconds())
				for range 5 {
					w.wants(w.acquire(other, "k").Release(w.ctx))
				}
				lease := w.acquire(other, "k")
				l, tp := w.tapped(tenSeconds())
				see(w, l)
				w.wants(lease.Release(w.ctx))
				tp.when(opTry, nil)
				amnesia(tp)
				_, err := l.TryAcquire(w.ctx, "k")
				w.wants(err, locker.ErrTokenRegression)
			})
		})
	}
}

func TestR10OwnTokenSeenAgainIsNoRegression(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		tp.when(opTry, func(ctx context.Context, s seen, send next) (driver.Grant, error) {
			g, err := send(ctx)
			if s.n == 1 {
				_, _ = l.Inspect(w.ctx, "k") // shows this attempt's own token
				return driver.Grant{}, driver.ErrAmbiguous
			}
			return g, err
		})
		if lease := w.acquire(l, "k"); lease.Token() != 1 {
			t.Errorf("token %v, want 1", lease.Token())
		}
	})
}

func TestR10LearnedLaterIsNoRegression(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		other := w.locker(tenSeconds())
		tp.when(opTry, func(ctx context.Context, _ seen, send next) (driver.Grant, error) {
			g, err := send(ctx)
			// While the answer travels the grant is broken, somebody else gets the
			// key, and this Locker sees that.
			_ = other.Break(w.ctx, "k", g.Token, locker.Break{Now: true})
			w.acquire(other, "k")
			_, _ = l.Inspect(w.ctx, "k")
			return g, err
		})
		lease := w.acquire(l, "k")
		if lease.Token() != 1 {
			t.Errorf("token %v, want 1", lease.Token())
		}
	})
}

func TestR11ImpossibleTTLs(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, ttl := range []time.Duration{-1, 1, time.Millisecond, 400 * 24 * time.Hour} {
			_, err := locker.New(w.server.Driver(), &locker.Options{TTL: ttl})
			w.wants(err, locker.ErrInvalidTTL)
		}
		l, tp := w.tapped(nil)
		for _, ttl := range []time.Duration{0, -1, time.Millisecond} {
			_, err := l.Acquire(w.ctx, "k", locker.WithTTL(ttl))
			w.wants(err, locker.ErrInvalidTTL)
			w.wants(l.Lead(w.ctx, "k", nil, locker.WithTTL(ttl)), locker.ErrInvalidTTL)
		}
		if n := len(tp.saw()); n != 0 {
			t.Errorf("%d requests for impossible ttls", n)
		}
	})
}

func TestR11LeaseSaysTheGrantedTTL(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(nil)
		tp.when(opTry, func(ctx context.Context, _ seen, send next) (driver.Grant, error) {
			g, err := send(ctx)
			g.TTL, g.Left = 3*time.Second, 3*time.Second // a backend that counts in seconds
			return g, err
		})
		if got := w.acquire(l, "k", locker.WithTTL(2500*time.Millisecond)).TTL(); got != 3*time.Second {
			t.Errorf("got %v, want what the backend granted", got)
		}
	})
}

func TestR15Keys(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(nil)
		long := strings.Repeat("x", 512)
		for _, key := range []string{"", long + "x", "a\x00b", "\xff"} {
			_, err := l.Acquire(w.ctx, key)
			w.wants(err, locker.ErrInvalidKey)
			_, err = l.TryAcquire(w.ctx, key)
			w.wants(err, locker.ErrInvalidKey)
			w.wants(l.Do(w.ctx, key, nil), locker.ErrInvalidKey)
			w.wants(l.Lead(w.ctx, key, nil), locker.ErrInvalidKey)
			_, err = l.Inspect(w.ctx, key)
			w.wants(err, locker.ErrInvalidKey)
			w.wants(l.Break(w.ctx, key, 1, locker.Break{}), locker.ErrInvalidKey)
		}
		if _, err := l.Prefix("p").Acquire(w.ctx, long); !errors.Is(err, locker.ErrInvalidKey) {
			t.Errorf("a full key of 514 bytes: %v", err)
		}
		if _, err := l.Prefix("p").TryAcquire(w.ctx, ""); !errors.Is(err, locker.ErrInvalidKey) {
			t.Errorf("an empty key behind a prefix: %v", err)
		}
		if n := len(tp.saw()); n != 0 {
			t.Errorf("%d requests for impossible keys", n)
		}
		for _, key := range []string{long, "a", "a/b", "ab", "A", "ä ö\n", " "} {
			w.acquire(l, key)
		}
	})
}

func TestBadOptionsAreErrors(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(nil)
		for name, o := range map[string]locker.AcquireOption{
			"WithWait": locker.WithWait(-1), "WithMaxHold": locker.WithMaxHold(0),
			"WithOwner": locker.WithOwner("\xff"), "WithNote": locker.WithNote(strings.Repeat("n", 2000)),
		} {
			_, err := l.Acquire(w.ctx, "k", o)
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("got %v, want an error that names %s", err, name)
			}
		}
		if n := len(tp.saw()); n != 0 {
			t.Errorf("%d requests", n)
		}
		for _, o := range []*locker.Options{{ReleaseTimeout: -1}, {Owner: "a\x00"}, {TTL: -1}} {
			if _, err := locker.New(w.server.Driver(), o); err == nil {
				t.Errorf("New took %+v", o)
			}
		}
		if _, err := locker.New(nil, nil); err == nil {
			t.Error("New took no driver")
		}
	})
}
