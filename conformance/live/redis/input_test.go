package redis_test

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/conformance/live"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/redislock"
)

// refused opens a URL that must not open, promptly.
func refused(t *testing.T, url string, want error, secret string, words ...string) {
	t.Helper()
	_ = refusal(t, url, want, secret, words...)
}

// refusal is refused, and returns the error.
func refusal(t *testing.T, url string, want error, secret string, words ...string) error {
	t.Helper()
	begun := time.Now()
	l, err := locker.Open(short(t), url, nil)
	if err == nil {
		_ = l.Close()
	}
	if !errors.Is(err, want) || errors.Is(err, driver.ErrAmbiguous) {
		t.Fatalf("Open of %s: got %v, want %v", locker.RedactURL(url), err, want)
	}
	if secret != "" && strings.Contains(err.Error(), secret) {
		t.Errorf("Open of %s: the error shows the secret: %v", locker.RedactURL(url), err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("Open of %s: got %v, want it to say %q", locker.RedactURL(url), err, w)
		}
	}
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("Open of %s failed after %v, want promptly", locker.RedactURL(url), took)
	}
	return err
}

func TestWrongPassword(t *testing.T) {
	t.Parallel()
	const right, wrong = "right-secret", "wrong-secret"
	s := live.Redis(t, live.RedisOptions{Password: right})
	err := refusal(t, "redis://:"+wrong+"@"+s.Addr(), driver.ErrUnavailable, wrong, "check the user and the password")
	var reply redis.Error
	if !errors.As(err, &reply) {
		t.Errorf("the error: got %v, want go-redis's own inside", err)
	}
	refused(t, "redis://"+s.Addr(), driver.ErrUnavailable, "", "NOAUTH")

	file := filepath.Join(t.TempDir(), "password")
	for content, want := range map[string]error{right + "\n": nil, wrong: driver.ErrUnavailable} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		url := "redis://" + s.Addr() + "?password_file=" + file
		if want != nil {
			refused(t, url, want, wrong)
			continue
		}
		l, err := locker.Open(short(t), url, nil)
		if err != nil {
			t.Fatalf("Open with password_file: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A server whose user is dropped while a driver is open answers definitely.
func TestPasswordChanged(t *testing.T) {
	t.Parallel()
	s := live.Redis(t, live.RedisOptions{Own: true})
	if _, err := s.Do(t.Context(), "ACL", "SETUSER", "app", "on", ">secret-of-app", "~*", "&*", "+@all"); err != nil {
		t.Fatal(err)
	}
	d, err := opened(short(t), &redis.Options{Addr: s.Addr(), Username: "app", Password: "secret-of-app"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	if _, err := s.Do(t.Context(), "ACL", "SETUSER", "app", "-evalsha"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.TryAcquire(short(t), request("k")); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "permission") {
		t.Errorf("without permission: got %v, want %v and the permission named", err, driver.ErrUnavailable)
	}
}

// Whatever permission is missing inside a script, the error names that, and is definite where
// the attempt has got nothing.
func TestMissingPermission(t *testing.T) {
	t.Parallel()
	s := live.Redis(t, live.RedisOptions{Own: true})
	if _, err := s.Do(t.Context(), "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all"); err != nil {
		t.Fatal(err)
	}
	d, err := opened(short(t), &redis.Options{Addr: s.Addr(), Username: "app", Password: "pw"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	held, err := d.TryAcquire(short(t), request("held"))
	if err != nil {
		t.Fatal(err)
	}
	try := func() error { _, err := d.TryAcquire(short(t), request("k")); return err }
	second := func() error { _, err := d.TryAcquire(short(t), request("held")); return err }
	enqueue := func() error { _, err := d.(driver.Queuer).Enqueue(short(t), request("held")); return err }
	renew := func() error { _, err := d.Renew(short(t), held); return err }
	release := func() error { return d.Release(short(t), held) }
	inspect := func() error { _, err := d.(driver.Inspector).Inspect(short(t), "held"); return err }
	for _, k := range []struct {
		what, command string
		ask           func() error
		want          error
	}{
		{"a try of a held key", "get", second, driver.ErrUnavailable},
		{"try", "exists", try, driver.ErrUnavailable},
		{"try", "incr", try, driver.ErrUnavailable},
		{"try", "set", try, driver.ErrUnavailable},
		{"enqueue", "time", enqueue, driver.ErrUnavailable},
		{"enqueue", "zrange", enqueue, driver.ErrUnavailable},
		{"enqueue", "zadd", enqueue, driver.ErrAmbiguous},
		{"the first renewal", "pexpiretime", renew, driver.ErrUnavailable},
		{"the first renewal", "set", renew, driver.ErrUnavailable},
		{"the first renewal, which does not need it", "pexpire", renew, nil},
		{"a later one", "pexpire", renew, driver.ErrUnavailable},
		{"inspect", "pttl", inspect, driver.ErrUnavailable},
		{"release", "get", release, driver.ErrUnavailable},
		{"release", "exists", release, driver.ErrUnavailable},
		{"release", "del", release, driver.ErrUnavailable},
	} {
		if _, err := s.Do(t.Context(), "ACL", "SETUSER", "app", "-"+k.command); err != nil {
			t.Fatal(err)
		}
		err := k.ask()
		if !errors.Is(err, k.want) || k.want != nil && (errors.Is(err, driver.ErrCorrupt) || !strings.Contains(err.Error(), "permission")) {
			t.Errorf("%s without %s: got %v, want %v, and the permission named", k.what, k.command, err, k.want)
		}
		if _, err := s.Do(t.Context(), "ACL", "SETUSER", "app", "+"+k.command); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(renew(), try()); err != nil {
		t.Errorf("behind all that: got %v, want the lease renewed and the other key free", err)
	}
}

// documented are the permissions that docs/backends/redis.md lists.
func documented(t *testing.T) (rules []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "backends", "redis.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "Least permissions")
	keys, list, _ := strings.Cut(list, "```")
	list, _, _ = strings.Cut(list, "```")
	for _, word := range strings.FieldsFunc(keys, func(r rune) bool { return r == '`' }) {
		if strings.HasPrefix(word, "~") || strings.HasPrefix(word, "&") {
			rules = append(rules, word)
		}
	}
	for _, word := range strings.Fields(list) {
		if strings.HasPrefix(word, "+") {
			rules = append(rules, word)
		}
	}
	if len(rules) < 30 {
		t.Fatalf("permissions in the documentation: got %v, want the keys, the channel and the commands", rules)
	}
	return rules
}

// The permissions that docs/backends/redis.md lists are enough, and without CONFIG and INFO
// nothing is claimed of durability.
func TestLeastPermissions(t *testing.T) {
	t.Parallel()
	s := live.Redis(t, live.RedisOptions{Persistence: live.RedisAlways})
	user := append([]string{"ACL", "SETUSER", "least", "on", ">pw", "-@all"}, documented(t)...)
	var d driver.Driver
	for _, forbidden := range [][]string{{"-info"}, {"-config|get"}, {"-info", "-config|get"}} {
		if _, err := s.Do(t.Context(), append(user, forbidden...)...); err != nil {
			t.Fatal(err)
		}
		var err error
		d, err = opened(short(t), &redis.Options{Addr: s.Addr(), Username: "least", Password: "pw"}, &redislock.Options{Namespace: "app"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		if i := d.Info(); i.Tokens != driver.BestEffort || !strings.Contains(i.FailoverLoses, "unknown") {
			t.Errorf("Info with %v: got %v, %q, want best-effort and unknown", forbidden, i.Tokens, i.FailoverLoses)
		}
	}
	a, err := locker.New(d, &locker.Options{TTL: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	b, err := locker.New(d, &locker.Options{TTL: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(a.Close(), b.Close()) }()
	lease, err := a.Acquire(short(t), "k")
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() { got <- b.Do(short(t), "k", func(context.Context, *locker.Lease) error { return nil }) }()
	eventually(t, time.Second, "a waiter", func() bool {
		st, err := a.Inspect(t.Context(), "k")
		return err == nil && st.Waiters == 1
	})
	begun := time.Now()
	if err := errors.Join(lease.Renew(short(t)), lease.Release(short(t)), <-got); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > 300*time.Millisecond { // a slow poll comes within half a second
		t.Errorf("the hand-off took %v, want it pushed", took)
	}
	lease, err = a.Acquire(short(t), "k")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for st, err := range a.List(short(t), "") {
		if err != nil || st.Key != "k" {
			t.Errorf("List: got %q and %v, want k", st.Key, err)
		}
		n++
	}
	if err := errors.Join(a.Ping(short(t)), a.Break(short(t), "k", lease.Token(), locker.Break{Now: true})); err != nil || n != 1 {
		t.Errorf("Ping, Break and %d listed keys: got %v, want nil and 1", n, err)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	s := live.Redis(t, live.RedisOptions{TLS: true})
	plain := shared(t)
	refused(t, "redis://"+s.Addr(), driver.ErrUnavailable, "", "rediss://")
	refused(t, "rediss://"+plain.Addr(), driver.ErrUnavailable, "", "redis://")
	refused(t, "redis+cluster://"+s.Addr(), driver.ErrUnavailable, "", "rediss://")
	refused(t, "rediss+cluster://"+plain.Addr(), driver.ErrUnavailable, "", "redis://")
	var authority x509.UnknownAuthorityError
	if err := refusal(t, "rediss://"+s.Addr(), driver.ErrUnavailable, ""); !errors.As(err, &authority) {
		t.Errorf("a certificate of an unknown authority: got %v, want %T inside", err, authority)
	}
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, s.CA, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := locker.Open(short(t), "rediss://"+s.Addr()+"?ca="+ca, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if _, err := l.TryAcquire(short(t), "k"); err != nil {
		t.Error(err)
	}
}

// A scheme for another kind of server.
func TestAnotherKindOfServer(t *testing.T) {
	t.Parallel()
	refused(t, "redis+cluster://"+shared(t).Addr(), driver.ErrUnavailable, "", "no node of a Cluster", "redis://")
	refused(t, "redis+sentinel://"+shared(t).Addr()+"?master_name=m", driver.ErrUnavailable, "", "no Sentinel", "redis://")
}

// Protected mode refuses whoever does not come from the server's own machine, and closes.
func TestProtectedMode(t *testing.T) {
	t.Parallel()
	s := live.Redis(t, live.RedisOptions{Own: true})
	if _, err := s.Do(t.Context(), "CONFIG", "SET", "protected-mode", "yes"); err != nil {
		t.Fatal(err)
	}
	refused(t, "redis://"+s.Addr(), driver.ErrUnavailable, "", "protected mode")
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	refused(t, "redis://"+shared(t).Addr()+"?wait_replicas=1", driver.ErrUnavailable, "", "0 replicas", "wait_replicas")
	refused(t, "redis://127.0.0.1:1", driver.ErrUnavailable, "")
	refused(t, "redis://no-such-host.invalid", driver.ErrUnavailable, "")
}

// Who never answers is unavailable: opening does nothing that could have been done.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	for _, timeouts := range []bool{true, false} {
		c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{silent.Addr().String()}, ContextTimeoutEnabled: timeouts})
		t.Cleanup(func() { _ = c.Close() })
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		_, err := redislock.NewDriver(ctx, c, nil)
		cancel()
		if !errors.Is(err, driver.ErrUnavailable) || driver.IsAmbiguous(err) {
			t.Errorf("with context timeouts %v: got %v, want %v", timeouts, err, driver.ErrUnavailable)
		}
	}
}

// A pool without a free connection is a definite, prompt failure.
func TestPoolExhausted(t *testing.T) {
	t.Parallel()
	s := shared(t)
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), PoolSize: 1, PoolTimeout: 200 * time.Millisecond, MaxActiveConns: 1})
	defer func() { _ = c.Close() }()
	d, err := redislock.NewDriver(short(t), c, &redislock.Options{Namespace: namespace()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	conn := c.Conn()
	defer func() { _ = conn.Close() }()
	if err := conn.Ping(short(t)).Err(); err != nil { // it has the only connection now
		t.Fatal(err)
	}
	for _, within := range []time.Duration{100 * time.Millisecond, 2 * time.Second} {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		begun := time.Now()
		_, err := d.TryAcquire(ctx, request("k"))
		cancel()
		if !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("TryAcquire within %v: got %v, want %v", within, err, driver.ErrUnavailable)
		}
		if took := time.Since(begun); took > time.Second {
			t.Errorf("it took %v, want the pool's 200 ms, or what is left of the call", took)
		}
	}
}

func TestReplicaRefused(t *testing.T) {
	t.Parallel()
	primary, replica := pair(t)
	refused(t, replica.URL(), driver.ErrUnavailable, "", "replica")
	// A primary that becomes a replica under an open driver.
	d, err := open(short(t), primary.Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	g, err := d.TryAcquire(short(t), request("k"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := primary.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.TryAcquire(short(t), request("other")); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "primary") {
		t.Errorf("TryAcquire on a replica: got %v, want %v and the primary named", err, driver.ErrUnavailable)
	}
	if _, err := d.Renew(short(t), g); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Renew on a replica: got %v, want %v", err, driver.ErrUnavailable)
	}
	if err := d.Release(short(t), g); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Release on a replica: got %v, want %v", err, driver.ErrUnavailable)
	}
}

func TestOtherClients(t *testing.T) {
	t.Parallel()
	s := shared(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": s.Addr()}})
	defer func() { _ = ring.Close() }()
	if _, err := redislock.NewDriver(short(t), ring, nil); !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), "Ring") {
		t.Errorf("NewDriver over a Ring: got %v, want %v", err, driver.ErrUnsupported)
	}
	if _, err := redislock.NewDriver(short(t), nil, nil); err == nil {
		t.Error("NewDriver over nil: got nil, want an error")
	}
}
