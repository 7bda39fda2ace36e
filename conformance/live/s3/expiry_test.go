package s3_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/conformance/live/netfault"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/s3lock"
)

// S3-17: the key of a dead holder goes to a contender that has just come: under the store
// rule within ttl and slack of the grant, and never before the margin of three seconds, of
// which one may be cut off; under the observed rule the same from the first look, without
// a margin.
func TestDeadHolder(t *testing.T) {
	t.Parallel()
	for _, rule := range []s3lock.Expiry{s3lock.StoreClock, s3lock.Observed} {
		t.Run(rule.String(), func(t *testing.T) {
			t.Parallel()
			sp := newSpace(t)
			a, b := sp.client(s3lock.Options{}), sp.client(s3lock.Options{Expiry: rule})
			sent := time.Now()
			a.acquire("k")
			if rule == s3lock.Observed { // it comes late, and cannot know
				eventually(t, 3*ttl, "the holder has been dead for long", func() bool { return time.Since(sent) > 2*ttl })
			}
			took := b.until("k", 10*ttl)
			least := ttl
			if rule == s3lock.StoreClock {
				least += 2 * time.Second
			}
			if total := time.Since(sent); total < least || rule == s3lock.Observed && took < ttl {
				t.Errorf("taken over after %v, %v after the grant: too early, want %v at least", took, total, least)
			}
			if most := ttl + b.Info().Slack + time.Second; took > most {
				t.Errorf("taken over after %v, want at most %v", took, most)
			}
		})
	}
}

// until polls until the key is granted and returns how long that took.
func (c client) until(key string, most time.Duration) time.Duration {
	c.t.Helper()
	begun := time.Now()
	eventually(c.t, most, "the key is granted", func() bool {
		_, err := c.try(request(key))
		if err != nil && !errors.Is(err, driver.ErrHeld) {
			c.t.Fatal(err)
		}
		return err == nil
	})
	return time.Since(begun)
}

// S3-12b: behind two front ends whose clocks differ by 5 s the probe chooses the observed
// rule, and nobody is early.
func TestFrontEndsThatDisagree(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	p, err := netfault.ListenHTTP(target(sp.s), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	var n atomic.Int64
	p.Rules(netfault.Rule{Behind: func(r *http.Response) {
		if at, err := http.ParseTime(r.Header.Get("Date")); err == nil && n.Add(1)%2 == 0 {
			r.Header.Set("Date", at.Add(5*time.Second).Format(http.TimeFormat))
		}
	}})
	d, err := accountOf(sp.s).open(t.Context(), p.URL(), &s3lock.Options{Namespace: sp.name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if got := d.Info().ExpiryClock; got == sp.storeClock() {
		t.Errorf("ExpiryClock: got %q, want the contender's own", got)
	}
	a := sp.client(s3lock.Options{}) // a later client believes the probe
	if got := a.Info().ExpiryClock; got == sp.storeClock() {
		t.Errorf("a later client's ExpiryClock: got %q", got)
	}
	a.acquire("k")
	b := client{d.(closing).Driver, t, nil}
	if took := b.until("k", 10*ttl); took < ttl-100*time.Millisecond {
		t.Errorf("taken over after %v: too early", took)
	}
}

// storeClock is what Info says where the store rule is used.
func (sp space) storeClock() string {
	other := space{sp.t, sp.s, namespace(), sp.raw}
	return other.client(s3lock.Options{}).Info().ExpiryClock
}

// S3-16: collection against contenders whose networks stall, conflict, are told to slow
// down, lose replies and repeat writes at random: no two believe at one time, no token is given twice, and
// tokens rise in the order of the grants.
func TestCollectionUnderContention(t *testing.T) {
	t.Parallel()
	const contenders = 8
	lasts := 8 * time.Second
	if full() {
		lasts = 5 * time.Minute
	}
	sp := newSpace(t)
	var mu sync.Mutex
	var tokens []driver.Token
	believers := map[*locker.Lease]bool{}
	// granted notes a lease. If it is over by then another may be granted before it is
	// written down, and its place among the others tells nothing.
	granted := func(l *locker.Lease) {
		mu.Lock()
		defer mu.Unlock()
		for other := range believers {
			if other.Valid() && l.Valid() {
				t.Errorf("tokens %v and %v are believed in at one time", other.Token(), l.Token())
			}
		}
		if l.Valid() {
			tokens = append(tokens, l.Token())
			believers[l] = true
		}
	}
	gone := func(l *locker.Lease) {
		mu.Lock()
		defer mu.Unlock()
		delete(believers, l)
	}
	end := time.Now().Add(lasts)
	harmed := 0
	var wg sync.WaitGroup
	for i := range contenders {
		c := sp.client(s3lock.Options{Keep: 1})
		c.net.Set(conformance.Delays, 60*time.Millisecond)
		c.net.Rules(
			netfault.Rule{Match: oneIn(25, writes), Do: netfault.Answer, Status: 409, Body: netfault.S3Error("ConditionalRequestConflict", "try again")},
			netfault.Rule{Match: oneIn(25, nil), Do: netfault.Answer, Status: 503, Body: netfault.S3Error("SlowDown", "reduce your request rate")},
			netfault.Rule{Match: oneIn(25, nil), Do: netfault.DropReply},
			netfault.Rule{Match: oneIn(25, writes), Do: netfault.Repeat, After: 300 * time.Millisecond},
			netfault.Rule{Match: oneIn(25, nil), Do: netfault.AnswerLate, Status: 500, Body: netfault.S3Error("InternalError", "try again")},
		)
		l, err := locker.New(c, &locker.Options{TTL: 2 * ttl, Owner: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for time.Now().Before(end) {
				ctx, cancel := context.WithTimeout(t.Context(), 2*ttl)
				lease, err := l.Acquire(ctx, "k")
				cancel()
				if errors.Is(err, driver.ErrTokenRegression) {
					t.Errorf("contender %d: %v", i, err)
				}
				if err != nil {
					continue
				}
				granted(lease)
				select { // it works
				case <-lease.Done():
				case <-time.After(20 * time.Millisecond):
				}
				gone(lease)
				_ = lease.Release(t.Context())
			}
			mu.Lock()
			harmed += c.net.Fired()
			mu.Unlock()
			c.net.Rules()
			c.net.Set(conformance.Sound, 0)
			_ = l.Close()
		})
	}
	wg.Wait()
	if len(tokens) < 5 || harmed < 50 {
		t.Errorf("%d grants, %d requests and replies harmed: too few to tell anything", len(tokens), harmed)
	}
	if !slices.IsSorted(tokens) || len(slices.Compact(slices.Clone(tokens))) != len(tokens) {
		t.Errorf("tokens: got %v, want them to rise", tokens)
	}
	t.Logf("%d grants, %d requests and replies harmed", len(tokens), harmed)
}

func writes(r *http.Request) bool { return r.Method == http.MethodPut }

// oneIn picks about one in n of the requests that match.
func oneIn(n int, match func(*http.Request) bool) func(*http.Request) bool {
	return func(r *http.Request) bool { return (match == nil || match(r)) && rand.IntN(n) == 0 }
}

// What the probe says of a real store.
func TestProbe(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	r, err := s3lock.Probe(within(t), sp.raw, sp.s.Bucket, nil)
	if err != nil || r.Err() != nil {
		t.Errorf("got %v, %v", err, r.Err())
	}
	t.Logf("\n%v", r)
}
