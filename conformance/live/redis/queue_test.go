package redis_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/locker/conformance/live"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/redislock"
)

// queueing is a driver, and a key of it that is held for the ttl.
type queueing struct {
	client
	ns     string
	bucket string // what the names of the key's bucket begin with
	held   driver.Grant
}

func queue(t *testing.T, s *live.RedisServer, ttl time.Duration) *queueing {
	t.Helper()
	q := &queueing{ns: namespace()}
	d, err := open(short(t), s.Addr(), &redislock.Options{Namespace: q.ns})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	q.client = d.(client)
	r := request("k")
	r.TTL = ttl
	if q.held, err = d.TryAcquire(short(t), r); err != nil {
		t.Fatal(err)
	}
	q.bucket = strings.TrimSuffix(lockName(t, s, q.ns), "lock:k")
	return q
}

// place takes one for the held key.
func (q *queueing) place(t *testing.T, ttl time.Duration) driver.Request {
	t.Helper()
	r := request("k")
	r.TTL = ttl
	if _, err := q.Enqueue(short(t), r); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Enqueue: got %v, want %v", err, driver.ErrHeld)
	}
	return r
}

// said is what the server answers, as text.
func said(t *testing.T, s *live.RedisServer, args ...string) string {
	t.Helper()
	v, err := s.Do(t.Context(), args...)
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
	return fmt.Sprint(v)
}

// A try that finds the key expired does not jump the queue: whoever waits gets it.
func TestTryDoesNotJump(t *testing.T) {
	t.Parallel()
	s := shared(t)
	q := queue(t, s, 500*time.Millisecond)
	waiter := q.place(t, 30*time.Second)
	eventually(t, 5*time.Second, "the key expires", func() bool { return said(t, s, "EXISTS", q.bucket+"lock:k") == "0" })
	var held *driver.HeldError
	if g, err := q.TryAcquire(short(t), request("k")); !errors.As(err, &held) || held.Attempt != waiter.Attempt {
		t.Errorf("TryAcquire: got token %v and %v, want it held by who waited", g.Token, err)
	}
	if g, err := q.Poll(short(t), waiter); err != nil || g.Token <= q.held.Token {
		t.Errorf("Poll of who waited: got token %v and %v, want it granted", g.Token, err)
	}
}

// A place that is soon forgotten does not take those along that stand beside it.
func TestMixedHorizons(t *testing.T) {
	t.Parallel()
	s := shared(t)
	q := queue(t, s, 30*time.Second)
	long := q.place(t, 30*time.Second)
	brief := q.place(t, 2*time.Second)
	if _, err := q.Poll(short(t), brief); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Poll: got %v, want %v", err, driver.ErrHeld)
	}
	for _, part := range []string{"queue:k", "places:k", "live"} {
		var left int
		if _, err := fmt.Sscan(said(t, s, "PTTL", q.bucket+part), &left); err != nil || left < 10_000 {
			t.Errorf("%s lasts %d ms (%v), want as long as the longest horizon in it, 15 s", part, left, err)
		}
	}
	if err := q.Release(short(t), q.held); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Poll(short(t), long); err != nil {
		t.Errorf("Poll of the first: %v", err)
	}
}

// When each was last heard of is forgotten with time, in a bucket that is never empty, too.
func TestLiveIsTrimmed(t *testing.T) {
	t.Parallel()
	s := shared(t)
	q := queue(t, s, 30*time.Second)
	if n := said(t, s, "ZADD", q.bucket+"live", "1", "long dead"); n != "1" {
		t.Fatalf("ZADD: got %s, want 1", n)
	}
	q.place(t, 30*time.Second)
	if n := said(t, s, "ZCARD", q.bucket+"live"); n != "1" {
		t.Errorf("entries: got %s, want the one that lives", n)
	}
}

// A release stands, whatever is wrong with the queue behind it.
func TestReleaseBesideBrokenQueue(t *testing.T) {
	t.Parallel()
	s := shared(t)
	q := queue(t, s, 30*time.Second)
	said(t, s, "SET", q.bucket+"queue:k", "junk", "PX", "60000")
	if err := q.Release(short(t), q.held); err != nil {
		t.Errorf("Release: %v", err)
	}
	if n := said(t, s, "EXISTS", q.bucket+"lock:k"); n != "0" {
		t.Error("the lock is still there")
	}
}

// Inspect counts every waiter, also where it reads the queue in several pages.
func TestManyWaiters(t *testing.T) {
	t.Parallel()
	q := queue(t, shared(t), time.Minute)
	const waiters, workers = 2100, 8
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for range (waiters + workers - 1) / workers {
				if _, err := q.Enqueue(short(t), request("k")); !errors.Is(err, driver.ErrHeld) {
					t.Errorf("Enqueue: got %v, want %v", err, driver.ErrHeld)
					return
				}
			}
		})
	}
	all.Wait()
	want := workers * ((waiters + workers - 1) / workers)
	if st, err := q.Inspect(short(t), "k"); err != nil || st.Waiters != want {
		t.Errorf("waiters: got %d and %v, want %d", st.Waiters, err, want)
	}
}
