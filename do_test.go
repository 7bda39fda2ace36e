package locker_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
)

var errJob = errors.New("the job failed")

func TestDoRunsUnderTheLock(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.locker(tenSeconds())
		err := l.Do(w.ctx, "k", func(ctx context.Context, lease *locker.Lease) error {
			pass(3 * ttl)
			if !lease.Valid() || ctx.Err() != nil {
				t.Errorf("%v, %v", lease.Err(), ctx.Err())
			}
			return errJob
		})
		if err != errJob { //nolint:errorlint // the very error: Do adds nothing when nothing went wrong
			t.Errorf("got %v, want the function's own error", err)
		}
		w.free("k")
	})
}

func TestDoReleasesOnPanicAndGoexit(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.locker(tenSeconds())
		func() {
			defer func() {
				if recover() != "boom" {
					t.Error("the panic was swallowed")
				}
			}()
			_ = l.Do(w.ctx, "k", func(context.Context, *locker.Lease) error { panic("boom") })
		}()
		w.free("k")
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = l.Do(w.ctx, "k", func(context.Context, *locker.Lease) error { runtime.Goexit(); return nil })
		}()
		<-done
		w.free("k")
	})
}

func TestDoReportsALossAlsoWhenTheFunctionDoesNot(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		tp.when(opRenew, unavailable)
		var cause error
		err := l.Do(w.ctx, "k", func(ctx context.Context, _ *locker.Lease) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return nil
		})
		w.wants(err, locker.ErrLost)
		w.wants(cause, locker.ErrLost)
		err = l.Do(w.ctx, "k2", func(ctx context.Context, _ *locker.Lease) error { <-ctx.Done(); return errJob })
		w.wants(err, locker.ErrLost, errJob)
		pass(ttl)
	})
}

func TestDoContextEndsWithTheCallers(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.locker(tenSeconds())
		ctx, cancel := context.WithCancel(w.ctx)
		err := l.Do(ctx, "k", func(ctx context.Context, lease *locker.Lease) error {
			cancel()
			<-ctx.Done()
			if !lease.Valid() {
				t.Error("the lease ended with the caller's context")
			}
			return ctx.Err()
		})
		w.wants(err, context.Canceled)
		w.free("k")
	})
}

func TestDoWaitIsNotTheWorksTime(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.locker(tenSeconds())
		w.wants(l.Do(w.ctx, "k", func(ctx context.Context, _ *locker.Lease) error {
			pass(time.Minute)
			return ctx.Err()
		}, locker.WithWait(time.Second)))
		w.acquire(w.locker(tenSeconds()), "held")
		for wait, also := range map[time.Duration]error{time.Second: context.DeadlineExceeded, 0: locker.ErrHeld} {
			err := l.Do(w.ctx, "held", func(context.Context, *locker.Lease) error { t.Error("ran"); return nil }, locker.WithWait(wait))
			w.wants(err, locker.ErrHeld, also)
		}
	})
}

func TestLeaseContextEndsWithTheLease(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.locker(tenSeconds())
		lease := w.acquire(l, "k")
		ctx, cancel := lease.Context(w.ctx)
		defer cancel()
		_, cancelOther := lease.Context(w.ctx)
		cancelOther()
		if ctx.Err() != nil || !lease.Valid() {
			t.Error("cancelling one context ended another, or the lease")
		}
		w.wants(lease.Release(w.ctx))
		<-ctx.Done()
		w.wants(context.Cause(ctx), locker.ErrReleased)
		late, _ := lease.Context(w.ctx)
		w.wants(context.Cause(late), locker.ErrReleased)
	})
}

func TestLeadComesBackAfterALoss(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		var terms atomic.Int32
		tp.when(opRenew, func(ctx context.Context, s seen, send next) (driver.Grant, error) {
			if terms.Load() == 1 {
				return driver.Grant{}, driver.ErrUnavailable
			}
			return send(ctx)
		})
		err := l.Lead(w.ctx, "k", func(ctx context.Context, lease *locker.Lease) error {
			if terms.Add(1) == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			pass(5 * ttl)
			return errJob
		})
		w.wants(err, errJob)
		if n := terms.Load(); n != 2 {
			t.Errorf("led %d times, want again after the loss", n)
		}
	})
}

func TestLeadRetriesAndEnds(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		tp.when(opTry, first(5, unavailable))
		w.wants(l.Lead(w.ctx, "k", func(context.Context, *locker.Lease) error { return nil }))
		if n := tp.requests(opTry); n != 6 {
			t.Errorf("%d tries, want on until the backend answers", n)
		}
		tp.when(opTry, func(context.Context, seen, next) (driver.Grant, error) { return driver.Grant{}, driver.ErrUnsupported })
		w.wants(l.Lead(w.ctx, "k", nil), locker.ErrUnsupported)

		tp.when(opTry, nil)
		ctx, cancel := context.WithCancel(w.ctx)
		go func() { <-time.After(time.Minute); cancel() }()
		err := l.Lead(ctx, "k", func(ctx context.Context, _ *locker.Lease) error { <-ctx.Done(); return nil })
		w.wants(err) // it returned by itself while it led
		tp.when(opTry, unavailable)
		ctx, cancel = context.WithTimeout(w.ctx, time.Minute)
		defer cancel()
		w.wants(l.Lead(ctx, "k", nil), context.DeadlineExceeded)
	})
}

