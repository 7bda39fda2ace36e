package fence_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/fence"
	"github.com/fencelock/locker/memlock"
)

// paused plays the story that fences are for: A holds, is paused until its lease has
// lapsed, B is granted the key, and A, which has not noticed, goes on.
func paused(t *testing.T, story func(t *testing.T, r *fence.Register[string], a, b driver.Token)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		grant := func() driver.Token {
			g, err := server.Driver().TryAcquire(t.Context(), driver.Request{
				Key: "k", Attempt: driver.NewAttempt(), TTL: time.Second,
			})
			equal(t, "TryAcquire", err, nil)
			return g.Token
		}
		r := &fence.Register[string]{Name: "db"}
		a := grant()
		equal(t, "A raises", r.Raise(t.Context(), a), nil)
		equal(t, "A writes", r.Write(t.Context(), a, "a's first"), nil)
		<-time.After(2 * time.Second)
		story(t, r, a, grant())
	})
}

func reads(t *testing.T, r *fence.Register[string], token driver.Token, want string) {
	t.Helper()
	got, err := r.Read(t.Context(), token)
	equal(t, "Read", err, nil)
	equal(t, "value", got, want)
}

func TestAStaleWriteIsRefusedAfterTheNewHolderWrote(t *testing.T) {
	paused(t, func(t *testing.T, r *fence.Register[string], a, b driver.Token) {
		equal(t, "B raises", r.Raise(t.Context(), b), nil)
		equal(t, "B writes", r.Write(t.Context(), b, "b's"), nil)
		stale(t, "A writes", r.Write(t.Context(), a, "a's second"), fence.StaleError{Resource: "db", Token: a, Mark: b})
		reads(t, r, b, "b's")
	})
}

func TestAStaleWriteIsRefusedAfterTheNewHolderRaised(t *testing.T) {
	paused(t, func(t *testing.T, r *fence.Register[string], a, b driver.Token) {
		equal(t, "B raises", r.Raise(t.Context(), b), nil)
		stale(t, "A writes", r.Write(t.Context(), a, "a's second"), fence.StaleError{Resource: "db", Token: a, Mark: b})
		_, err := r.Read(t.Context(), a)
		stale(t, "A reads", err, fence.StaleError{Resource: "db", Token: a, Mark: b})
		reads(t, r, b, "a's first")
	})
}

func TestAStaleWriteIsAcceptedAfterTheNewHolderOnlyRead(t *testing.T) {
	paused(t, func(t *testing.T, r *fence.Register[string], a, b driver.Token) {
		// The anomaly that the package comment warns of. If this test fails, the
		// comment is wrong.
		reads(t, r, b, "a's first")
		equal(t, "A writes", r.Write(t.Context(), a, "a's second"), nil)
		reads(t, r, b, "a's second")
	})
}

func TestAWriteRaisesToo(t *testing.T) {
	paused(t, func(t *testing.T, r *fence.Register[string], a, b driver.Token) {
		equal(t, "B writes without a raise", r.Write(t.Context(), b, "b's"), nil)
		equal(t, "mark", r.Mark(), b)
		stale(t, "A raises", r.Raise(t.Context(), a), fence.StaleError{Resource: "db", Token: a, Mark: b})
	})
}

func TestHistory(t *testing.T) {
	t.Parallel()
	for _, keep := range []bool{false, true} {
		r := fence.Register[int]{KeepHistory: keep}
		ctx := t.Context()
		equal(t, "write 2", r.Write(ctx, 2, 0), nil)
		equal(t, "write 2 again", r.Write(ctx, 2, 1), nil)
		equal(t, "raise 5", r.Raise(ctx, 5), nil)
		if err := r.Write(ctx, 3, 2); err == nil {
			t.Fatal("write 3: got accepted, want refused")
		}
		equal(t, "write 7", r.Write(ctx, 7, 3), nil)
		var want []driver.Token
		if keep {
			want = []driver.Token{2, 2, 7}
		}
		got := r.History()
		if !slices.Equal(got, want) {
			t.Fatalf("history: got %v, want %v", got, want)
		}
		if keep {
			got[0] = 99 // the caller's own copy
			equal(t, "first of the history", r.History()[0], 2)
		}
	}
}

func TestRegisterWithAnEndedContext(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var r fence.Register[int]
	_, readErr := r.Read(ended, 1)
	for what, err := range map[string]error{
		"Raise": r.Raise(ended, 1), "Read": readErr, "Write": r.Write(ended, 1, 1),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want %v", what, err, context.Canceled)
		}
	}
	equal(t, "mark", r.Mark(), 0)
}

func TestRacingWritesNeverFall(t *testing.T) {
	t.Parallel()
	r := fence.Register[driver.Token]{KeepHistory: true}
	var wg sync.WaitGroup
	for first := range driver.Token(8) {
		wg.Go(func() {
			for token := first + 1; token <= 1000; token += 8 {
				if err := r.Write(t.Context(), token, token); err != nil && !errors.Is(err, driver.ErrStale) {
					t.Errorf("Write: got %v, want nil or %v", err, driver.ErrStale)
				}
			}
		})
	}
	wg.Wait()
	got := r.History()
	if !slices.IsSorted(got) {
		t.Fatalf("history: got %v, want it never to fall", got)
	}
	last, err := r.Read(t.Context(), driver.MaxToken)
	equal(t, "Read", err, nil)
	equal(t, "value", last, 1000)
}
