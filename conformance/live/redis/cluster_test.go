package redis_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/conformance/live"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/redislock"
)

// masters is the Cluster of the tests.
var masters = live.Once(live.NewRedisCluster)

// clusterClient dials the nodes where they are published.
func clusterClient(c *live.RedisCluster, timeouts bool) *redis.ClusterClient {
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:                 []string{at(c.Nodes[0])},
		ContextTimeoutEnabled: timeouts,
		Dialer:                c.Dial,
	})
}

// at is where the nodes know one of them.
func at(n *live.RedisServer) string { return n.Name() + ":6379" }

// tell sends a command to a node.
func tell(t *testing.T, n *live.RedisServer, args ...string) string {
	t.Helper()
	v, err := n.Do(t.Context(), args...)
	if err != nil {
		t.Fatalf("%s on %s: %v", strings.Join(args, " "), n.Name(), err)
	}
	return fmt.Sprint(v)
}

// clustered is a driver and the client that it alone uses.
type clustered struct {
	*redislock.Driver
	redis *redis.ClusterClient
}

func (c clustered) Close() error { return errors.Join(c.Driver.Close(), c.redis.Close()) }

func openCluster(ctx context.Context, c *live.RedisCluster, timeouts bool, o *redislock.Options) (driver.Driver, error) {
	client := clusterClient(c, timeouts)
	d, err := redislock.NewDriver(ctx, client, o)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return clustered{d, client}, nil
}

// The core cases hold in a Cluster (per push those that a server can break), with a client that ends calls itself and with one that
// does not.
func TestCluster(t *testing.T) {
	c := masters(t)
	control := clusterClient(c, true)
	t.Cleanup(func() { _ = control.Close() })
	for name, timeouts := range map[string]bool{"context timeouts": true, "detached calls": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := &redislock.Options{Namespace: namespace()}
			h := conformance.Harness{
				Driver:   func(ctx context.Context) (driver.Driver, error) { return openCluster(ctx, c, timeouts, o) },
				Control:  func(ctx context.Context) error { return control.Ping(ctx).Err() },
				Parallel: 8, // a client of a Cluster is dear to open, and cases open some in their course
				Fence: func(_ context.Context, name string) (conformance.Fence, error) {
					return redislock.NewFence(control, name)
				},
			}
			settle(t, conformance.Check(t.Context(), h, conformance.CheckOptions{
				Only: func(k conformance.Case) bool {
					topics := []string{"contract", "request", "queue", "expiry", "break", "inspect"}
					if !timeouts {
						topics = topics[:2]
					}
					topic, _, _ := strings.Cut(k.ID, "/")
					return k.Level == conformance.Core && !k.Load && !slices.Contains(k.Needs, conformance.FeatureChild) &&
						(full() || slices.Contains(topics, topic))
				},
			}), 20)
		})
	}
}

// RE7: all that a script touches is in one slot, whatever the key is, and the keys of both
// nodes are listed.
func TestClusterSlots(t *testing.T) {
	t.Parallel()
	c := masters(t)
	o := &redislock.Options{Namespace: namespace()}
	d, err := openCluster(short(t), c, true, o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	if !d.Info().ConfirmPushes {
		t.Error("ConfirmPushes: got false, want true: a push may come from another node's clock")
	}
	const n = 200
	for i := range n {
		if _, err := d.TryAcquire(short(t), request(fmt.Sprintf("key {%d} %d", i, i))); err != nil {
			t.Fatal(err)
		}
	}
	listed := 0
	for _, err := range d.(driver.Inspector).List(short(t), "key ") {
		if err != nil {
			t.Fatal(err)
		}
		listed++
	}
	if listed != n {
		t.Errorf("List: got %d keys, want %d", listed, n)
	}
	for _, node := range c.Nodes {
		if tell(t, node, "EVAL", "return #redis.call('KEYS', ARGV[1])", "0", "{"+o.Namespace+":??}:token") == "0" {
			t.Errorf("counters on %s: got none, want some on every node", node.Name())
		}
	}
	_, err = openCluster(short(t), c, true, &redislock.Options{Namespace: namespace(), WaitReplicas: 1})
	if !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("wait_replicas in a Cluster: got %v, want %v", err, driver.ErrUnsupported)
	}
	if _, err := open(short(t), c.Nodes[0].Addr(), nil); !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), "Cluster") {
		t.Errorf("a client of one node: got %v, want %v", err, driver.ErrUnsupported)
	}
}

