package redis_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/conformance/live"
	"github.com/fencelock/locker/conformance/live/netfault"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/memlock"
	"github.com/fencelock/locker/redislock"
)

// granted tries, gives back, and returns the token.
func granted(t *testing.T, d driver.Driver, key string) driver.Token {
	t.Helper()
	g, err := d.TryAcquire(short(t), request(key))
	if err == nil {
		err = d.Release(short(t), g)
	}
	if err != nil {
		t.Fatal(err)
	}
	return g.Token
}

// Lua's numbers hold 53 bits, tokens have 63: none is rounded, by a try or by a hand-off.
func TestLargeTokens(t *testing.T) {
	t.Parallel()
	const edge = driver.Token(1) << 53
	for _, base := range []driver.Token{edge - 3, edge, driver.MaxToken - 8} {
		d, err := open(t.Context(), shared(t).Addr(), &redislock.Options{Namespace: namespace(), TokenBase: base})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		for want := base + 1; want < base+6; want += 2 {
			g, err := d.TryAcquire(short(t), request("k"))
			if err != nil || g.Token != want {
				t.Fatalf("token above %v: got %v and %v, want %v", base, g.Token, err, want)
			}
			waiter := request("k")
			if _, err := d.(driver.Queuer).Enqueue(short(t), waiter); !errors.Is(err, driver.ErrHeld) {
				t.Fatalf("Enqueue: got %v, want %v", err, driver.ErrHeld)
			}
			if err := d.Release(short(t), g); err != nil {
				t.Fatal(err)
			}
			next, err := d.(driver.Queuer).Poll(short(t), waiter)
			if err != nil || next.Token != want+1 {
				t.Fatalf("token of the hand-off: got %v and %v, want %v", next.Token, err, want+1)
			}
			if _, err := d.Renew(short(t), next); err != nil {
				t.Fatal(err)
			}
			if err := d.Release(short(t), next); err != nil {
				t.Fatal(err)
			}
		}
		r := request("k")
		if r.Floor = edge + 100; base > edge {
			r.Floor = base + 6
		}
		if g, err := d.TryAcquire(short(t), r); err != nil || g.Token != r.Floor+1 {
			t.Errorf("token with floor %v: got %v and %v, want one more", r.Floor, g.Token, err)
		}
	}
}

