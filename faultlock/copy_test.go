package faultlock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/faultlock"
	"github.com/fencelock/locker/memlock"
)

// stuck is a driver whose first try takes three seconds, or until its context ends, and which
// tells when each was sent, and how long it might take.
type stuck struct {
	driver.Driver
	start time.Time

	mu    sync.Mutex
	sent  []time.Duration
	given []time.Duration
	ended []error // of the contexts that tries came with
}

func (s *stuck) TryAcquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	deadline, _ := ctx.Deadline()
	s.mu.Lock()
	s.sent = append(s.sent, time.Since(s.start))
	s.given = append(s.given, time.Until(deadline))
	s.ended = append(s.ended, ctx.Err())
	first := len(s.sent) == 1
	s.mu.Unlock()
	if first {
		select {
		case <-time.After(3 * time.Second):
		case <-ctx.Done():
			return driver.Grant{}, ctx.Err()
		}
	}
	return s.Driver.TryAcquire(ctx, r)
}

// tryStuck makes one try with that fault, whose context ends after so long.
func tryStuck(t *testing.T, schedule string, lasts time.Duration, look func(*stuck)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stuck{Driver: memlock.NewServer().Driver(), start: time.Now()}
		d := faultlock.New(s, 1, parse(t, schedule))
		ctx, cancel := context.WithTimeout(t.Context(), lasts)
		defer cancel()
		_, _ = d.TryAcquire(ctx, request("k"))
		after(10 * time.Second)
		equal(t, "Close", d.Close(), nil)
		look(s)
	})
}

// A copy is under way from the first send on, and waits for no answer to it.
func TestACopyOvertakesItsOriginal(t *testing.T) {
	tryStuck(t, "try=dup:1s", 5*time.Second, func(s *stuck) {
		equal(t, "sends", len(s.sent), 2)
		equal(t, "the copy was sent at", s.sent[1], time.Second)
	})
}

// A copy arrives also if its original took all the time that there was, and may take as long.
func TestACopyHasItsOwnTime(t *testing.T) {
	tryStuck(t, "try=dup", timeout, func(s *stuck) {
		equal(t, "sends", len(s.sent), 2)
		equal(t, "the copy was sent at", s.sent[1], timeout)
		equal(t, "its context had ended", s.ended[1], nil)
		equal(t, "it may take", s.given[1], timeout)
	})
}

// mute is a driver whose batches answer nothing.
type mute struct{ *memlock.Driver }

func (mute) RenewBatch(context.Context, []driver.Grant, func(int, driver.Grant, error)) error {
	return nil
}

func TestAGrantOfABatchWithoutAnAnswerIsAmbiguous(t *testing.T) {
	inBubble(t, "", func(t *testing.T, w *world) {
		d := faultlock.New(mute{w.server.Driver()}, 1, parse(t, "renew=delay:1s"))
		var got error
		w.ok("RenewBatch", d.RenewBatch(w.ctx(), []driver.Grant{w.hold("k")}, func(_ int, _ driver.Grant, err error) { got = err }))
		if !errors.Is(got, driver.ErrAmbiguous) {
			t.Fatalf("a renewal without an answer: got %v, want %v", got, driver.ErrAmbiguous)
		}
		equal(t, "Close", d.Close(), nil)
	})
}

// Whether a rule fires says nothing about another key, nor about how long it then takes.
func TestDrawsAreIndependent(t *testing.T) {
	inBubble(t, "inspect%0.5=before; list%0.1=delay:0s-1s", func(t *testing.T, w *world) {
		outcomes := func(key string) string {
			var b strings.Builder
			for range 64 {
				if _, err := w.faulty.Inspect(w.ctx(), key); err == nil {
					b.WriteByte('.')
				} else {
					b.WriteByte('x')
				}
			}
			return b.String()
		}
		if a, b := outcomes("a"), outcomes("b"); a == b {
			t.Errorf("two keys: got the same decisions %s, want others", a)
		}
		longest := time.Duration(0)
		for range 200 {
			from := time.Now()
			for _, err := range w.faulty.List(w.ctx(), "") {
				t.Fatalf("a list of nothing: got an element, and %v", err)
			}
			longest = max(longest, time.Since(from))
		}
		if longest < time.Second/2 {
			t.Errorf("the longest of some twenty delays up to 1s: got %v, want more than half of it", longest)
		}
	})
}

func TestAScheduleIsCopied(t *testing.T) {
	inBubble(t, "", func(t *testing.T, w *world) {
		s := parse(t, "ping=before")
		d := faultlock.New(w.server.Driver(), 1, s)
		s[0].Fault = faultlock.After
		w.unsent("ping", d.Ping(w.ctx()))
		equal(t, "Close", d.Close(), nil)
	})
}

func TestTheLogIsBounded(t *testing.T) {
	inBubble(t, "ping=before", func(t *testing.T, w *world) {
		const calls = 10_001
		for range calls {
			_ = w.faulty.Ping(t.Context())
		}
		equal(t, "events", len(w.faulty.Log()), calls-1)
		equal(t, "fired", w.faulty.Fired()[0].Times, calls)
	})
}

// While Close waits for copies that are under way nothing else is sent.
func TestClosingRefusesCalls(t *testing.T) {
	inBubble(t, "try=dup:5s", func(t *testing.T, w *world) {
		_, err := w.faulty.TryAcquire(w.ctx(), request("k"))
		w.ok("try", err)
		closed := make(chan error, 1)
		go func() { closed <- w.faulty.Close() }()
		synctest.Wait()
		if err := w.faulty.Ping(w.ctx()); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("a call beside Close: got %v, want %v", err, driver.ErrClosed)
		}
		equal(t, "Close", <-closed, nil)
	})
}
