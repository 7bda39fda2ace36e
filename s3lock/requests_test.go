package s3lock

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/locker/driver"
)

func sent(t *testing.T, d *double, what string, want map[string]int) {
	t.Helper()
	if got := d.verbs(); !maps.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// What each operation costs. The design promises these numbers.
func TestRequestsPerOperation(t *testing.T) {
	t.Parallel()
	s, keep := newDouble(t), &Options{Keep: 1000} // collection is counted below
	a := s.driver(keep)
	s.verbs()
	b := s.driver(keep)
	sent(t, s, "open", map[string]int{"GET": 1})

	g := acquire(t, a, "k")
	sent(t, s, "acquire, never used", map[string]int{"LIST": 2, "PUT": 1})
	if _, err := b.TryAcquire(within(t), request("k")); !errors.Is(err, driver.ErrHeld) {
		t.Fatal(err)
	}
	sent(t, s, "refused, cold", map[string]int{"LIST": 1, "GET": 1})
	if _, err := b.TryAcquire(within(t), request("k")); !errors.Is(err, driver.ErrHeld) {
		t.Fatal(err)
	}
	if h := s.lastHeads(); len(h) != 1 || h[0].Get("If-None-Match") == "" {
		t.Errorf("a poll: got %d requests, want one that is conditional", len(h))
	}
	sent(t, s, "poll", map[string]int{"GET": 1})
	g, err := a.Renew(within(t), g)
	if err != nil {
		t.Fatal(err)
	}
	sent(t, s, "renew", map[string]int{"PUT": 1})
	release(t, a, g)
	sent(t, s, "release", map[string]int{"PUT": 1})
	g = acquire(t, a, "k")
	sent(t, s, "acquire, warm", map[string]int{"LIST": 1, "PUT": 1})
	release(t, a, g)
	g = acquire(t, a, "k")
	if _, err := b.TryAcquire(within(t), request("k")); !errors.Is(err, driver.ErrHeld) {
		t.Fatal(err)
	}
	release(t, a, g)
	s.verbs()
	g = acquire(t, b, "k") // as a waiter that polled does
	sent(t, s, "acquire with the hint", map[string]int{"GET": 1, "PUT": 1, "LIST": 1})
	release(t, b, g)
	g = acquire(t, a, "k") // a was the last but one
	sent(t, s, "acquire, warm, where somebody else came", map[string]int{"PUT": 3, "GET": 2, "LIST": 3})
	release(t, a, g)
	release(t, b, acquire(t, b, "k"))
	s.verbs()
	g = acquire(t, a, "k")
	sent(t, s, "acquire, where somebody came the last time", map[string]int{"LIST": 2, "GET": 1, "PUT": 1})
	release(t, a, g)
	release(t, a, acquire(t, a, "k"))
	s.verbs()
	g = acquire(t, a, "k")
	sent(t, s, "acquire, warm, where nobody came the last time", map[string]int{"LIST": 1, "PUT": 1})
	release(t, a, g)
	c := s.driver(keep)
	s.verbs()
	g = acquire(t, c, "k")
	sent(t, s, "acquire, cold", map[string]int{"LIST": 2, "GET": 1, "PUT": 1})

	// Its holder is heard of no more.
	then := s.now()
	s.wrong(func(s *double) { s.now = func() time.Time { return then.Add(ttl + margin + second) } })
	s.verbs()
	next := acquire(t, s.driver(keep), "k")
	sent(t, s, "acquire, lapsed, with its open", map[string]int{"LIST": 2, "GET": 2, "PUT": 2})
	if next.Token <= g.Token {
		t.Errorf("token: got %v, want more than %v", next.Token, g.Token)
	}
	if _, err := c.Renew(within(t), g); !errors.Is(err, driver.ErrLost) {
		t.Errorf("the old holder renews: got %v, want ErrLost", err)
	}
}

// Collection costs at most a request and a quarter for each grant, and leaves no more than
// it keeps.
func TestRequestsOfCollection(t *testing.T) {
	t.Parallel()
	const grants, keep = 64, 8
	s := newDouble(t)
	d := s.driver(nil)
	s.verbs()
	for range grants {
		release(t, d, acquire(t, d, "k"))
	}
	if err := d.Close(); err != nil { // waits for what is queued
		t.Fatal(err)
	}
	got := s.verbs()
	if extra := got["DELETE"] + got["POST"] + got["LIST"] - grants - 1; extra > grants*5/4 {
		t.Errorf("%d requests for %d grants: %v", extra, grants, got)
	}
	left := 0
	for _, n := range s.names() {
		if strings.Contains(n, "/k/") {
			left++
		}
	}
	if left > keep+1 || left < keep {
		t.Errorf("%d objects are left: %v", left, s.names())
	}
}

// The newest is found with one LIST, whatever has piled up; what has piled up is swept.
func TestManyEpochs(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	d := s.driver(nil)
	release(t, d, acquire(t, d, "k"))
	s.wrong(func(s *double) {
		old := s.objects["locker/k/"+recordName(1)].body
		for n := uint64(2); n <= 100_000; n++ {
			body := strings.Replace(string(old), `"epoch": 1,`, fmt.Sprintf(`"epoch": %d,`, n), 1)
			s.objects["locker/k/"+recordName(n)] = thing{body: []byte(body), etag: fmt.Sprintf(`"%d"`, n), modified: s.now()}
		}
	})
	other := s.driver(nil)
	s.verbs()
	if got, err := other.store.Newest(within(t), "k"); err != nil || got != 100_000 {
		t.Fatalf("Newest: got %d, %v", got, err)
	}
	sent(t, s, "find the newest, cold", map[string]int{"LIST": 1})
	g := acquire(t, other, "k")
	if g.Token != 100_001 {
		t.Errorf("token: got %v, want 100001", g.Token)
	}
	s.wrong(func(s *double) { // the double is slow
		for n := uint64(1); n <= 97_000; n++ {
			delete(s.objects, "locker/k/"+recordName(n))
		}
	})
	if err := other.store.Sweep(within(t), "k", 99_990); err != nil {
		t.Fatal(err)
	}
	if got := len(s.names()); got > 20 {
		t.Errorf("%d objects are left", got)
	}
}

// A store that does not know the request for many deletes one by one.
func TestSweepWithoutDeleteObjects(t *testing.T) {
	t.Parallel()
	for _, status := range []int{400, 501} {
		s := newDouble(t)
		d := s.driver(nil)
		release(t, d, acquire(t, d, "k"))
		s.wrong(func(s *double) {
			for n := range uint64(20) {
				s.objects["locker/k/"+recordName(n+1)] = s.objects["locker/k/"+recordName(1)]
			}
			s.answer = func(r *http.Request) (int, string, bool) {
				if r.Method == http.MethodPost {
					return status, "NotImplemented", false
				}
				return 0, "", false
			}
		})
		if err := d.store.Sweep(within(t), "k", 15); err != nil {
			t.Errorf("%d: %v", status, err)
		}
		if left := len(s.names()); left != 5+1 {
			t.Errorf("%d: %d objects are left, want 5 and the namespace's", status, left)
		}
	}
}

// Contenders that lose one create race read the winner once each, and list nothing.
func TestLostRaceCostsOneRead(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	a, b := s.driver(nil), s.driver(nil)
	release(t, a, acquire(t, a, "k"))
	_ = acquire(t, b, "k") // a does not know yet, and is warm
	s.verbs()
	if _, err := a.TryAcquire(within(t), request("k")); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("got %v, want ErrHeld", err)
	}
	sent(t, s, "a lost race", map[string]int{"PUT": 1, "GET": 1})
}

