package s3lock

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/locker/driver"
)

// Replies that something between took the ETag from show no version: neither can two of them
// be told apart, nor can anything be replaced by them. A live record is left alone, under
// either rule.
func TestRepliesWithoutETag(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	a := s.driver(nil)
	g := acquire(t, a, "k")
	others := []*Driver{s.driver(nil), s.driver(&Options{Expiry: Observed})}
	for end := time.Now().Add(ttl + ttl/2); time.Now().Before(end); <-time.After(ttl / 4) {
		s.wrong(func(s *double) { s.noETag = true })
		for i, b := range others {
			if got, err := b.TryAcquire(within(t), request("k")); !errors.Is(err, driver.ErrUnavailable) || driver.IsAmbiguous(err) {
				t.Fatalf("rule %v: got token %v, %v; want ErrUnavailable", Expiry(i), got.Token, err)
			}
		}
		s.wrong(func(s *double) { s.noETag = false })
		var err error
		if g, err = a.Renew(within(t), g); err != nil {
			t.Fatalf("the holder renews: %v", err)
		}
	}
	f := newFence(t, s)
	if err := f.Write(within(t), 3, "x"); err != nil {
		t.Fatal(err)
	}
	s.wrong(func(s *double) { s.noETag = true })
	s.verbs()
	if err := f.Write(within(t), 4, "y"); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "ETag") {
		t.Errorf("a fence's write: got %v, want ErrUnavailable that names the ETag", err)
	}
	sent(t, s, "a fence's write", map[string]int{"GET": 1})
}

// A write whose answer has no ETag may have been applied, and gives nothing to compare the
// next one with: nothing is ever written without a condition.
func TestWritesAnsweredWithoutETag(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	d, f := s.driver(nil), newFence(t, s)
	s.verbs()
	without := func(yes bool) { s.wrong(func(s *double) { s.noETagPut = yes }) }
	unknown := func(what string, err error) {
		t.Helper()
		if !driver.IsAmbiguous(err) {
			t.Errorf("%s: got %v, want an unknown outcome", what, err)
		}
	}
	r := request("k")
	without(true)
	_, err := d.TryAcquire(within(t), r)
	unknown("acquire", err)
	without(false)
	g, err := d.TryAcquire(within(t), r)
	if err != nil || g.Token != 1 {
		t.Fatalf("acquire, sent again: got token %v, %v; want 1", g.Token, err)
	}
	without(true)
	_, err = d.Renew(within(t), g)
	unknown("renew", err)
	unknown("a fence's write", f.Write(within(t), 1, "x"))
	without(false)
	if g, err = d.Renew(within(t), g); err != nil {
		t.Errorf("renew, sent again: %v", err)
	}
	without(true)
	unknown("release", d.Release(within(t), g))
	without(false)
	if err := d.Release(within(t), g); !errors.Is(err, driver.ErrLost) {
		t.Errorf("release, sent again: got %v, want ErrLost: it had ended", err)
	}
	for _, h := range s.lastHeads() {
		if h.Get("Content-Type") == "application/json" && h.Get("If-None-Match") == "" && h.Get("If-Match") == "" {
			t.Errorf("a write without a condition: %v", h)
		}
	}
}

// A 304 to a request that set no condition shows nothing, least of all an empty record that
// has lapsed.
func TestNotModifiedUnasked(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	a, b := s.driver(nil), s.driver(nil)
	g := acquire(t, a, "k")
	s.wrong(func(s *double) {
		s.answer = func(r *http.Request) (int, string, bool) {
			if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/k/") {
				return http.StatusNotModified, "", false
			}
			return 0, "", false
		}
	})
	for range 3 {
		<-time.After(20 * time.Millisecond)
		if got, err := b.TryAcquire(within(t), request("k")); !errors.Is(err, driver.ErrUnavailable) || driver.IsAmbiguous(err) {
			t.Errorf("got token %v, %v; want ErrUnavailable", got.Token, err)
		}
	}
	if _, err := a.Renew(within(t), g); err != nil {
		t.Errorf("the holder renews: %v", err)
	}
}

// A record that is cut off, where nothing says how long the reply is, is not a corrupt one:
// its holder has not lost it.
func TestRecordsThatAreCutOff(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	a, b := s.driver(nil), s.driver(nil)
	g := acquire(t, a, "k")
	s.wrong(func(s *double) {
		s.cut = 30
		s.answer = refuses("If-Match", 412, "PreconditionFailed")
	})
	if st, err := b.Inspect(within(t), "k"); !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrCorrupt) {
		t.Errorf("inspect: got held %v, %v; want ErrUnavailable", st.Held, err)
	}
	if err := a.Release(within(t), g); !driver.IsAmbiguous(err) {
		t.Errorf("release: got %v, want an unknown outcome", err)
	}
	s.wrong(func(s *double) { s.cut, s.answer = 0, nil })
	release(t, a, g)
}

// A 304 need not say when the object was written: what an earlier reply said goes on.
func TestAgeOfWhatIsUnchanged(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	d := s.driver(nil)
	acquire(t, d, "k")
	const old = 10 * time.Second
	s.wrong(func(s *double) {
		name := d.store.object("k", 1)
		o := s.objects[name]
		o.modified = o.modified.Add(-old)
		s.objects[name] = o
	})
	v, err := d.store.Read(within(t), "k", 1, nil)
	for i := range 3 {
		if err != nil || v.Unchanged != (i > 0) || !v.Known || v.Idle < old-second {
			t.Fatalf("read %d: got unchanged %v, known %v, idle %v, %v; want %v at least", i, v.Unchanged, v.Known, v.Idle, err, old-second)
		}
		v, err = d.store.Read(within(t), "k", 1, v.Version)
	}
}
