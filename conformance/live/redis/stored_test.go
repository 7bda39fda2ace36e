package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/conformance/live"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/redislock"
)

// A key of another type, wherever it stands, is ErrCorrupt, and what is granted stays as it is.
func TestWrongType(t *testing.T) {
	t.Parallel()
	s := shared(t)
	for part, write := range map[string][]string{
		"lock:k":                        {"HSET", "", "f", "v"},
		"token":                         {"HSET", "", "f", "v"},
		"queue:k":                       {"SET", "", "v"},
		"places:k":                      {"SET", "", "v"},
		"live":                          {"SET", "", "v"},
		"not a lock, of the right type": {"SET", "", "v"},
	} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			ns := namespace()
			d, err := open(short(t), s.Addr(), &redislock.Options{Namespace: ns})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = d.Close() }()
			g, err := d.TryAcquire(short(t), request("k"))
			if err != nil {
				t.Fatal(err)
			}
			name := lockName(t, s, ns)
			bucket := strings.TrimSuffix(name, "lock:k")
			if part == "token" || part == "lock:k" || !strings.Contains(part, ":") && part != "live" {
				if err := d.Release(short(t), g); err != nil {
					t.Fatal(err)
				}
			}
			write[1] = bucket + part
			if strings.Contains(part, " ") {
				write[1] = name
			}
			if _, err := s.Do(t.Context(), "DEL", write[1]); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Do(t.Context(), write...); err != nil {
				t.Fatal(err)
			}
			ask := d.TryAcquire
			if strings.HasPrefix(part, "queue") || strings.HasPrefix(part, "places") || part == "live" {
				ask = d.(driver.Queuer).Enqueue
			}
			if g, err := ask(short(t), request("k")); !errors.Is(err, driver.ErrCorrupt) {
				t.Errorf("with %s: got token %v and %v, want %v", strings.Join(write, " "), g.Token, err, driver.ErrCorrupt)
			}
		})
	}
}

// lockName is the name in Redis of the only lock of a namespace.
func lockName(t *testing.T, s *live.RedisServer, ns string) string {
	t.Helper()
	v, err := s.Do(t.Context(), "KEYS", "{"+ns+":??}:lock:*")
	names, _ := v.([]any)
	if err != nil || len(names) != 1 {
		t.Fatalf("locks of %s: got %v and %v, want one", ns, v, err)
	}
	return fmt.Sprint(names[0])
}

// Memory that is full refuses new locks and places, definitely, and hinders nobody who has one.
func TestMemoryFull(t *testing.T) {
	t.Parallel()
	s := live.Redis(t, live.RedisOptions{Own: true, Args: []string{"--maxmemory-policy", "noeviction"}})
	d, err := open(short(t), s.Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	g, err := d.TryAcquire(short(t), request("k"))
	if err != nil {
		t.Fatal(err)
	}
	waiter := request("k")
	if _, err := d.(driver.Queuer).Enqueue(short(t), waiter); !errors.Is(err, driver.ErrHeld) {
		t.Fatal(err)
	}
	if _, err := s.Do(t.Context(), "CONFIG", "SET", "maxmemory", "1mb"); err != nil {
		t.Fatal(err)
	}
	for what, ask := range map[string]func(context.Context, driver.Request) (driver.Grant, error){
		"TryAcquire": d.TryAcquire, "Enqueue": d.(driver.Queuer).Enqueue,
	} {
		if _, err := ask(short(t), request("other")); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("%s: got %v, want %v with OOM", what, err, driver.ErrUnavailable)
		}
	}
	if _, err := d.Renew(short(t), g); err != nil {
		t.Errorf("Renew: %v", err)
	}
	if err := d.Release(short(t), g); err != nil {
		t.Errorf("Release: %v", err)
	}
	if next, err := d.(driver.Queuer).Poll(short(t), waiter); err != nil || next.Token <= g.Token {
		t.Errorf("Poll of who waited: got token %v and %v, want it granted", next.Token, err)
	}
}