// RE7: a slot that moves to another node during a hold takes the lock and its queue along.
func TestSlotMoves(t *testing.T) {
	t.Parallel()
	c := masters(t)
	ns := namespace()
	o := &redislock.Options{Namespace: ns}
	var lockers [2]*locker.Locker
	for i := range lockers {
		d, err := openCluster(short(t), c, i == 0, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		if lockers[i], err = locker.New(d, &locker.Options{TTL: 2 * time.Second}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = lockers[i].Close() })
	}
	lease, err := lockers[0].Acquire(short(t), "k")
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan *locker.Lease, 1)
	go func() {
		next, err := lockers[1].Acquire(t.Context(), "k", locker.WithWait(20*time.Second))
		if err != nil {
			t.Error(err)
		}
		got <- next
	}()
	eventually(t, 5*time.Second, "a waiter", func() bool {
		st, err := lockers[0].Inspect(t.Context(), "k")
		return err == nil && st.Waiters == 1
	})
	third, err := openCluster(short(t), c, true, o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = third.Close() }()
	moveSlot(t, c, ns, func() {
		if err := lease.Renew(short(t)); err != nil {
			t.Errorf("a renewal during the move: %v", err)
		}
		// Some of the keys that a try needs are here and some there: it may be told to try again.
		g, err := third.TryAcquire(short(t), request("k"))
		later := errors.Is(err, driver.ErrUnavailable) && strings.Contains(err.Error(), "TRYAGAIN")
		if !errors.Is(err, driver.ErrHeld) && !later {
			t.Errorf("TryAcquire during the move: got token %v and %v, want %v, or %v until it is over", g.Token, err, driver.ErrHeld, driver.ErrUnavailable)
		}
	})
	end := time.Now().Add(3 * time.Second)
	eventually(t, 5*time.Second, "renewals go on", func() bool {
		if err := lease.Err(); err != nil {
			t.Fatalf("the lease ended behind the move: %v", err)
		}
		return time.Now().After(end)
	})
	if _, err := lockers[1].TryAcquire(short(t), "k"); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("TryAcquire behind the move: got %v, want %v", err, driver.ErrHeld)
	}
	if err := lease.Release(short(t)); err != nil {
		t.Fatal(err)
	}
	next := <-got
	if next == nil || next.Token() <= lease.Token() {
		t.Fatalf("behind the move: got %v, want a lease with a token above %v", next, lease.Token())
	}
	if err := next.Release(short(t)); err != nil {
		t.Error(err)
	}
}

// While a slot moves, some of its locks are here and some there: each is renewed where it is.
func TestBatchWhileItsSlotMoves(t *testing.T) {
	t.Parallel()
	c := masters(t)
	ns := namespace()
	for name, timeouts := range map[string]bool{"context timeouts": true, "detached calls": false} {
		ns := ns + strings.Fields(name)[0]
		d, err := openCluster(short(t), c, timeouts, &redislock.Options{Namespace: ns})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		var gs []driver.Grant
		for i := 0; len(gs) < 4; i++ {
			key := fmt.Sprint("k", i)
			if bucketOf(key) != bucketOf("k0") {
				continue
			}
			g, err := d.TryAcquire(short(t), request(key))
			if err != nil {
				t.Fatal(err)
			}
			gs = append(gs, g)
		}
		moveSlot(t, c, ns, func() {
			if err := d.(driver.BatchRenewer).RenewBatch(short(t), gs, func(i int, g driver.Grant, err error) {
				if err != nil || g.Token != gs[i].Token {
					t.Errorf("%s: a renewal of %s during the move: got token %v and %v, want %v", name, gs[i].Key, g.Token, err, gs[i].Token)
				}
			}); err != nil {
				t.Error(err)
			}
		})
	}
}