// Behind the last token nothing is granted, and what is held goes on.
func TestLastToken(t *testing.T) {
	t.Parallel()
	d, err := open(t.Context(), shared(t).Addr(), &redislock.Options{Namespace: namespace(), TokenBase: driver.MaxToken - 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	g, err := d.TryAcquire(short(t), request("k"))
	if err != nil || g.Token != driver.MaxToken {
		t.Fatalf("the last token: got %v and %v, want %v", g.Token, err, driver.MaxToken)
	}
	waiter := request("k")
	if _, err := d.(driver.Queuer).Enqueue(short(t), waiter); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Enqueue: got %v, want %v", err, driver.ErrHeld)
	}
	if _, err := d.Renew(short(t), g); err != nil {
		t.Errorf("Renew: %v", err)
	}
	if err := d.Release(short(t), g); err != nil {
		t.Errorf("Release with a waiter that cannot be granted: got %v, want nil", err)
	}
	if _, err := d.(driver.Queuer).Poll(short(t), waiter); !errors.Is(err, driver.ErrTokenRegression) {
		t.Errorf("Poll: got %v, want %v", err, driver.ErrTokenRegression)
	}
	if err := d.Release(short(t), driver.Grant{Request: waiter}); err != nil {
		t.Errorf("giving the place up: got %v, want nil", err)
	}
	if _, err := d.TryAcquire(short(t), request("k")); !errors.Is(err, driver.ErrTokenRegression) {
		t.Errorf("TryAcquire: got %v, want %v", err, driver.ErrTokenRegression)
	}
	if _, err := d.(driver.Queuer).Enqueue(short(t), request("k")); !errors.Is(err, driver.ErrTokenRegression) {
		t.Errorf("Enqueue: got %v, want %v", err, driver.ErrTokenRegression)
	}
}

// An attempt that only a token above the last one would do for takes none from the others.
func TestLastFloor(t *testing.T) {
	t.Parallel()
	d, err := open(t.Context(), shared(t).Addr(), &redislock.Options{Namespace: namespace()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	r := request("k")
	r.Floor = driver.MaxToken
	if _, err := d.TryAcquire(short(t), r); !errors.Is(err, driver.ErrTokenRegression) {
		t.Errorf("TryAcquire: got %v, want %v", err, driver.ErrTokenRegression)
	}
	if _, err := d.(driver.Queuer).Enqueue(short(t), r); !errors.Is(err, driver.ErrTokenRegression) {
		t.Errorf("Enqueue: got %v, want %v", err, driver.ErrTokenRegression)
	}
	if token := granted(t, d, "k"); token != 1 {
		t.Errorf("the next one's token: got %v, want 1: the counter as it was", token)
	}
}

// With tokens=clock-floor tokens go on rising when all counters were lost; without, whoever
// saw a greater one notices, and can go on above it.
func TestClockFloor(t *testing.T) {
	t.Parallel()
	s := live.Redis(t, live.RedisOptions{Own: true})
	for _, floor := range []bool{true, false} {
		o := &redislock.Options{Namespace: namespace(), ClockFloor: floor}
		d, err := open(t.Context(), s.Addr(), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		var last driver.Token
		for range 100 {
			next := granted(t, d, "k")
			if next <= last {
				t.Fatalf("token: got %v, want more than %v", next, last)
			}
			last = next
		}
		if i := d.Info(); i.Tokens != driver.BestEffort {
			t.Errorf("tokens: got %v, want best-effort", i.Tokens)
		}
		if _, err := s.Do(t.Context(), "FLUSHALL"); err != nil {
			t.Fatal(err)
		}
		if next := granted(t, d, "k"); (next > last) != floor {
			t.Errorf("token behind the loss, clock-floor %v: got %v, and before it %v", floor, next, last)
		}
		// FLUSHALL took the namespace record, too: whoever opens it next decides anew.
		other, err := open(t.Context(), s.Addr(), &redislock.Options{Namespace: o.Namespace, ClockFloor: floor})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = other.Close() })
		if _, err := open(t.Context(), s.Addr(), &redislock.Options{Namespace: o.Namespace, ClockFloor: !floor}); !errors.Is(err, driver.ErrLayout) {
			t.Errorf("opened with clock-floor %v: got %v, want %v", !floor, err, driver.ErrLayout)
		}
	}
}

// A hand-off takes half a round trip from the server's release: the push itself.
func TestHandOffTime(t *testing.T) {
	t.Parallel()
	const way = 400 * time.Millisecond
	s, ns := shared(t), namespace()
	a, _ := wired(t, s, ns, 30*time.Second)
	b, far := wired(t, s, ns, 30*time.Second)
	lease, err := a.Acquire(short(t), "k")
	if err != nil {
		t.Fatal(err)
	}
	far.Apply(netfault.Faults{Requests: netfault.Harm{Delay: way}, Replies: netfault.Harm{Delay: way}})
	type got struct {
		lease *locker.Lease
		at    time.Time
		err   error
	}
	done := make(chan got, 1)
	go func() {
		l, err := b.Acquire(t.Context(), "k", locker.WithWait(20*time.Second))
		done <- got{l, time.Now(), err}
	}()
	eventually(t, 15*time.Second, "a waiter", func() bool {
		st, err := a.Inspect(t.Context(), "k")
		return err == nil && st.Waiters == 1
	})
	if err := lease.Release(short(t)); err != nil {
		t.Fatal(err)
	}
	released := time.Now()
	g := <-done
	if g.err != nil {
		t.Fatal(g.err)
	}
	if took := g.at.Sub(released); took > 2*way {
		t.Errorf("the hand-off took %v with %v each way, want about one way", took, way)
	}
	if _, ok := g.lease.Grant().State.(*redislock.Driver); !ok {
		t.Errorf("state of a pushed grant: got %T, want the driver", g.lease.Grant().State)
	}
	far.Apply(netfault.Faults{})
}

// The fence in Redis: what is not a token, another backend's lease, and commands of one's own.
func TestFence(t *testing.T) {
	t.Parallel()
	s, ns := shared(t), namespace()
	d, err := open(t.Context(), s.Addr(), &redislock.Options{Namespace: ns})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	f, err := redislock.NewFence(d.(client).redis, ns)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{5, 10, 15} {
		reply, err := f.Do(short(t), driver.Token(i+1), "INCRBY", fmt.Sprintf("{%s}:sum", ns), 5)
		if err != nil || reply != want {
			t.Errorf("Do: got %v and %v, want %d", reply, err, want)
		}
	}
	if _, err := f.Do(short(t), 2, "INCRBY", fmt.Sprintf("{%s}:sum", ns), 5); !errors.Is(err, driver.ErrStale) {
		t.Errorf("Do with an old token: got %v, want %v", err, driver.ErrStale)
	}
	if v, err := s.Do(t.Context(), "GET", fmt.Sprintf("{%s}:sum", ns)); v != "15" {
		t.Errorf("the sum: got %v and %v, want 15: the stale command was run", v, err)
	}
	for _, token := range []driver.Token{0, driver.MaxToken + 1} {
		if err := f.Raise(short(t), token); !errors.Is(err, driver.ErrStale) {
			t.Errorf("Raise(%d): got %v, want %v", uint64(token), err, driver.ErrStale)
		}
	}
	if _, err := f.Read(short(t), 2); !errors.Is(err, driver.ErrStale) {
		t.Errorf("Read with an old token: got %v, want %v", err, driver.ErrStale)
	}
	if err := f.Write(short(t), 3, "text"); err != nil {
		t.Fatal(err)
	}
	var reply redis.Error
	if _, err := f.Do(short(t), 4, "INCRBY", "{"+ns+"}:value", 5); !errors.Is(err, driver.ErrUnavailable) || !errors.As(err, &reply) {
		t.Errorf("a command that Redis refuses: got %v, want %v and its error", err, driver.ErrUnavailable)
	}
	if _, err := f.Do(short(t), 4, "HGETALL", "{"+ns+"}:value"); !errors.Is(err, driver.ErrCorrupt) {
		t.Errorf("a command for another type: got %v, want %v", err, driver.ErrCorrupt)
	}
	if v, err := f.Do(short(t), 4, "GET", "{"+ns+"}:none"); v != nil || err != nil {
		t.Errorf("a command that finds nothing: got %v and %v, want neither", v, err)
	}
	for _, mark := range []string{"", "junk", "-1", "99999999999999999999"} {
		if _, err := s.Do(t.Context(), "SET", "{"+ns+"}:mark", mark); err != nil {
			t.Fatal(err)
		}
		if err := f.Write(short(t), driver.MaxToken, "v"); !errors.Is(err, driver.ErrCorrupt) {
			t.Errorf("with the mark %q: got %v, want %v", mark, err, driver.ErrCorrupt)
		}
		if v, err := s.Do(t.Context(), "GET", "{"+ns+"}:mark"); v != mark {
			t.Errorf("the mark behind it: got %q and %v, want %q as it was", v, err, mark)
		}
	}
	for _, name := range []string{"", "}name"} {
		if _, err := redislock.NewFence(d.(client).redis, name); err == nil {
			t.Errorf("NewFence(%q): got nil, want an error: its keys would be in two slots", name)
		}
	}
	l, err := locker.New(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	lease, err := l.Acquire(short(t), "k")
	if err != nil {
		t.Fatal(err)
	}
	if token, err := redislock.Token(lease); err != nil || token != lease.Token() {
		t.Errorf("Token: got %v and %v, want %v", token, err, lease.Token())
	}
	if err := lease.Release(short(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := redislock.Token(lease); !errors.Is(err, driver.ErrReleased) {
		t.Errorf("Token of a released lease: got %v, want %v", err, driver.ErrReleased)
	}
	foreign, err := locker.New(memlock.NewServer().Driver(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = foreign.Close() }()
	other, err := foreign.Acquire(short(t), "k")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := redislock.Token(other); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("Token of another backend's lease: got %v, want %v", err, driver.ErrUnsupported)
	}
}

// stumbling answers one script, the n-th from now on, with an error and does not send it.
type stumbling struct {
	n   atomic.Int64
	err error
}

func (*stumbling) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*stumbling) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *stumbling) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" && s.n.Add(-1) == 0 {
			cmd.SetErr(s.err)
			return s.err
		}
		return next(ctx, cmd)
	}
}

