package redis_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fencelock/locker/driver"
)

// Break with Now hands the key on in the same step.
func TestBreakNowHandsOn(t *testing.T) {
	t.Parallel()
	q := queue(t, shared(t), 30*time.Second)
	waiter := q.place(t, 30*time.Second)
	if err := q.Break(short(t), "k", q.held.Token, driver.Break{Now: true}); err != nil {
		t.Fatal(err)
	}
	if st, err := q.Inspect(short(t), "k"); err != nil || !st.Held || st.Attempt != waiter.Attempt || st.Waiters != 0 {
		t.Errorf("behind Break with Now: got %+v and %v, want it held by who waited", st, err)
	}
}

// A place that was silent for its horizon is lost wherever it stands: a poll does not revive it, and
// an enqueue begins at the end.
func TestDeadPlaceIsLost(t *testing.T) {
	t.Parallel()
	s := shared(t)
	q := queue(t, s, 30*time.Second)
	q.place(t, 30*time.Second)
	dead := q.place(t, 30*time.Second)
	q.place(t, 30*time.Second)
	kill := func() { said(t, s, "ZADD", q.bucket+"live", "XX", "1", dead.Attempt.String()) }
	kill()
	var held *driver.HeldError
	if _, err := q.Enqueue(short(t), dead); !errors.As(err, &held) || held.Ahead != 2 {
		t.Errorf("Enqueue: got %v with %+v, want two ahead", err, held)
	}
	kill()
	if _, err := q.Poll(short(t), dead); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Poll: got %v, want %v", err, driver.ErrLost)
	}
}
