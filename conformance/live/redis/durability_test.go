package redis_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/conformance/live"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/redislock"
)

// RE3: what a server keeps over a restart and a kill is what Info declares of it. Where it
// declares nothing, whoever saw a greater token notices.
func TestPersistence(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		p     live.RedisPersistence
		cases []string
		// orderly: an orderly restart, too, loses what a kill loses.
		orderly bool
		tokens  driver.Durability
		loses   string
	}{
		"always":                  {live.RedisAlways, []string{"server/restart", "server/killed"}, false, driver.Durable, ""},
		"everysec":                {live.RedisEverySec, []string{"server/restart", "server/killed"}, false, driver.BestEffort, "last second"},
		"snapshot":                {live.RedisSnapshot, []string{"server/restart", "server/killed"}, false, driver.BestEffort, "snapshot"},
		"none":                    {live.RedisNone, []string{"server/killed"}, false, driver.BestEffort, "everything"},
		"none, in an orderly way": {live.RedisNone, []string{"server/killed"}, true, driver.BestEffort, "everything"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := harness(t, live.Redis(t, live.RedisOptions{Persistence: want.p, Own: true}))
			if want.orderly {
				h.Faults.Kill = h.Faults.Restart
			}
			d, err := h.Driver(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = d.Close() }()
			if i := d.Info(); i.Tokens != want.tokens || !strings.Contains(i.FailoverLoses, want.loses) || (i.FailoverLoses == "") != (want.loses == "") {
				t.Errorf("Info: got tokens %v and loses %q, want %v and %q", i.Tokens, i.FailoverLoses, want.tokens, want.loses)
			}
			settle(t, conformance.Check(t.Context(), h, conformance.CheckOptions{
				Only: func(c conformance.Case) bool { return slices.Contains(want.cases, c.ID) },
			}), len(want.cases))
		})
	}
}

