package redis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
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

// slots is how many a Cluster has.
const slots = 16384

// cluster is one of two masters, half of the slots each.
type cluster struct {
	nodes [2]*live.RedisServer
	ids   [2]string
	ips   [2]string // inside, where the nodes know each other
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{}
	for i := range c.nodes {
		c.nodes[i] = live.Redis(t, live.RedisOptions{Args: []string{"--cluster-enabled", "yes", "--cluster-node-timeout", "5000"}})
		ip, err := c.nodes[i].Exec(t.Context(), "hostname", "-i")
		if err != nil {
			t.Fatal(err)
		}
		c.ips[i] = strings.Fields(ip)[0]
		c.ids[i] = c.do(t, i, "CLUSTER", "MYID")
		c.do(t, i, "CLUSTER", "ADDSLOTSRANGE", fmt.Sprint(i*slots/2), fmt.Sprint((i+1)*slots/2-1))
	}
	c.do(t, 0, "CLUSTER", "MEET", c.ips[1], "6379")
	for i := range c.nodes {
		eventually(t, 30*time.Second, "the cluster is up", func() bool {
			return strings.Contains(c.do(t, i, "CLUSTER", "INFO"), "cluster_state:ok") &&
				strings.Contains(c.do(t, i, "CLUSTER", "NODES"), c.ids[1-i])
		})
	}
	return c
}

func (c *cluster) do(t *testing.T, node int, args ...string) string {
	t.Helper()
	v, err := c.nodes[node].Do(t.Context(), args...)
	if err != nil {
		t.Fatalf("%s on node %d: %v", strings.Join(args, " "), node, err)
	}
	return fmt.Sprint(v)
}

// client dials the nodes where they are published.
func (c *cluster) client(timeouts bool) *redis.ClusterClient {
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:                 []string{c.ips[0] + ":6379"},
		ContextTimeoutEnabled: timeouts,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			for i, ip := range c.ips {
				if addr == ip+":6379" {
					addr = c.nodes[i].Addr()
				}
			}
			var d net.Dialer
			return d.DialContext(ctx, network, addr)
		},
	})
}

// clustered is a driver and the client that it alone uses.
type clustered struct {
	*redislock.Driver
	redis *redis.ClusterClient
}

func (c clustered) Close() error { return errors.Join(c.Driver.Close(), c.redis.Close()) }

func (c *cluster) open(ctx context.Context, timeouts bool, o *redislock.Options) (driver.Driver, error) {
	client := c.client(timeouts)
	d, err := redislock.NewDriver(ctx, client, o)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return clustered{d, client}, nil
}

// The core cases hold in a Cluster, with a client that ends calls itself and with one that
// does not.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	control := c.client(true)
	t.Cleanup(func() { _ = control.Close() })
	for name, timeouts := range map[string]bool{"context timeouts": true, "detached calls": false} {
		t.Run(name, func(t *testing.T) {
			o := &redislock.Options{Namespace: namespace()}
			h := conformance.Harness{
				Driver:  func(ctx context.Context) (driver.Driver, error) { return c.open(ctx, timeouts, o) },
				Control: func(ctx context.Context) error { return control.Ping(ctx).Err() },
				Fence: func(_ context.Context, name string) (conformance.Fence, error) {
					return redislock.NewFence(control, name)
				},
			}
			settle(t, conformance.Check(t.Context(), h, conformance.CheckOptions{
				Only: func(k conformance.Case) bool {
					return k.Level == conformance.Core && !k.Load && !slices.Contains(k.Needs, conformance.FeatureChild)
				},
			}), 60)
		})
	}
}

// RE7: all that a script touches is in one slot, whatever the key is, and the keys of both
// nodes are listed.
func TestClusterSlots(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	o := &redislock.Options{Namespace: namespace()}
	d, err := c.open(short(t), true, o)
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
	both := 0
	for i := range c.nodes {
		names := strings.Fields(c.do(t, i, "EVAL", "return table.concat(redis.call('KEYS', '*:token'), ' ')", "0"))
		if len(names) > 0 {
			both++
		}
	}
	if both != 2 {
		t.Errorf("nodes with counters: got %d, want 2", both)
	}
	_, err = c.open(short(t), true, &redislock.Options{Namespace: namespace(), WaitReplicas: 1})
	if !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("wait_replicas in a Cluster: got %v, want %v", err, driver.ErrUnsupported)
	}
	if _, err := open(short(t), c.nodes[0].Addr(), nil); !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), "Cluster") {
		t.Errorf("a client of one node: got %v, want %v", err, driver.ErrUnsupported)
	}
}

// RE7: a slot that moves to another node during a hold takes the lock and its queue along.
func TestSlotMoves(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ns := namespace()
	o := &redislock.Options{Namespace: ns}
	var lockers [2]*locker.Locker
	for i := range lockers {
		d, err := c.open(short(t), i == 0, o)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = d.Close() }()
		if lockers[i], err = locker.New(d, &locker.Options{TTL: 2 * time.Second}); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = lockers[i].Close() }()
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
	c.move(t, ns)
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

// move moves the only slot that the namespace's locks are in to the other node, as redis-cli
// --cluster reshard does, key by key.
func (c *cluster) move(t *testing.T, ns string) {
	t.Helper()
	const list = "return table.concat(redis.call('KEYS', ARGV[1]), '\\n')"
	from := 0
	locks := c.do(t, 0, "EVAL", list, "0", "{"+ns+":??}:lock:*")
	if locks == "" {
		from = 1
		locks = c.do(t, 1, "EVAL", list, "0", "{"+ns+":??}:lock:*")
	}
	to := 1 - from
	slot := c.do(t, from, "CLUSTER", "KEYSLOT", locks)
	c.do(t, to, "CLUSTER", "SETSLOT", slot, "IMPORTING", c.ids[from])
	c.do(t, from, "CLUSTER", "SETSLOT", slot, "MIGRATING", c.ids[to])
	for {
		v, err := c.nodes[from].Do(t.Context(), "CLUSTER", "GETKEYSINSLOT", slot, "1")
		keys, _ := v.([]any)
		if err != nil {
			t.Fatal(err)
		}
		if len(keys) == 0 {
			break
		}
		c.do(t, from, "MIGRATE", c.ips[to], "6379", fmt.Sprint(keys[0]), "0", "5000")
	}
	c.do(t, to, "CLUSTER", "SETSLOT", slot, "NODE", c.ids[to])
	c.do(t, from, "CLUSTER", "SETSLOT", slot, "NODE", c.ids[to])
}
