package redis_test

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/conformance/live"
	"github.com/fencelock/locker/conformance/live/netfault"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/redislock"
)

// envAddr is where children find the server.
const envAddr = "LOCKER_CONFORMANCE_REDIS"

func TestMain(m *testing.M) {
	conformance.ServeIfChild(func(ctx context.Context) (driver.Driver, error) {
		return open(ctx, os.Getenv(envAddr), &redislock.Options{Namespace: suite})
	})
	redis.SetLogger(&logging.VoidLogger{}) // it would tell of every fault that a test makes
	live.Main(m)
}

// suite is the namespace of the conformance suite.
const suite = "suite"

// full reports whether the larger sizes are asked for.
func full() bool {
	size := os.Getenv(conformance.SizeVariable)
	return size == "full" || size == "soak"
}

// fresh names namespaces, so that no two tests meet, nor two runs on a server that stays.
var (
	fresh   atomic.Int64
	thisRun = driver.NewAttempt().String()[:8]
)

func namespace() string { return "test" + thisRun + "-" + driver.Token(fresh.Add(1)).String() }

// client is a driver and the client that it alone uses.
type client struct {
	*redislock.Driver
	redis *redis.Client
	proxy *netfault.Proxy // nil: none
}

func (c client) Close() error {
	err := errors.Join(c.Driver.Close(), c.redis.Close())
	if c.proxy != nil {
		err = errors.Join(err, c.proxy.Close())
	}
	return err
}

// open makes a client with a pool of its own, as an ordinary program would.
func open(ctx context.Context, addr string, o *redislock.Options) (driver.Driver, error) {
	return opened(ctx, &redis.Options{Addr: addr}, o)
}

func opened(ctx context.Context, ro *redis.Options, o *redislock.Options) (driver.Driver, error) {
	c := redis.NewClient(ro)
	d, err := redislock.NewDriver(ctx, c, o)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return client{Driver: d, redis: c}, nil
}

// proxied is a client behind a proxy of its own.
func proxied(ctx context.Context, addr func() string, o *redislock.Options) (driver.Driver, conformance.Network, error) {
	p, err := netfault.Listen(func(context.Context) (string, error) { return addr(), nil }, &netfault.Options{Handshake: netfault.RESP})
	if err != nil {
		return nil, nil, err
	}
	d, err := open(ctx, p.Addr(), o)
	if err != nil {
		return nil, nil, errors.Join(err, p.Close())
	}
	c := d.(client)
	c.proxy = p
	return c, p, nil
}

// front is an address of the server that stays when it restarts.
func front(t testing.TB, s *live.RedisServer) string {
	t.Helper()
	p, err := netfault.Listen(func(context.Context) (string, error) { return s.Addr(), nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p.Addr()
}

// harness is the suite's for a server that no other test harms.
func harness(t *testing.T, s *live.RedisServer) conformance.Harness {
	t.Helper()
	addr := front(t, s)
	of := &redislock.Options{Namespace: suite}
	control := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = control.Close() })
	return conformance.Harness{
		Driver:  func(ctx context.Context) (driver.Driver, error) { return open(ctx, addr, of) },
		Control: func(ctx context.Context) error { return control.Ping(ctx).Err() },
		Child: func(ctx context.Context) (*exec.Cmd, error) {
			cmd, err := conformance.Self(ctx)
			if err == nil {
				cmd.Env = append(os.Environ(), envAddr+"="+addr)
			}
			return cmd, err
		},
		Fence: func(_ context.Context, name string) (conformance.Fence, error) {
			return redislock.NewFence(control, name)
		},
		Faults: conformance.Faults{
			Client: func(ctx context.Context) (driver.Driver, conformance.Network, error) { return proxied(ctx, s.Addr, of) },
			Stop:   s.Pause, Continue: s.Unpause, Restart: s.Restart, Kill: s.Crash,
			Remove: func(ctx context.Context, key string) error {
				name, err := lockOf(ctx, control, key)
				return errors.Join(err, control.Del(ctx, name).Err())
			},
			Unreachable: map[string]func(context.Context) (driver.Driver, error){
				"no such host":   func(ctx context.Context) (driver.Driver, error) { return open(ctx, "no-such-host.invalid:6379", of) },
				"nobody listens": func(ctx context.Context) (driver.Driver, error) { return open(ctx, "127.0.0.1:1", of) },
				"no TLS there": func(ctx context.Context) (driver.Driver, error) {
					return opened(ctx, &redis.Options{Addr: addr, TLSConfig: &tls.Config{InsecureSkipVerify: true}}, of) //nolint:gosec // nobody answers
				},
				"the pool is used up": func(ctx context.Context) (driver.Driver, error) {
					d, err := opened(ctx, &redis.Options{Addr: addr, PoolSize: 1, PoolTimeout: 100 * time.Millisecond}, of)
					if err == nil {
						err = d.(client).redis.Conn().Ping(ctx).Err() // and keeps the connection
					}
					return d, err
				},
			},
			Overwrite: func(ctx context.Context, key string) error {
				name, err := lockOf(ctx, control, key)
				if err != nil {
					return err
				}
				return control.Set(ctx, name, "nonsense", time.Minute).Err()
			},
		},
		Footprint: func(ctx context.Context) (map[string]int, error) {
			keys, err := control.DBSize(ctx).Result()
			if err != nil {
				return nil, err
			}
			clients, err := control.ClientList(ctx).Result()
			return map[string]int{"keys": int(keys), "connections": strings.Count(clients, "\n")}, err
		},
		Reopen: func(ctx context.Context, base driver.Token) (driver.Driver, error) {
			return open(ctx, addr, &redislock.Options{Namespace: suite, TokenBase: base})
		},
		Fresh: func(ctx context.Context, base driver.Token) (driver.Driver, error) {
			return open(ctx, addr, &redislock.Options{Namespace: namespace(), TokenBase: base})
		},
	}
}

// lockOf finds a key's lock as an operator would: the one whose name ends with the key.
func lockOf(ctx context.Context, c *redis.Client, key string) (string, error) {
	names := c.Scan(ctx, 0, "{"+suite+":??}:lock:*", 10_000).Iterator()
	for names.Next(ctx) {
		if n := names.Val(); strings.HasSuffix(n, ":"+key) {
			return n, nil
		}
	}
	return "", errors.Join(names.Err(), errors.New("there is no such lock"))
}

// eventually polls until ok, at most for the given time.
func eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !ok(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

// short bounds one call.
func short(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	t.Cleanup(cancel)
	return ctx
}