// Odd and long keys do not meet, and are listed by their own names.
func TestKeys(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	d := s.driver(&Options{Prefix: "a/b", Namespace: "ns"})
	keys := []string{"a", "a/b", "ab", "A", "..", "!2f", strings.Repeat("x", 512), strings.Repeat("x", 511) + "y", strings.Repeat("ü", 256)}
	for _, k := range keys {
		acquire(t, d, k)
	}
	for _, prefix := range []string{"", "a", "a/", "x", strings.Repeat("x", 511), "ü", "zz"} {
		want, got := 0, 0
		for _, k := range keys {
			if strings.HasPrefix(k, prefix) {
				want++
			}
		}
		for st, err := range d.List(within(t), prefix) {
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(st.Key, prefix) {
				t.Errorf("%q is listed with prefix %q", st.Key, prefix)
			}
			got++
		}
		if got != want {
			t.Errorf("prefix %.20q: got %d keys, want %d", prefix, got, want)
		}
	}
	for _, n := range s.names() {
		if !strings.HasPrefix(n, "a/b/ns/") {
			t.Errorf("%q is outside of the prefix", n)
		}
	}
}

// A store's own file of a moment hides no key from a listing, however long the key's name.
func TestKeysBesideAStoresOwnFile(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	d := s.driver(nil)
	long := strings.Repeat("long", 60)
	g := acquire(t, d, long)
	s.edit("locker/"+escape(long)+"/.9999999998.json.sgwtmp.1", []byte("{"))
	var keys []string
	for st, err := range d.List(within(t), "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, st.Key)
	}
	if len(keys) != 1 || keys[0] != long {
		t.Errorf("got %q, want the long key", keys)
	}
	release(t, d, g)
}