// RE5: a server that evicts is refused, and require=durable-tokens refuses it also where
// eviction is allowed.
func TestEviction(t *testing.T) {
	t.Parallel()
	s := live.Redis(t, live.RedisOptions{Persistence: live.RedisAlways, Args: []string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}})
	for query, want := range map[string]error{
		"":                     driver.ErrUnsupported,
		"?allow_eviction=true": nil,
		"?allow_eviction=true&require=durable-tokens": driver.ErrUnsupported,
	} {
		l, err := locker.Open(t.Context(), s.URL()+query, nil)
		if !errors.Is(err, want) {
			t.Errorf("Open with %q: got %v, want %v", query, err, want)
		}
		if err != nil {
			if !strings.Contains(err.Error(), "allkeys-lru") {
				t.Errorf("Open with %q: got %v, want the policy or the requirement named", query, err)
			}
			continue
		}
		if i := l.Info(); i.Tokens != driver.BestEffort || !strings.Contains(i.FailoverLoses, "allkeys-lru") {
			t.Errorf("Info: got %v, %q, want best-effort and the policy named", i.Tokens, i.FailoverLoses)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A file that is not synced while it is rewritten keeps no token for certain.
func TestUnsyncedRewrite(t *testing.T) {
	t.Parallel()
	s := live.Redis(t, live.RedisOptions{Persistence: live.RedisAlways, Own: true})
	for setting, want := range map[string]error{"no": nil, "yes": driver.ErrUnsupported} {
		if _, err := s.Do(t.Context(), "CONFIG", "SET", "no-appendfsync-on-rewrite", setting); err != nil {
			t.Fatal(err)
		}
		l, err := locker.Open(short(t), s.URL()+"?require=durable-tokens", nil)
		if !errors.Is(err, want) {
			t.Errorf("no-appendfsync-on-rewrite %s: got %v, want %v", setting, err, want)
		}
		if err == nil {
			_ = l.Close()
		}
	}
}

// pair is a primary and its replica.
func pair(t *testing.T) (primary, replica *live.RedisServer) {
	t.Helper()
	primary = live.Redis(t, live.RedisOptions{Persistence: live.RedisAlways, Own: true})
	return primary, live.Redis(t, live.RedisOptions{Persistence: live.RedisAlways, ReplicaOf: primary})
}

// request is an attempt at a key.
func request(key string) driver.Request {
	return driver.Request{Key: key, Attempt: driver.NewAttempt(), TTL: 10 * time.Second, Owner: "test"}
}

// RE4: a replica that has not received the grant gives the key to another one, as Info says,
// with a token that whoever saw the first one refuses.
func TestPromotedWithoutGrant(t *testing.T) {
	t.Parallel()
	primary, replica := pair(t)
	var at atomic.Pointer[live.RedisServer]
	at.Store(primary)
	o := &redislock.Options{Namespace: namespace()}
	d, _, err := proxied(t.Context(), func() string { return at.Load().Addr() }, o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := locker.New(d, &locker.Options{TTL: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	defer func() { _ = l.Close() }()
	if i := d.Info(); i.Tokens != driver.BestEffort || !strings.Contains(i.FailoverLoses, "replica") {
		t.Errorf("Info: got %v, %q, want best-effort and the replica named", i.Tokens, i.FailoverLoses)
	}
	use := func() driver.Token {
		t.Helper()
		lease, err := l.TryAcquire(short(t), "k")
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(short(t)); err != nil {
			t.Fatal(err)
		}
		return lease.Token()
	}
	known := use()
	replicated(t, primary)
	if err := replica.Disconnect(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 { // none of this reaches the replica
		use()
	}
	lost, err := l.TryAcquire(short(t), "k")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(primary.Kill(t.Context()), replica.Promote(t.Context())); err != nil {
		t.Fatal(err)
	}
	at.Store(replica)
	other, err := open(t.Context(), replica.Addr(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	g, err := other.TryAcquire(short(t), request("k"))
	if err != nil || g.Token != known+1 {
		t.Fatalf("the promoted replica: got token %v and %v, want token %v a second time", g.Token, err, known+1)
	}
	if err := other.Release(short(t), g); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "the holder learns it", func() bool { return !lost.Valid() })
	eventually(t, 10*time.Second, "an answer from the replica", func() bool {
		_, err = l.TryAcquire(short(t), "k")
		return !errors.Is(err, driver.ErrAmbiguous) && !errors.Is(err, driver.ErrUnavailable)
	})
	if !errors.Is(err, driver.ErrTokenRegression) {
		t.Errorf("who saw token %v asks the replica: got %v, want %v", lost.Token(), err, driver.ErrTokenRegression)
	}
}

// replicated waits until the replica has everything.
func replicated(t *testing.T, primary *live.RedisServer) {
	t.Helper()
	eventually(t, 10*time.Second, "the replica has everything", func() bool {
		v, err := primary.Do(t.Context(), "INFO", "replication")
		text, _ := v.(string)
		var offset, acked string
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			if o, ok := strings.CutPrefix(line, "master_repl_offset:"); ok {
				offset = o
			}
			if _, o, ok := strings.Cut(line, ",offset="); ok {
				acked, _, _ = strings.Cut(o, ",")
			}
		}
		return err == nil && offset != "" && offset == acked
	})
}

// RE4: with wait_replicas=1 an acquire that reaches no replica is no grant, nor is its
// re-send on another connection, though the primary has it; and what was granted is known to
// the replica that is promoted.
func TestWaitReplicas(t *testing.T) {
	t.Parallel()
	primary, replica := pair(t)
	o := &redislock.Options{Namespace: namespace(), WaitReplicas: 1}
	var ds [2]driver.Driver
	for i := range ds {
		d, err := open(t.Context(), primary.Addr(), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		ds[i] = d
	}
	if !ds[0].Info().ConfirmPushes {
		t.Error("ConfirmPushes: got false, want true: a pushed grant has met no replica")
	}
	before, err := ds[0].TryAcquire(short(t), request("before"))
	if err != nil {
		t.Fatal(err)
	}
	lasting := request("lasting")
	granted, err := ds[0].TryAcquire(short(t), lasting)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := primary.Do(t.Context(), "EVAL", "return redis.call('PERSIST', redis.call('KEYS', ARGV[1])[1])", "0", "{"+o.Namespace+":??}:lock:lasting"); err != nil {
		t.Fatal(err)
	}
	if again, err := ds[1].TryAcquire(short(t), lasting); err != nil || again.Token != granted.Token {
		t.Errorf("a re-send that finds a lock without an expiry: got token %v and %v, want %v", again.Token, err, granted.Token)
	}
	if g, err := ds[1].TryAcquire(short(t), request("lasting")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("another's try behind it: got token %v and %v, want %v", g.Token, err, driver.ErrHeld)
	}
	if err := replica.Disconnect(t.Context()); err != nil {
		t.Fatal(err)
	}
	ask := func(f func(context.Context, driver.Request) (driver.Grant, error), r driver.Request) error {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err := f(ctx, r)
		return err
	}
	try, queue := request("k"), request("queued")
	for i, d := range []driver.Driver{ds[0], ds[1], ds[0], ds[1]} {
		if err := ask(d.TryAcquire, try); !errors.Is(err, driver.ErrAmbiguous) {
			t.Errorf("send %d of a try without a replica: got %v, want %v", i, err, driver.ErrAmbiguous)
		}
		if err := ask(d.(driver.Queuer).Enqueue, queue); !errors.Is(err, driver.ErrAmbiguous) {
			t.Errorf("send %d of an enqueue without a replica: got %v, want %v", i, err, driver.ErrAmbiguous)
		}
		if err := ask(d.(driver.Queuer).Poll, queue); !errors.Is(err, driver.ErrAmbiguous) {
			t.Errorf("poll %d without a replica: got %v, want %v", i, err, driver.ErrAmbiguous)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := ds[0].Renew(ctx, before); !errors.Is(err, driver.ErrAmbiguous) {
		t.Errorf("a renewal without a replica: got %v, want %v", err, driver.ErrAmbiguous)
	}
	over := before
	over.Key, over.Attempt = "over", driver.NewAttempt()
	ctx, cancel = context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := ds[0].(driver.BatchRenewer).RenewBatch(ctx, []driver.Grant{over, before}, func(i int, g driver.Grant, err error) {
		if want := []error{driver.ErrLost, driver.ErrAmbiguous}[i]; !errors.Is(err, want) {
			t.Errorf("renewal %d of a batch without a replica: got %v and %v, want %v", i, g.Token, err, want)
		}
	}); err != nil {
		t.Error(err)
	}
	if err := replica.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	var g driver.Grant
	eventually(t, 20*time.Second, "a grant once the replica is back", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		var err error
		g, err = ds[1].TryAcquire(ctx, request("k2"))
		return err == nil
	})
	if g, err := ds[0].Renew(short(t), g); err != nil {
		t.Errorf("a renewal with the replica: got %v and %v, want it renewed", g.Token, err)
	}
	if err := errors.Join(primary.Kill(t.Context()), replica.Promote(t.Context())); err != nil {
		t.Fatal(err)
	}
	after, err := open(t.Context(), replica.Addr(), &redislock.Options{Namespace: o.Namespace})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = after.Close() }()
	var held *driver.HeldError
	if _, err := after.TryAcquire(short(t), request("k2")); !errors.As(err, &held) || held.Token != g.Token {
		t.Errorf("the promoted replica: got %v, want the key held with token %v", err, g.Token)
	}
}
