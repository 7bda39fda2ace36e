package redis_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/conformance/live"
	"github.com/fencelock/locker/conformance/live/netfault"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/redislock"
)

// shared is the server of the tests that harm nothing.
var shared = live.Once(func(tb testing.TB) *live.RedisServer { return live.Redis(tb, live.RedisOptions{}) })

// RE1: a client that is stopped between sending a script and its reply gets its token late,
// and that token is lower than any that was granted behind it.
func TestStoppedBeforeReply(t *testing.T) {
	t.Parallel()
	s := shared(t)
	o := &redislock.Options{Namespace: namespace()}
	slow, network, err := proxied(t.Context(), s.Addr, o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = slow.Close() }()
	quick, err := open(t.Context(), s.Addr(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = quick.Close() }()
	rounds := 200
	if full() {
		rounds = 1000
	}
	network.(*netfault.Proxy).Apply(netfault.Faults{Replies: netfault.Harm{Delay: 3 * time.Millisecond, Jitter: 3 * time.Millisecond}})
	for range rounds {
		late := make(chan driver.Grant, 1)
		r := request("k")
		go func() {
			g, _ := slow.TryAcquire(short(t), r)
			late <- g
		}()
		var seen driver.State
		eventually(t, 5*time.Second, "the slow one is granted", func() bool {
			seen, err = quick.(driver.Inspector).Inspect(short(t), "k")
			return err == nil && seen.Held
		})
		if err := quick.(driver.Breaker).Break(short(t), "k", seen.Token, driver.Break{Now: true}); err != nil {
			t.Fatal(err)
		}
		next, err := quick.TryAcquire(short(t), request("k"))
		if err != nil {
			t.Fatal(err)
		}
		if g := <-late; g.Token != seen.Token || g.Token >= next.Token {
			t.Fatalf("token that came late: got %v, want %v, and less than %v, which was granted behind it", g.Token, seen.Token, next.Token)
		}
		if err := quick.Release(short(t), next); err != nil {
			t.Fatal(err)
		}
	}
}

// RE2: scripts that are flushed at any time cost a round trip and no double grant.
func TestScriptFlush(t *testing.T) {
	t.Parallel()
	s := live.Redis(t, live.RedisOptions{Own: true})
	h := harness(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	flushed := make(chan int, 1)
	go func() {
		n := 0
		for ctx.Err() == nil {
			if _, err := s.Do(ctx, "SCRIPT", "FLUSH"); err == nil {
				n++
			}
			select {
			case <-ctx.Done():
			case <-time.After(2 * time.Millisecond):
			}
		}
		flushed <- n
	}()
	settle(t, conformance.Check(t.Context(), h, conformance.CheckOptions{
		Only: func(c conformance.Case) bool {
			topic, _, _ := strings.Cut(c.ID, "/")
			return slices.Contains([]string{"contention", "queue", "request", "contract"}, topic)
		},
	}), 40)
	cancel()
	if n := <-flushed; n < 100 {
		t.Errorf("flushes: got %d, want many", n)
	}
}

// A batch whose scripts are gone is renewed as a whole, in two round trips.
func TestScriptFlushInBatch(t *testing.T) {
	t.Parallel()
	s := live.Redis(t, live.RedisOptions{Own: true})
	d, network, err := proxied(t.Context(), s.Addr, &redislock.Options{Namespace: namespace()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	var gs []driver.Grant
	for i := range 50 {
		g, err := d.TryAcquire(short(t), request(driver.Token(i+1).String()))
		if err != nil {
			t.Fatal(err)
		}
		gs = append(gs, g)
	}
	if _, err := s.Do(t.Context(), "SCRIPT", "FLUSH"); err != nil {
		t.Fatal(err)
	}
	before := network.(*netfault.Proxy).Counts().Turns
	renewed := 0
	err = d.(driver.BatchRenewer).RenewBatch(short(t), gs, func(i int, g driver.Grant, err error) {
		if err != nil || g.Token != gs[i].Token {
			t.Errorf("grant %d: got token %v and %v, want %v renewed", i, g.Token, err, gs[i].Token)
		}
		renewed++
	})
	if err != nil || renewed != len(gs) {
		t.Errorf("RenewBatch: got %d answers and %v, want %d", renewed, err, len(gs))
	}
	if turns := network.(*netfault.Proxy).Counts().Turns - before; turns != 2 {
		t.Errorf("round trips: got %d, want 2", turns)
	}
}