func TestLeadHasOneLeader(t *testing.T) {
	inWorld(t, func(w *world) {
		var leaders, terms atomic.Int32
		ctx, cancel := context.WithCancel(w.ctx)
		var wg sync.WaitGroup
		for range 3 {
			l := w.locker(tenSeconds())
			wg.Go(func() {
				_ = l.Lead(ctx, "k", func(ctx context.Context, lease *locker.Lease) error {
					if leaders.Add(1) != 1 {
						t.Error("two leaders")
					}
					defer leaders.Add(-1)
					terms.Add(1)
					<-ctx.Done()
					return nil
				}, locker.WithMaxHold(ttl))
			})
		}
		pass(10 * ttl)
		cancel()
		wg.Wait()
		if n := terms.Load(); n < 9 {
			t.Errorf("%d terms in 10 maximum holds, want about 10", n)
		}
	})
}

func TestCloseEndsWaitsAndLeases(t *testing.T) {
	inWorld(t, func(w *world) {
		l, _ := w.tapped(tenSeconds())
		lease := w.acquire(l, "mine")
		w.acquire(w.locker(tenSeconds()), "theirs")
		errs := make(chan error, 20)
		for range 10 {
			go func() { _, err := l.Acquire(w.ctx, "theirs"); errs <- err }()
			go func() { _, err := l.Acquire(w.ctx, "mine"); errs <- err }()
		}
		synctest.Wait()
		begun := time.Now()
		w.wants(l.Close())
		for range 20 {
			w.wants(<-errs, locker.ErrClosed)
		}
		if d := time.Since(begun); d != 0 {
			t.Errorf("Close took %v", d)
		}
		<-lease.Done()
		w.wants(lease.Err(), locker.ErrClosed)
		w.wants(lease.Release(w.ctx), locker.ErrClosed)
		w.free("mine")
		if s, _ := w.server.Driver().Inspect(w.ctx, "theirs"); s.Waiters != 0 || !s.Held {
			t.Errorf("their key: %+v", s)
		}
		_, err := l.Acquire(w.ctx, "mine")
		w.wants(err, locker.ErrClosed)
		w.wants(l.Close())
	})
}

func TestCloseWaitsForFunctions(t *testing.T) {
	inWorld(t, func(w *world) {
		defer pass(time.Minute) // whatever fails, the function returns before its world ends
		l, tp := w.tapped(tenSeconds())
		finished := false
		go func() {
			err := l.Do(w.ctx, "k", func(ctx context.Context, _ *locker.Lease) error {
				<-ctx.Done()
				w.wants(context.Cause(ctx), locker.ErrClosed)
				pass(time.Second)
				finished = true
				return nil
			})
			w.wants(err, locker.ErrClosed)
		}()
		pass(0)
		w.wants(l.Close())
		if !finished {
			t.Error("Close did not wait for the function")
		}
		w.free("k")
		if n := tp.requests(opRelease); n != 1 {
			t.Errorf("%d releases, want 1", n)
		}
	})
}

func TestCloseWaitsNoLongerThanTheDeadline(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		go func() {
			_ = l.Do(w.ctx, "k", func(context.Context, *locker.Lease) error { <-time.After(time.Hour); return nil })
		}()
		pass(0)
		begun := time.Now()
		w.wants(l.Close())
		if d := time.Since(begun); d > deadline {
			t.Errorf("Close waited %v for a function that does not return, want at most %v", d, deadline)
		}
		if n := tp.requests(opRelease); n != 0 {
			t.Errorf("%d releases of a key whose function may still run", n)
		}
		pass(2 * time.Hour)
	})
}

func TestCloseIsBoundedByAReleaseTimeout(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(&locker.Options{TTL: ttl, ReleaseTimeout: time.Second})
		for _, k := range []string{"a", "b", "c"} {
			w.acquire(l, k)
		}
		tp.when(opRelease, hang)
		begun := time.Now()
		w.wants(l.Close(), locker.ErrAmbiguous)
		if d := time.Since(begun); d > time.Second {
			t.Errorf("Close took %v, want at most one ReleaseTimeout", d)
		}
	})
}

func TestCloseDoesNotReleaseALostLease(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		lease := w.acquire(l, "k")
		tp.when(opRenew, unavailable)
		<-lease.Done()
		w.wants(l.Close())
		if n := tp.requests(opRelease); n != 0 {
			t.Errorf("%d releases of a lost lease before its deadline", n)
		}
	})
}

