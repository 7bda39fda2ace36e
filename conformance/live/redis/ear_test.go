package redis_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencelock/locker/conformance/live/netfault"
	"github.com/fencelock/locker/redislock"
)

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
	const way = 150 * time.Millisecond
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
