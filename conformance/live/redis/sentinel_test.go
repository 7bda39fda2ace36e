package redis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/conformance/live"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/redislock"
)

// The Sentinel tells the promoted server's address among its peers, which is in reach on Linux.
//
// A client of Sentinel follows a failover: what is held ends in time, and the promoted replica
// grants it with a greater token, as it had received the first.
func TestSentinel(t *testing.T) {
	t.Parallel()
	primary, replica := pair(t)
	sentinel := live.Redis(t, live.RedisOptions{ReplicaOf: primary}) // a container among the peers
	become(t, sentinel, primary.Name())
	servers := map[string]*live.RedisServer{primary.Name(): primary, replica.Name(): replica}
	eventually(t, 30*time.Second, "the sentinel knows the replica", func() bool {
		v, err := sentinel.Do(t.Context(), "SENTINEL", "REPLICAS", "m")
		return err == nil && strings.Contains(fmt.Sprint(v), "6379")
	})
	refused(t, "redis+sentinel://"+sentinel.Addr()+"?master_name=another", driver.ErrUnavailable, "", "master_name")
	c := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: "m", SentinelAddrs: []string{sentinel.Addr()}, DialerRetries: 1,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			host, _, _ := strings.Cut(addr, ":")
			if s := servers[host]; s != nil {
				addr = s.Addr()
			}
			var d net.Dialer
			return d.DialContext(ctx, network, addr)
		},
	})
	defer func() { _ = c.Close() }()
	d, err := redislock.NewDriver(short(t), c, &redislock.Options{Namespace: namespace()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	if i := d.Info(); i.Tokens != driver.BestEffort || !i.ConfirmPushes {
		t.Errorf("behind Sentinel: got tokens %v, ConfirmPushes %v, want best-effort and true", i.Tokens, i.ConfirmPushes)
	}
	l, err := locker.New(d, &locker.Options{TTL: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	lease, err := l.Acquire(short(t), "k")
	if err != nil {
		t.Fatal(err)
	}
	replicated(t, primary)
	if err := primary.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	eventually(t, 10*time.Second, "the holder learns it", func() bool { return !lease.Valid() })
	next, err := l.Acquire(ctx, "k")
	for ; errors.Is(err, driver.ErrUnavailable) && ctx.Err() == nil; <-time.After(50 * time.Millisecond) {
		// The first request's definite failure is returned, not waited out.
		next, err = l.Acquire(ctx, "k")
	}
	if err != nil || next.Token() <= lease.Token() {
		t.Fatalf("behind the failover: got %v and %v, want a token above %v", next, err, lease.Token())
	}
}

// become turns a replica into a Sentinel on the same port: the server that was there stops to
// listen, and is forgotten.
func become(t *testing.T, s *live.RedisServer, primary string) {
	t.Helper()
	conf := "port 6379\nprotected-mode no\nsentinel resolve-hostnames yes\nsentinel announce-hostnames yes\n" +
		"sentinel monitor m " + primary + " 6379 1\nsentinel down-after-milliseconds m 1000\nsentinel failover-timeout m 5000\n"
	for _, cmd := range []string{
		"redis-cli REPLICAOF NO ONE && redis-cli CONFIG SET port 0",
		"printf '%s' '" + conf + "' > /tmp/sentinel.conf && redis-server /tmp/sentinel.conf --sentinel --daemonize yes",
	} {
		if out, err := s.Exec(t.Context(), "sh", "-c", cmd); err != nil {
			t.Fatalf("%s: %v: %s", cmd, err, out)
		}
	}
	eventually(t, 10*time.Second, "the sentinel answers", func() bool {
		_, err := s.Do(t.Context(), "SENTINEL", "MYID")
		return err == nil
	})
}
