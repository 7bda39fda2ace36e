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
	network.(*netfault.Proxy).Apply(netfault.Faults{Replies: netfault.Harm{Delay: 30 * time.Millisecond, Jitter: 3 * time.Millisecond}})
	inTime := 0
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
		inTime += len(late)
		if g := <-late; g.Token != seen.Token || g.Token >= next.Token {
			t.Fatalf("token that came late: got %v, want %v, and less than %v, which was granted behind it", g.Token, seen.Token, next.Token)
		}
		if err := quick.Release(short(t), next); err != nil {
			t.Fatal(err)
		}
	}
	if inTime > rounds/2 {
		t.Errorf("replies that came before the next grant: got %d of %d, want few", inTime, rounds)
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

// What one script renews together is answered one by one: what is over, damaged or somebody
// else's hinders nothing beside it, and each gets its own ttl.
func TestBatchIsAnsweredOneByOne(t *testing.T) {
	t.Parallel()
	s, ns := shared(t), namespace()
	d, err := open(t.Context(), s.Addr(), &redislock.Options{Namespace: ns})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	do := func(command ...string) any {
		t.Helper()
		v, err := s.Do(t.Context(), command...)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	gs, names, want := make([]driver.Grant, 230), map[string]string{}, make([]error, 230)
	for i := range gs {
		r := request(fmt.Sprint("k", i))
		r.TTL = time.Duration(1+i%2) * time.Minute
		if gs[i], err = d.TryAcquire(short(t), r); err != nil {
			t.Fatal(err)
		}
	}
	all, _ := do("KEYS", "{"+ns+":??}:lock:k*").([]any)
	for _, name := range all {
		_, key, _ := strings.Cut(fmt.Sprint(name), ":lock:")
		names[key] = fmt.Sprint(name)
	}
	for i, g := range gs {
		name := names[g.Key]
		do("PEXPIRE", name, "20000")
		switch i % 10 {
		case 0:
			do("DEL", name)
			want[i] = driver.ErrLost
		case 1:
			do("DEL", name)
			do("HSET", name, "f", "v")
			want[i] = driver.ErrCorrupt
		case 2:
			if err := d.(driver.Breaker).Break(short(t), g.Key, g.Token, driver.Break{}); err != nil {
				t.Fatal(err)
			}
			want[i] = driver.ErrLost
		case 3:
			if err := d.Release(short(t), g); err != nil {
				t.Fatal(err)
			}
			if _, err := d.TryAcquire(short(t), request(g.Key)); err != nil {
				t.Fatal(err)
			}
			do("PEXPIRE", name, "20000")
			want[i] = driver.ErrLost
		case 5: // a late copy of the acquire, behind the grant's end
			value := fmt.Sprint(do("GET", name))
			do("SET", name, strings.Replace(value, " "+g.Token.String()+" ", " 999999 ", 1), "PX", "20000")
			want[i] = driver.ErrLost
		case 4:
			if _, err := d.Renew(short(t), g); err != nil {
				t.Fatal(err)
			}
			do("PEXPIRE", name, "20000")
		}
	}
	answers := make([]int, len(gs))
	if err := d.(driver.BatchRenewer).RenewBatch(short(t), gs, func(i int, g driver.Grant, err error) {
		answers[i]++
		if !errors.Is(err, want[i]) || want[i] == nil && (g.Token != gs[i].Token || g.Attempt != gs[i].Attempt || g.Left != gs[i].TTL) {
			t.Errorf("grant %d: got %+v and %v, want %v", i, g, err, want[i])
		}
	}); err != nil {
		t.Fatal(err)
	}
	for i, g := range gs {
		if answers[i] != 1 {
			t.Errorf("answers to grant %d: got %d, want 1", i, answers[i])
		}
		if i%10 < 2 {
			continue
		}
		left, _ := do("PTTL", names[g.Key]).(int64)
		if most, least := g.TTL.Milliseconds(), g.TTL.Milliseconds()-20_000; want[i] == nil && (left > most || left < least) {
			t.Errorf("left of grant %d, renewed for %d ms: got %d", i, most, left)
		} else if want[i] != nil && left > 20_000 {
			t.Errorf("left of another's lock in the place of grant %d: got %d, want at most 20000", i, left)
		}
	}
}

// An error inside of an answer is one grant's alone. The client stops reading an answer at some
// errors, which it knows by their text, such as one that names this user; what is left would
// answer the next runs, and a lost grant be renewed.
func TestErrorInsideOfABatch(t *testing.T) {
	t.Parallel()
	s := live.Redis(t, live.RedisOptions{Own: true})
	user := func(rules ...string) {
		t.Helper()
		if _, err := s.Do(t.Context(), append([]string{"ACL", "SETUSER", "unauthenticated"}, rules...)...); err != nil {
			t.Fatal(err)
		}
	}
	user("on", ">pw", "~*", "&*", "+@all")
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), Username: "unauthenticated", Password: "pw"})
	defer func() { _ = c.Close() }()
	d, err := redislock.NewDriver(short(t), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	take := func(key string, ttl time.Duration) driver.Grant {
		t.Helper()
		r := request(key)
		r.TTL = ttl
		g, err := d.TryAcquire(short(t), r)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	gs := []driver.Grant{take("a", time.Minute), take("b", time.Minute), take("c", 2*time.Minute), take("lost", 3*time.Minute)}
	if _, err := d.Renew(short(t), gs[0]); err != nil {
		t.Fatal(err)
	}
	if err := d.Release(short(t), gs[3]); err != nil {
		t.Fatal(err)
	}
	take("lost", time.Minute)
	user("-pexpire", "-lpush")
	want := []error{driver.ErrUnavailable, nil, nil, driver.ErrLost}
	if err := d.RenewBatch(short(t), gs, func(i int, g driver.Grant, err error) {
		if !errors.Is(err, want[i]) || driver.IsAmbiguous(err) {
			t.Errorf("grant %d: got token %v for %v and %v, want %v", i, g.Token, g.Left, err, want[i])
		}
	}); err != nil {
		t.Error(err)
	}
	f, err := redislock.NewFence(c, "guarded")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Do(short(t), 5, "LPUSH", "{guarded}:list", "1"); !errors.Is(err, driver.ErrUnavailable) || driver.IsAmbiguous(err) {
		t.Errorf("a fence's command that the user may not run: got %v, want %v", err, driver.ErrUnavailable)
	}
	if reply, err := f.Do(short(t), 5, "SADD", "{guarded}:set", "1"); reply != int64(1) || err != nil {
		t.Errorf("one that he may: got %v and %v, want 1", reply, err)
	}
}
