package redis_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/conformance/live"
	"github.com/fencelock/locker/conformance/live/netfault"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/redislock"
)

// wired is a Locker, opened by URL, whose round trips are counted.
func wired(t *testing.T, s *live.RedisServer, ns string, ttl time.Duration) (*locker.Locker, *netfault.Proxy) {
	t.Helper()
	p, err := netfault.Listen(netfault.At(s.Addr()), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	l, err := locker.Open(t.Context(), fmt.Sprintf("redis://%s/0?ns=%s&ttl=%v", p.Addr(), ns, ttl), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, p
}

// turns is how many round trips f takes.
func turns(p *netfault.Proxy, f func()) int64 {
	before := p.Counts().Turns
	f()
	return p.Counts().Turns - before
}

// Behind the opening, an acquire, a refusal, a batch of renewals and a release are one round
// trip each, the first contended acquire at most five.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	s, ns := shared(t), namespace()
	a, ap := wired(t, s, ns, 30*time.Second)
	b, bp := wired(t, s, ns, 30*time.Second)
	want := func(what string, p *netfault.Proxy, n int64, f func()) {
		t.Helper()
		if got := turns(p, f); got != n {
			t.Errorf("round trips of %s: got %d, want %d", what, got, n)
		}
	}
	var lease *locker.Lease
	var err error
	want("an acquire", ap, 1, func() { lease, err = a.Acquire(short(t), "k") })
	if err != nil {
		t.Fatal(err)
	}
	want("a refusal", bp, 1, func() { _, err = b.TryAcquire(short(t), "k") })
	if !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("TryAcquire of a held key: got %v, want %v", err, driver.ErrHeld)
	}
	want("a renewal", ap, 1, func() { err = lease.Renew(short(t)) })
	if err != nil {
		t.Fatal(err)
	}
	// The first contended acquire opens the subscription on the way.
	got := make(chan *locker.Lease, 1)
	before := bp.Counts().Turns
	go func() {
		next, err := b.Acquire(short(t), "k")
		if err != nil {
			t.Error(err)
		}
		got <- next
	}()
	eventually(t, 5*time.Second, "a waiter", func() bool {
		st, err := a.Inspect(t.Context(), "k")
		return err == nil && st.Waiters == 1
	})
	want("a release that hands on", ap, 1, func() { err = lease.Release(short(t)) })
	if err != nil {
		t.Fatal(err)
	}
	next := <-got
	// The push that ends the wait comes unasked, and is no round trip.
	if n := bp.Counts().Turns - before; n > 5 {
		t.Errorf("round trips of the first contended acquire: got %d, want at most 5", n)
	}
	want("a release", bp, 1, func() { err = next.Release(short(t)) })
	if err != nil {
		t.Fatal(err)
	}
	// The second one has its subscription.
	lease, err = a.Acquire(short(t), "k")
	if err != nil {
		t.Fatal(err)
	}
	before = bp.Counts().Turns
	go func() {
		next, err := b.Acquire(short(t), "k")
		if err != nil {
			t.Error(err)
		}
		got <- next
	}()
	eventually(t, 5*time.Second, "a waiter", func() bool {
		st, err := a.Inspect(t.Context(), "k")
		return err == nil && st.Waiters == 1
	})
	if n := bp.Counts().Turns - before; n > 2 {
		t.Errorf("round trips of a contended acquire: got %d, want 2: a try and a place", n)
	}
	if err := lease.Release(short(t)); err != nil {
		t.Fatal(err)
	}
	if err := (<-got).Release(short(t)); err != nil {
		t.Fatal(err)
	}
}

