package redis_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/conformance/live"
	"github.com/fencelock/locker/conformance/live/netfault"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/redislock"
)

// A subscription that is lost is opened again, as often as it is: hand-offs go on to come by push.
func TestSubscriptionKilled(t *testing.T) {
	t.Parallel()
	s, ns := live.Redis(t, live.RedisOptions{Own: true}), namespace()
	a, _ := wired(t, s, ns, 30*time.Second) // a poll each 5 s
	b, _ := wired(t, s, ns, 30*time.Second)
	listener := func() string {
		_, id, _ := strings.Cut(said(t, s, "CLIENT", "LIST", "TYPE", "pubsub"), "id=")
		id, _, _ = strings.Cut(id, " ")
		return id
	}
	heardOf := func() string { // when the place was
		return said(t, s, "EVAL", "return redis.call('ZRANGE', redis.call('KEYS', ARGV[1])[1], -1, -1, 'WITHSCORES')[2]", "0", "{"+ns+":??}:live")
	}
	for round := range 3 {
		lease, err := a.Acquire(short(t), "k")
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan *locker.Lease, 1)
		go func() {
			next, err := b.Acquire(context.Background(), "k", locker.WithWait(20*time.Second))
			if err != nil {
				t.Error(err)
			}
			got <- next
		}()
		eventually(t, 5*time.Second, "a waiter", func() bool {
			st, err := a.Inspect(t.Context(), "k")
			return err == nil && st.Waiters == 1
		})
		old, enqueued := listener(), heardOf()
		said(t, s, "CLIENT", "KILL", "TYPE", "pubsub")
		eventually(t, 5*time.Second, "it listens again", func() bool { id := listener(); return id != "" && id != old })
		eventually(t, 2*time.Second, "it polls, for what it may have missed", func() bool { return heardOf() != enqueued })
		if err := lease.Release(short(t)); err != nil {
			t.Fatal(err)
		}
		released := time.Now()
		next := <-got
		if next == nil {
			return
		}
		if took := time.Since(released); took > time.Second {
			t.Errorf("round %d: the hand-off took %v, want it pushed", round, took)
		}
		if err := next.Release(short(t)); err != nil {
			t.Fatal(err)
		}
	}
}

// Behind a new subscription every waiter is told to poll: a push may have been lost.
func TestRousedBySubscription(t *testing.T) {
	t.Parallel()
	s := live.Redis(t, live.RedisOptions{Own: true})
	d, err := open(short(t), s.Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	g, err := d.TryAcquire(short(t), request("k"))
	if err != nil {
		t.Fatal(err)
	}
	r := request("k")
	ticket, err := d.(driver.Queuer).Listen(short(t), r)
	if err != nil {
		t.Fatal(err)
	}
	defer ticket.Close()
	if _, err := d.(driver.Queuer).Enqueue(short(t), r); !errors.Is(err, driver.ErrHeld) {
		t.Fatal(err)
	}
	// Killed and released in one go, so that the push finds nobody.
	if _, err := s.Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub"); err != nil {
		t.Fatal(err)
	}
	if err := d.Release(short(t), g); err != nil {
		t.Fatal(err)
	}
	if heard, err := ticket.Wait(short(t)); err != nil || heard.Token != 0 {
		t.Errorf("Wait: got token %v and %v, want to be told to poll", heard.Token, err)
	}
	if next, err := d.(driver.Queuer).Poll(short(t), r); err != nil || next.Token <= g.Token {
		t.Errorf("Poll: got token %v and %v, want it granted", next.Token, err)
	}
}

// A connection that swallows everything is noticed, by a ping that nobody answers.
func TestHalfOpenSubscription(t *testing.T) {
	t.Parallel()
	d, network, err := proxied(t.Context(), shared(t).Addr, &redislock.Options{Namespace: namespace()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	r := request("k")
	r.TTL = time.Second
	ticket, err := d.(driver.Queuer).Listen(short(t), r)
	if err != nil {
		t.Fatal(err)
	}
	defer ticket.Close()
	wire := network.(*netfault.Proxy)
	before := wire.Counts().Connections
	wire.Apply(netfault.Faults{Requests: netfault.Harm{Hole: true}, Replies: netfault.Harm{Hole: true}})
	eventually(t, 5*time.Second, "the subscription is opened anew", func() bool { return wire.Counts().Connections > before })
}

// A waiter with a short ttl, far away, does not make its driver subscribe again and again.
func TestEarKeepsItsConnection(t *testing.T) {
	t.Parallel()
	d, network, err := proxied(t.Context(), shared(t).Addr, &redislock.Options{Namespace: namespace()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	r := request("k")
	r.TTL = 200 * time.Millisecond
	ticket, err := d.(client).Listen(short(t), r)
	if err != nil {
		t.Fatal(err)
	}
	defer ticket.Close()
	const way = 75 * time.Millisecond
	far := network.(*netfault.Proxy)
	far.Apply(netfault.Faults{Requests: netfault.Harm{Delay: way}, Replies: netfault.Harm{Delay: way}})
	before := far.Counts()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if g, err := ticket.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait: got token %v and %v, want nothing heard", g.Token, err)
	}
	after := far.Counts()
	if n := after.Connections - before.Connections; n != 0 {
		t.Errorf("connections opened meanwhile: got %d, want none", n)
	}
	if n := after.Turns - before.Turns; n < 3 {
		t.Errorf("pings: got %d, want the connection watched", n)
	}
}
