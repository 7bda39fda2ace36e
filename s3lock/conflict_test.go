package s3lock

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/epoch"
)

// A 409 says that another write was under way and this one was not applied: it is sent
// again, unless somebody has won by then.
func TestConflictOnceOnEachWrite(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	d := s.driver(nil)
	var armed atomic.Bool
	s.wrong(func(s *double) {
		s.answer = func(r *http.Request) (int, string, bool) {
			if r.Method == http.MethodPut && armed.CompareAndSwap(true, false) {
				return 409, "ConditionalRequestConflict", false
			}
			return 0, "", false
		}
	})
	fired := func(what string) {
		t.Helper()
		if armed.Load() {
			t.Errorf("%s: no 409 was answered", what)
		}
	}
	armed.Store(true)
	g := acquire(t, d, "k")
	fired("create")
	armed.Store(true)
	g, err := d.Renew(within(t), g)
	if err != nil || g.Token != 1 {
		t.Fatalf("renew: got %v, %v", g.Token, err)
	}
	fired("renew")
	armed.Store(true)
	release(t, d, g)
	fired("release")
	_ = acquire(t, d, "k")
	then := s.now()
	s.wrong(func(s *double) { s.now = func() time.Time { return then.Add(ttl + margin + second) } })
	other := s.driver(nil)
	armed.Store(true)
	if g := acquire(t, other, "k"); g.Token != 3 {
		t.Errorf("token: got %v, want 3: one epoch for each grant", g.Token)
	}
	fired("seal")
	// For ever: until the deadline, and then unknown, since a request that something between
	// delivered twice may have been applied before it was refused.
	s.wrong(func(s *double) {
		s.answer = func(r *http.Request) (int, string, bool) {
			if r.Method == http.MethodPut {
				return 409, "ConditionalRequestConflict", false
			}
			return 0, "", false
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	if _, err := other.TryAcquire(ctx, request("another")); !driver.IsAmbiguous(err) {
		t.Errorf("409 for ever: got %v, want ErrAmbiguous", err)
	}
}

// patient is a call's time in which it tries six times, and then has nearly half a second
// left, which is no pause: on a slow machine, too, its deadline is not in the middle of a try.
const patient = 1100 * time.Millisecond

// While S3 answers 409, a look tells who has won: another's object, whatever the marks
// around its ETag, ends the tries at once, and one's own, unchanged, does not.
func TestConflictThatSomebodyHasWon(t *testing.T) {
	t.Parallel()
	conflicts := func(r *http.Request) (int, string, bool) {
		if r.Method == http.MethodPut {
			return 409, "ConditionalRequestConflict", false
		}
		return 0, "", false
	}
	s := newDouble(t)
	a, b := s.driver(nil), s.driver(nil)
	release(t, a, acquire(t, a, "k"))
	g := acquire(t, b, "k") // a does not know, and is warm
	s.verbs()
	s.wrong(func(s *double) { s.answer = conflicts })
	if _, err := a.TryAcquire(within(t), request("k")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("create: got %v, want ErrHeld", err)
	}
	sent(t, s, "a create that was lost to a 409", map[string]int{"PUT": 1, "HEAD": 1, "GET": 1})

	name := "locker/k/" + recordName(2)
	for mark, want := range map[string]error{"weak": driver.ErrAmbiguous, "bare": driver.ErrAmbiguous, "another": epoch.ErrChanged} {
		s.wrong(func(s *double) {
			s.header = nil
			s.answer = func(r *http.Request) (int, string, bool) {
				if r.Method == http.MethodHead {
					return 200, "", false
				}
				return conflicts(r)
			}
		})
		have := s.etag(name)
		shown := map[string]string{"weak": "W/" + have, "bare": strings.Trim(have, `"`), "another": `"x"`}[mark]
		s.wrong(func(s *double) { s.header = http.Header{"Etag": {shown}} })
		ctx, cancel := context.WithTimeout(t.Context(), patient)
		_, err := b.store.rewrite(ctx, "k", 2, version{etag: have}, epoch.Record{Key: "k", Epoch: 2, Holder: g.Attempt})
		cancel()
		if !errors.Is(err, want) {
			t.Errorf("replace, where a look shows %s: got %v, want %v", shown, err, want)
		}
	}
}

// etag returns an object's.
func (d *double) etag(name string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.objects[name].etag
}

// A 409 whose look finds nothing, and a renewal sent again, tell of an object that is gone.
func TestConflictOnWhatIsGone(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	d := s.driver(nil)
	g := acquire(t, d, "k")
	first := true
	s.wrong(func(s *double) {
		delete(s.objects, "locker/k/"+recordName(1))
		s.answer = func(r *http.Request) (int, string, bool) {
			if r.Method == http.MethodPut && first {
				first = false
				return 409, "ConditionalRequestConflict", false
			}
			return 0, "", false
		}
	})
	if _, err := d.Renew(within(t), g); !errors.Is(err, driver.ErrLost) {
		t.Errorf("renew: got %v, want ErrLost", err)
	}
	if _, err := d.store.get(within(t), "locker/k/"+recordName(1), ""); !errors.Is(err, epoch.ErrNotExist) {
		t.Errorf("get: got %v, want ErrNotExist", err)
	}
}