// The permissions that docs/backends/redis.md lists are enough in a Cluster, also while a slot
// moves.
func TestLeastPermissionsInCluster(t *testing.T) {
	t.Parallel()
	c := live.NewRedisCluster(t)
	for _, n := range c.Nodes {
		tell(t, n, append([]string{"ACL", "SETUSER", "least", "on", ">pw", "-@all"}, documented(t)...)...)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{at(c.Nodes[0])}, Username: "least", Password: "pw", ClientName: "app", ContextTimeoutEnabled: true, Dialer: c.Dial,
	})
	defer func() { _ = client.Close() }()
	d, err := redislock.NewDriver(short(t), client, &redislock.Options{Namespace: "app"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	var gs []driver.Grant
	for i := 0; len(gs) < 3; i++ {
		if key := fmt.Sprint("k", i); bucketOf(key) == bucketOf("k0") {
			g, err := d.TryAcquire(short(t), request(key))
			if err != nil {
				t.Fatal(err)
			}
			gs = append(gs, g)
		}
	}
	moveSlot(t, c, "app", func() {
		for _, g := range gs {
			if _, err := d.Renew(short(t), g); err != nil {
				t.Errorf("a renewal during the move: %v", err)
			}
		}
	})
	for _, g := range gs {
		if err := d.Release(short(t), g); err != nil {
			t.Error(err)
		}
	}
}

// moveSlot moves the only slot that the namespace's locks are in to another node, as redis-cli
// --cluster reshard does, key by key, and calls between when the first is there and others are not.
func moveSlot(t *testing.T, c *live.RedisCluster, ns string, between func()) {
	t.Helper()
	var from, to *live.RedisServer
	var lock string
	for i, n := range c.Nodes {
		found := tell(t, n, "EVAL", "return table.concat(redis.call('KEYS', ARGV[1]), '\\n')", "0", "{"+ns+":??}:lock:*")
		if found != "" {
			from, to, lock = n, c.Nodes[(i+1)%len(c.Nodes)], found
		}
	}
	slot, fromID, toID := tell(t, from, "CLUSTER", "KEYSLOT", lock), tell(t, from, "CLUSTER", "MYID"), tell(t, to, "CLUSTER", "MYID")
	tell(t, to, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID)
	tell(t, from, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
	for moved := 0; ; moved++ {
		v, err := from.Do(t.Context(), "CLUSTER", "GETKEYSINSLOT", slot, "1")
		keys, _ := v.([]any)
		if err != nil {
			t.Fatal(err)
		}
		if len(keys) == 0 {
			if moved < 3 {
				t.Errorf("keys of the slot: got %d, want a lock and its queue", moved)
			}
			break
		}
		if moved > 0 {
			between()
		}
		tell(t, from, "MIGRATE", to.Name(), "6379", fmt.Sprint(keys[0]), "0", "5000")
	}
	between()
	for _, n := range []*live.RedisServer{to, from} {
		tell(t, n, "CLUSTER", "SETSLOT", slot, "NODE", toID)
	}
}

// One master that cannot be reached ends no lease on the others: neither an answer nor its
// time depends on it.
func TestMasterUnreachable(t *testing.T) {
	t.Parallel()
	c := live.NewRedisCluster(t)
	for _, n := range c.Nodes { // as a Cluster that shall outlive a node is run
		tell(t, n, "CONFIG", "SET", "cluster-require-full-coverage", "no")
	}
	o := &redislock.Options{Namespace: namespace()}
	for name, timeouts := range map[string]bool{"context timeouts": true, "detached calls": false} {
		d, err := openCluster(short(t), c, timeouts, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		var gs []driver.Grant
		for i := range 30 {
			r := request(fmt.Sprintf("%s %d", name, i))
			r.TTL = time.Minute
			g, err := d.TryAcquire(short(t), r)
			if err != nil {
				t.Fatal(err)
			}
			gs = append(gs, g)
		}
		onPaused := tell(t, c.Nodes[2], "EVAL", "return table.concat(redis.call('KEYS', ARGV[1]), '\\n')", "0", "{"+o.Namespace+":??}:lock:*") + "\n"
		lost := func(g driver.Grant) bool { return strings.Contains(onPaused, ":lock:"+g.Key+"\n") }
		if !slices.ContainsFunc(gs, lost) {
			t.Fatal("no grant is on the third master")
		}
		if err := c.Nodes[2].Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		for round := range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			begun, answered := time.Now(), 0
			err := d.(driver.BatchRenewer).RenewBatch(ctx, gs, func(i int, _ driver.Grant, err error) {
				answered++
				if stuck := lost(gs[i]); stuck != (err != nil) {
					t.Errorf("%s: round %d, grant %d, on the paused master %v: got %v", name, round, i, stuck, err)
				}
				if took := time.Since(begun); err == nil && took > 1500*time.Millisecond {
					t.Errorf("%s: round %d, grant %d was answered after %v, want before the paused master's deadline", name, round, i, took)
				}
			})
			cancel()
			if err != nil || answered != len(gs) {
				t.Errorf("%s: RenewBatch: got %d answers and %v, want %d", name, answered, err, len(gs))
			}
		}
		if err := c.Nodes[2].Unpause(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.Agrees(short(t)); err != nil {
			t.Fatal(err)
		}
	}
}
