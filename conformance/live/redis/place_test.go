package redis_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/redislock"
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

// Whoever hands on draws by the namespace's terms: a counter that was lost begins above its base,
// or above the clock.
func TestTermsOfWhoHandsOn(t *testing.T) {
	t.Parallel()
	s := shared(t)
	for terms, k := range map[string]struct {
		o     redislock.Options
		least driver.Token
	}{
		"base":  {redislock.Options{TokenBase: 1000}, 1001},
		"clock": {redislock.Options{ClockFloor: true}, 1_000_000_000_000_000},
	} {
		for by, hand := range map[string]func(d driver.Driver, name string, g driver.Grant, waiter driver.Request) error{
			"release": func(d driver.Driver, _ string, g driver.Grant, _ driver.Request) error { return d.Release(short(t), g) },
			"break": func(d driver.Driver, _ string, g driver.Grant, _ driver.Request) error {
				return d.(driver.Breaker).Break(short(t), "k", g.Token, driver.Break{Now: true})
			},
			"poll": func(d driver.Driver, name string, _ driver.Grant, waiter driver.Request) error {
				said(t, s, "DEL", name) // as its expiry does
				_, err := d.(driver.Queuer).Poll(short(t), waiter)
				return err
			},
		} {
			o := k.o
			o.Namespace = namespace()
			d, err := open(short(t), s.Addr(), &o)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = d.Close() })
			g, err := d.TryAcquire(short(t), request("k"))
			if err != nil {
				t.Fatal(err)
			}
			waiter := request("k")
			if _, err := d.(driver.Queuer).Enqueue(short(t), waiter); !errors.Is(err, driver.ErrHeld) {
				t.Fatal(err)
			}
			name := lockName(t, s, o.Namespace)
			said(t, s, "DEL", strings.TrimSuffix(name, "lock:k")+"token")
			if err := hand(d, name, g, waiter); err != nil {
				t.Errorf("%s by %s: %v", terms, by, err)
			}
			if st, err := d.(driver.Inspector).Inspect(short(t), "k"); err != nil || st.Attempt != waiter.Attempt || st.Token < k.least {
				t.Errorf("%s by %s: got %+v and %v, want who waited with a token from %v", terms, by, st, err, k.least)
			}
		}
	}
}

// A ttl that is not whole milliseconds is kept for longer than it is believed.
func TestGranularTTL(t *testing.T) {
	t.Parallel()
	s, ns := shared(t), namespace()
	d, err := open(short(t), s.Addr(), &redislock.Options{Namespace: ns})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	r := request("k")
	r.TTL = 10*time.Second + 400*time.Microsecond
	expiry := func() int64 {
		v, err := s.Do(t.Context(), "PEXPIRETIME", lockName(t, s, ns))
		if err != nil {
			t.Fatal(err)
		}
		return v.(int64)
	}
	clock := func() int64 {
		v, err := s.Do(t.Context(), "EVAL", "local t = redis.call('TIME') return math.floor(t[1] * 1000 + t[2] / 1000)", "0")
		if err != nil {
			t.Fatal(err)
		}
		return v.(int64)
	}
	for range 50 { // in some of them all is done within one millisecond
		before := clock()
		g, err := d.TryAcquire(short(t), r)
		if err != nil {
			t.Fatal(err)
		}
		if got := expiry() - before; got < 10_001 {
			t.Errorf("granted for %v: got %d ms, want at least 10001", g.Left, got)
		}
		g.TTL = r.TTL
		before = clock()
		if g, err = d.Renew(short(t), g); err != nil {
			t.Fatal(err)
		}
		if got := expiry() - before; got < 10_001 {
			t.Errorf("renewed for %v: got %d ms, want at least 10001", g.Left, got)
		}
		if err := d.Release(short(t), g); err != nil {
			t.Fatal(err)
		}
	}
}