// A lock that an operator has made lasting is held, without an end that waiters could wait for.
func TestPersisted(t *testing.T) {
	t.Parallel()
	s, ns := shared(t), namespace()
	d, err := open(short(t), s.Addr(), &redislock.Options{Namespace: ns})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	g, err := d.TryAcquire(short(t), request("k"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Do(t.Context(), "PERSIST", lockName(t, s, ns)); err != nil {
		t.Fatal(err)
	}
	var held *driver.HeldError
	if _, err := d.TryAcquire(short(t), request("k")); !errors.As(err, &held) || held.ExpiresIn != 0 {
		t.Errorf("TryAcquire: got %v, want it held, and no end told", err)
	}
	if st, err := d.(driver.Inspector).Inspect(short(t), "k"); err != nil || !st.Held || st.ExpiresIn >= 0 {
		t.Errorf("Inspect: got %+v and %v, want it held until nobody knows when", st, err)
	}
	if _, err := d.Renew(short(t), g); err != nil {
		t.Errorf("Renew: %v", err)
	}
	if _, err := d.TryAcquire(short(t), request("k")); !errors.As(err, &held) || held.ExpiresIn <= 0 {
		t.Errorf("TryAcquire behind a renewal: got %v, want an end told", err)
	}
}

// How long a key is held is known from its expiry until the first renewal, and from what that
// notes behind it. What a test does to the expiry stands for the time that passes.
func TestHeldFor(t *testing.T) {
	t.Parallel()
	s, ns := shared(t), namespace()
	d, err := open(short(t), s.Addr(), &redislock.Options{Namespace: ns})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	begun := time.Now()
	do := func(command ...string) {
		t.Helper()
		if _, err := s.Do(t.Context(), command...); err != nil {
			t.Fatal(err)
		}
	}
	held := func(when string, want time.Duration) {
		t.Helper()
		most := want + time.Since(begun) + 2*time.Millisecond
		st, err := d.(driver.Inspector).Inspect(short(t), "k")
		if most += time.Since(begun); err != nil || !st.Held || st.HeldFor < want || st.HeldFor > most {
			t.Errorf("%s: got held for %v and %v, want %v to %v", when, st.HeldFor, err, want, most)
		}
	}
	r := request("k")
	r.TTL = time.Hour
	g, err := d.TryAcquire(short(t), r)
	if err != nil {
		t.Fatal(err)
	}
	renew := func() {
		t.Helper()
		if _, err := d.Renew(short(t), g); err != nil {
			t.Fatal(err)
		}
	}
	held("at once", 0)
	name := lockName(t, s, ns)
	do("PEXPIRE", name, "3000000") // of 3 600 000
	held("ten minutes later", 10*time.Minute)
	renew()
	held("renewed", 10*time.Minute)
	do("PEXPIRE", name, "1200000")
	held("a renewal later, whatever the expiry is", 10*time.Minute)
	renew()
	held("renewed again", 10*time.Minute)
	if err := d.(driver.Breaker).Break(short(t), "k", g.Token, driver.Break{}); err != nil {
		t.Fatal(err)
	}
	held("broken", 10*time.Minute)
	do("DEL", name)
	if g, err = d.TryAcquire(short(t), r); err != nil {
		t.Fatal(err)
	}
	do("PEXPIRE", name, "3000000")
	if err := d.(driver.Breaker).Break(short(t), "k", g.Token, driver.Break{}); err != nil {
		t.Fatal(err)
	}
	held("broken before its first renewal", 10*time.Minute)
	do("PERSIST", name)
	if st, err := d.(driver.Inspector).Inspect(short(t), "k"); err != nil || !st.Held || st.HeldFor >= 0 {
		t.Errorf("without an expiry: got %+v and %v, want it held since nobody knows when", st, err)
	}
}

// RESP2 tells the same in other forms.
func TestProtocol2(t *testing.T) {
	t.Parallel()
	url := shared(t).URL() + "?protocol=2&ns=" + namespace()
	var ls [2]*locker.Locker
	for i := range ls {
		l, err := locker.Open(short(t), url, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		ls[i] = l
	}
	if i := ls[0].Info(); strings.Contains(i.FailoverLoses, "unknown") {
		t.Errorf("what a crash loses: got %q, want it known", i.FailoverLoses)
	}
	lease, err := ls[0].Acquire(short(t), "k")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- ls[1].Do(short(t), "k", func(context.Context, *locker.Lease) error { return nil }) }()
	eventually(t, 5*time.Second, "a waiter", func() bool {
		st, err := ls[0].Inspect(t.Context(), "k")
		return err == nil && st.Waiters == 1
	})
	begun := time.Now()
	if err := errors.Join(lease.Release(short(t)), <-done); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > time.Second { // a slow poll comes within five
		t.Errorf("the hand-off took %v, want it pushed", took)
	}
}

// Close of a Locker that New made closes its driver, frees what it held, and leaves the client
// to its owner.
func TestNew(t *testing.T) {
	t.Parallel()
	c := redis.NewClient(&redis.Options{Addr: shared(t).Addr()})
	defer func() { _ = c.Close() }()
	o := &redislock.Options{Namespace: namespace()}
	l, err := redislock.New(short(t), c, o, &locker.Options{TTL: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := l.Acquire(short(t), "k")
	if err != nil {
		t.Fatal(err)
	}
	d := lease.Grant().State.(*redislock.Driver)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.TryAcquire(short(t), request("k")); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("the driver behind Close: got %v, want %v", err, driver.ErrClosed)
	}
	next, err := redislock.New(short(t), c, o, nil)
	if err != nil {
		t.Fatalf("the client behind Close: %v", err)
	}
	defer func() { _ = next.Close() }()
	if _, err := next.TryAcquire(short(t), "k"); err != nil {
		t.Errorf("the key behind Close: got %v, want it free", err)
	}
	if _, err := redislock.New(short(t), c, o, &locker.Options{TTL: time.Millisecond}); !errors.Is(err, driver.ErrInvalidTTL) {
		t.Errorf("an impossible ttl: got %v, want %v", err, driver.ErrInvalidTTL)
	}
}