// A try that finds what its place in the queue was granted asks how long that lasts. If that
// fails, however definitely, the key is still the attempt's.
func TestTryFindsQueuedGrant(t *testing.T) {
	t.Parallel()
	c := redis.NewClient(&redis.Options{
		Addr: shared(t).Addr(), ContextTimeoutEnabled: true, ReadTimeout: time.Second, WriteTimeout: time.Second, // keeps its hooks
	})
	defer func() { _ = c.Close() }()
	hook := &stumbling{err: redis.ErrPoolTimeout}
	c.AddHook(hook)
	d, err := redislock.NewDriver(short(t), c, &redislock.Options{Namespace: namespace()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	g, err := d.TryAcquire(short(t), request("k"))
	if err != nil {
		t.Fatal(err)
	}
	r := request("k")
	if _, err := d.Enqueue(short(t), r); !errors.Is(err, driver.ErrHeld) {
		t.Fatal(err)
	}
	if err := d.Release(short(t), g); err != nil {
		t.Fatal(err)
	}
	hook.n.Store(2)
	if g, err := d.TryAcquire(short(t), r); !errors.Is(err, driver.ErrAmbiguous) || errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("TryAcquire whose second request fails: got token %v and %v, want %v", g.Token, err, driver.ErrAmbiguous)
	}
	if next, err := d.TryAcquire(short(t), r); err != nil || next.Token <= g.Token {
		t.Errorf("the same again: got token %v and %v, want what the queue granted, above %v", next.Token, err, g.Token)
	}
}

// What a URL says of tokens reaches the namespace.
func TestTokenParameters(t *testing.T) {
	t.Parallel()
	for query, k := range map[string]struct{ least, most driver.Token }{
		"&token_base=7":       {8, 8},
		"&tokens=clock-floor": {1e15, driver.MaxToken},
		"&tokens=counter":     {1, 1},
	} {
		l, err := locker.Open(short(t), shared(t).URL()+"?ns="+namespace()+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		if lease, err := l.TryAcquire(short(t), "k"); err != nil || lease.Token() < k.least || lease.Token() > k.most {
			t.Errorf("with %s: got %v and %v, want a token from %v to %v", query, lease, err, k.least, k.most)
		}
	}
}