func TestCloseOfAPrefixIsAnError(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.locker(nil)
		p := l.Prefix("team").Prefix("app")
		if err := p.Close(); err == nil {
			t.Error("closed through a prefix")
		}
		lease := w.acquire(p, "k")
		if lease.Key() != "k" || lease.Grant().Key != "team/app/k" {
			t.Errorf("got key %q, full %q", lease.Key(), lease.Grant().Key)
		}
		s, err := p.Inspect(w.ctx, "k")
		if err != nil || s.Key != "k" || !s.Held {
			t.Errorf("got %+v, %v", s, err)
		}
		n := 0
		for s, err := range p.List(w.ctx, "") {
			if n++; err != nil || s.Key != "k" {
				t.Errorf("got %+v, %v", s, err)
			}
		}
		if n != 1 {
			t.Errorf("listed %d keys, want 1", n)
		}
	})
}

func TestLosingALeaseDoesNotHarmTheLocker(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		lease := w.acquire(l, "k")
		tp.when(opRenew, unavailable)
		<-lease.Done()
		tp.when(opRenew, nil)
		again := w.acquire(l, "k")
		if again.Token() <= lease.Token() || !again.Valid() {
			t.Errorf("token %v (%v)", again.Token(), again.Err())
		}
	})
}

func TestAcquireContextDoesNotOwnTheLease(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.locker(tenSeconds())
		ctx, cancel := context.WithCancel(w.ctx)
		lease, err := l.Acquire(ctx, "k", locker.WithWait(time.Second))
		w.wants(err)
		cancel()
		pass(5 * ttl)
		if !lease.Valid() {
			t.Error(lease.Err())
		}
	})
}

func TestEventsComeInOrder(t *testing.T) {
	inWorld(t, func(w *world) {
		var mu sync.Mutex
		got := map[string][]locker.EventKind{}
		l, tp := w.tapped(&locker.Options{TTL: ttl, OnEvent: func(e locker.Event) {
			mu.Lock()
			defer mu.Unlock()
			got[e.Key] = append(got[e.Key], e.Kind)
		}})
		lease := w.acquire(l, "released")
		pass(ttl / 3)
		w.wants(lease.Release(w.ctx))

		tp.when(opRenew, unavailable)
		lost := w.acquire(l, "lost")
		<-lost.Done()
		pass(ttl)

		tp.when(opRelease, func(context.Context, seen, next) (driver.Grant, error) { return driver.Grant{}, driver.ErrCorrupt })
		w.wants(w.acquire(l, "stuck").Release(w.ctx), locker.ErrCorrupt)

		w.acquire(w.locker(tenSeconds()), "refused")
		_, _ = l.TryAcquire(w.ctx, "refused")
		pass(0)
		mu.Lock()
		defer mu.Unlock()
		for key, want := range map[string][]locker.EventKind{
			"released": {locker.EventGranted, locker.EventRenewed, locker.EventEnded, locker.EventReleased},
			"stuck":    {locker.EventGranted, locker.EventEnded, locker.EventReleaseFailed},
			"refused":  {locker.EventRefused},
		} {
			if len(got[key]) != len(want) {
				t.Errorf("%s: got %v, want %v", key, got[key], want)
				continue
			}
			for i := range want {
				if got[key][i] != want[i] {
					t.Errorf("%s: got %v, want %v", key, got[key], want)
				}
			}
		}
		l1 := got["lost"]
		if n := len(l1); n < 4 || l1[0] != locker.EventGranted || l1[1] != locker.EventRenewFailed || l1[n-2] != locker.EventEnded || l1[n-1] != locker.EventUndone {
			t.Errorf("lost: got %v", l1)
		}
	})
}

func TestLoggerTellsOfALossAndOfNothingElseAtWarn(t *testing.T) {
	inWorld(t, func(w *world) {
		var log strings.Builder
		var mu sync.Mutex
		l, tp := w.tapped(&locker.Options{TTL: ttl, Logger: slog.New(slog.NewTextHandler(lockedWriter{&mu, &log}, nil))})
		w.wants(w.acquire(l, "fine").Release(w.ctx))
		mu.Lock()
		if log.Len() != 0 {
			t.Errorf("logged at Info or above for a lock that was taken and released: %s", log.String())
		}
		mu.Unlock()
		lease := w.acquire(l, "lost")
		tp.when(opRenew, unavailable)
		<-lease.Done()
		pass(0)
		mu.Lock()
		defer mu.Unlock()
		for _, want := range []string{"level=WARN", `msg="lock renew failed"`, `msg="lock ended"`, "key=lost", "token=1", "backend=memlock"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("no %s in the log:\n%s", want, log.String())
			}
		}
	})
}

type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}