// A batch is one round trip, however many grants it renews.
func TestBatchRoundTrip(t *testing.T) {
	t.Parallel()
	d, network, err := proxied(t.Context(), shared(t).Addr, &redislock.Options{Namespace: namespace()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	var gs []driver.Grant
	for i := range 100 {
		g, err := d.TryAcquire(short(t), request(fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		gs = append(gs, g)
	}
	n := turns(network.(*netfault.Proxy), func() {
		err = d.(driver.BatchRenewer).RenewBatch(short(t), gs, func(i int, _ driver.Grant, err error) {
			if err != nil {
				t.Errorf("grant %d: %v", i, err)
			}
		})
	})
	if err != nil || n != 1 {
		t.Errorf("RenewBatch of %d: got %d round trips and %v, want 1", len(gs), n, err)
	}
}

// CT10 on the wire: neither an idle holder nor a waiter spins, the subscription's pings
// counted.
func TestIdleRequests(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	s, ns, span := shared(t), namespace(), 3*ttl
	if full() {
		span = 10 * ttl
	}
	a, ap := wired(t, s, ns, ttl)
	b, bp := wired(t, s, ns, ttl)
	lease, err := a.Acquire(short(t), "k")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), span)
	defer cancel()
	begun := time.Now()
	var waiting int64
	holding := turns(ap, func() {
		waiting = turns(bp, func() { _, err = b.Acquire(ctx, "k") })
	})
	if !errors.Is(err, driver.ErrHeld) || !lease.Valid() {
		t.Fatalf("Acquire of a held key: got %v, want %v and the holder %v", err, driver.ErrHeld, lease.Err())
	}
	took := time.Since(begun)
	if most := int64(took/(ttl/3)) + 2; holding > most || holding == 0 {
		t.Errorf("requests of an idle holder in %v: got %d, want at most %d", took, holding, most)
	}
	poll := driver.PollInterval(ttl)
	// Try, handshake, subscription, place, and its withdrawal; then polls and pings.
	if most := 6 + int64(took/(poll*3/4)) + int64(took/poll); waiting > most || waiting < int64(span/poll) {
		t.Errorf("requests of a waiter in %v: got %d, want %d to %d", took, waiting, int64(span/poll), most)
	}
}

// Nothing accumulates: keys that were used once leave the bucket counters and the namespace
// record alone, and a queue that was left leaves nothing.
func TestNothingAccumulates(t *testing.T) {
	t.Parallel()
	s := live.Redis(t, live.RedisOptions{Own: true})
	d, err := open(t.Context(), s.Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	keys := 10_000
	if full() {
		keys = 100_000
	}
	var all sync.WaitGroup
	const workers = 16
	for w := range workers {
		all.Go(func() {
			for i := w; i < keys; i += workers {
				r, waiter := request(fmt.Sprintf("key %d", i)), request(fmt.Sprintf("key %d", i))
				g, err := d.TryAcquire(short(t), r)
				if err != nil {
					t.Error(err)
					return
				}
				if i%10 == 0 { // a waiter that goes away
					if _, err := d.(driver.Queuer).Enqueue(short(t), waiter); !errors.Is(err, driver.ErrHeld) {
						t.Errorf("Enqueue: got %v, want %v", err, driver.ErrHeld)
					}
					if err := d.Release(short(t), driver.Grant{Request: waiter}); err != nil {
						t.Error(err)
					}
				}
				if err := d.Release(short(t), g); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	v, err := s.Do(t.Context(), "DBSIZE")
	if n, _ := v.(int64); err != nil || n != 257 {
		t.Errorf("keys behind %d uses: got %d and %v, want 256 counters and the namespace record", keys, n, err)
	}
	// A waiter that died, too, is gone with its horizon.
	r := request("k")
	r.TTL = time.Second
	if _, err := d.TryAcquire(short(t), r); err != nil {
		t.Fatal(err)
	}
	r.Attempt = driver.NewAttempt()
	if _, err := d.(driver.Queuer).Enqueue(short(t), r); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Enqueue: got %v, want %v", err, driver.ErrHeld)
	}
	eventually(t, r.TTL+driver.Horizon(r.TTL)+time.Second, "nothing is left of the dead", func() bool {
		v, err := s.Do(t.Context(), "DBSIZE")
		return err == nil && v == int64(257)
	})
}
