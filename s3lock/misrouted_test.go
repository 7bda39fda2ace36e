package s3lock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/locker/driver"
)

// routed sends what pick chooses to another server of the same names.
func routed(s, other *double, pick func(*http.Request) bool) answering {
	u, _ := url.Parse(other.URL)
	return answering{&http.Transport{}, func(r *http.Request, to http.RoundTripper) (*http.Response, error) {
		if pick(r) {
			r = r.Clone(r.Context())
			r.URL.Host = u.Host
		}
		return to.RoundTrip(r)
	}}
}

func isList(r *http.Request) bool { return r.URL.Query().Has("list-type") }
func isGet(r *http.Request) bool  { return r.Method == http.MethodGet && !isList(r) }

// A cache that has the listing and the record from before confirms no grant: the record is not its maker's.
func TestConfirmByACacheOfBoth(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	a, b := s.driver(nil), s.driver(&Options{Keep: 1})
	release(t, a, acquire(t, a, "k")) // a remembers 1
	release(t, b, acquire(t, b, "k")) // 2
	_, etag, err := b.store.listed(within(t), b.store.folder("k"), "")
	if err != nil {
		t.Fatal(err)
	}
	two := b.store.object("k", 2)
	s.mu.Lock()
	old := s.objects[two]
	s.mu.Unlock()
	list := fmt.Sprintf(`<?xml version="1.0"?><ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>%s</Key><ETag>%s</ETag></Contents></ListBucketResult>`, two, etag)
	release(t, b, acquire(t, b, "k")) // 3
	held := acquire(t, b, "k")        // 4
	if err := b.store.Sweep(within(t), "k", 2); err != nil {
		t.Fatal(err)
	}
	cached := func(r *http.Request, body string, h http.Header) *http.Response {
		return &http.Response{StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Request: r, ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body)), Header: h}
	}
	a.store.client = s.over(answering{&http.Transport{}, func(r *http.Request, to http.RoundTripper) (*http.Response, error) {
		switch {
		case isList(r):
			return cached(r, list, http.Header{"Content-Type": {"application/xml"}}), nil
		case isGet(r) && strings.HasSuffix(r.URL.Path, two):
			return cached(r, string(old.body), http.Header{"Etag": {old.etag}, "Last-Modified": {old.modified.UTC().Format(http.TimeFormat)}}), nil
		}
		return to.RoundTrip(r)
	}})
	g, err := a.TryAcquire(within(t), request("k"))
	if err == nil {
		_, rerr := b.Renew(within(t), held)
		t.Errorf("TryAcquire: got token %v, while %v is held (its renewal: %v)", g.Token, held.Token, rerr)
	}
}

// Nor does another's record, where a refused create was answered with another write's success.
func TestConfirmAnothersRecord(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	a, b := s.driver(nil), s.driver(nil)
	release(t, a, acquire(t, a, "k")) // a is warm at 1
	held := acquire(t, b, "k")        // 2
	a.store.client = s.over(answering{&http.Transport{}, func(r *http.Request, to http.RoundTripper) (*http.Response, error) {
		res, err := to.RoundTrip(r)
		if err == nil && r.Header.Get("If-None-Match") == "*" {
			_ = res.Body.Close()
			res.StatusCode, res.Body, res.ContentLength = 200, http.NoBody, 0
			res.Header = http.Header{"Etag": {`"d41d8cd98f00b204e9800998ecf8427e"`}, "Date": res.Header["Date"]}
		}
		return res, err
	}})
	g, err := a.TryAcquire(within(t), request("k"))
	if err == nil {
		_, rerr := b.Renew(within(t), held)
		t.Errorf("TryAcquire: got token %v, while %v is held (its renewal: %v)", g.Token, held.Token, rerr)
	}
}

// An end that no listing has shown is asked for: the number may come from memory.
func TestEndsNotListed(t *testing.T) {
	t.Parallel()
	s, o := newDouble(t), newDouble(t)
	a, other := s.driver(nil), o.driver(nil)
	release(t, other, acquire(t, other, "k"))
	held := acquire(t, a, "k")
	a.store.client = s.over(routed(s, o, isGet))
	g, err := a.TryAcquire(within(t), request("k")) // another Locker, another goroutine
	a.store.client = s.client()
	if err == nil {
		_, rerr := a.Renew(within(t), held)
		t.Errorf("TryAcquire: got token %v, while %v is held (its renewal: %v)", g.Token, held.Token, rerr)
	}
}

// Having seen another bucket's live record proves nothing of its end.
func TestEndOfALiveRecordOfAnother(t *testing.T) {
	t.Parallel()
	s, o := newDouble(t), newDouble(t)
	a, c, other := s.driver(nil), s.driver(nil), o.driver(nil)
	og := acquire(t, other, "k")
	held := acquire(t, a, "k")
	c.store.client = s.over(routed(s, o, isGet))
	if _, err := c.TryAcquire(within(t), request("k")); !errors.Is(err, driver.ErrHeld) {
		t.Fatal(err)
	}
	release(t, other, og)
	g, err := c.TryAcquire(within(t), request("k"))
	if err == nil {
		_, rerr := a.Renew(within(t), held)
		t.Errorf("TryAcquire: got token %v, while %v is held (its renewal: %v)", g.Token, held.Token, rerr)
	}
}

// Nor has who reads second less proof than who reads first.
func TestProofsAreNotShared(t *testing.T) {
	t.Parallel()
	s, o := newDouble(t), newDouble(t)
	a, c, other := s.driver(nil), s.driver(nil), o.driver(nil)
	release(t, other, acquire(t, other, "k"))
	acquire(t, a, "k")
	for range 2 {
		if n, err := c.store.Newest(within(t), "k"); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	c.store.client = s.over(routed(s, o, isGet))
	for i := range 2 {
		if v, err := c.store.Read(within(t), "k", 1, nil); err == nil && v.Ended {
			t.Errorf("read %d: got another bucket's end, while 1 is held", i+1)
		}
	}
}

// A fence's first Raise writes, whatever mark a read shows.
func TestRaiseOfAMarkThatIsAnothers(t *testing.T) {
	t.Parallel()
	s, o := newDouble(t), newDouble(t)
	old, f, other := newFence(t, s), newFence(t, s), newFence(t, o)
	if err := errors.Join(old.Write(within(t), 1, "one"), other.Write(within(t), 2, "else")); err != nil {
		t.Fatal(err)
	}
	f.client = s.over(routed(s, o, isGet))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond) // it tries until then
	defer cancel()
	err := f.Raise(ctx, 2)
	f.client = s.client()
	if err == nil { // the store never saw it
		t.Errorf("Raise: got nil, want an error; behind it a write with token 1 got %v", old.Write(within(t), 1, "stale"))
	}
}

// twiceAndUnseen delivers every write twice, and answers nothing behind the first.
func twiceAndUnseen() answering {
	wrote := false
	return answering{&http.Transport{}, func(r *http.Request, to http.RoundTripper) (*http.Response, error) {
		if r.Method == http.MethodPut {
			wrote = true
			return resending{to}.RoundTrip(r)
		}
		if wrote {
			rec := httptest.NewRecorder()
			fail(rec, 503, "SlowDown")
			res := rec.Result()
			res.Request = r
			return res, nil
		}
		return to.RoundTrip(r)
	}}
}

// A fence's write that was applied, and refused as its own copy, is unknown where the look behind it fails.
func TestFenceWrittenTwiceAndUnseen(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	if err := newFence(t, s).Write(within(t), 1, "one"); err != nil {
		t.Fatal(err)
	}
	f, err := NewFence(s.over(twiceAndUnseen()), testBucket, "report.csv")
	if err != nil {
		t.Fatal(err)
	}
	err = f.Write(within(t), 2, "two")
	s.mu.Lock()
	is := bytes.HasPrefix(s.objects["report.csv"].body, []byte("two"))
	s.mu.Unlock()
	if !is || !errors.Is(err, driver.ErrAmbiguous) {
		t.Errorf("written: %v; got %v, want it written, and %v", is, err, driver.ErrAmbiguous)
	}
}

// And so is a break.
func TestBrokenTwiceAndUnseen(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	a, d := s.driver(nil), s.driver(nil)
	g := acquire(t, a, "k")
	d.store.client = s.over(twiceAndUnseen())
	err := d.Break(within(t), "k", g.Token, driver.Break{Now: true})
	st, serr := a.Inspect(within(t), "k")
	if serr != nil {
		t.Fatal(serr)
	}
	if st.Held || !errors.Is(err, driver.ErrAmbiguous) {
		t.Errorf("held: %v; got %v, want it broken, and %v", st.Held, err, driver.ErrAmbiguous)
	}
}

// A break that was refused at once, and never sent before, was not done.
func TestBreakRefused(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	a, d := s.driver(nil), s.driver(nil)
	g := acquire(t, a, "k")
	s.wrong(func(s *double) {
		s.answer = func(r *http.Request) (int, string, bool) {
			if r.Method != http.MethodPut {
				return 0, "", false
			}
			return 503, "SlowDown", false
		}
	})
	if err := d.Break(within(t), "k", g.Token, driver.Break{Now: true}); !errors.Is(err, driver.ErrUnavailable) || driver.IsAmbiguous(err) {
		t.Errorf("Break: got %v, want %v", err, driver.ErrUnavailable)
	}
}

// Behind a 409 a refusal is unknown: a copy from before it may have been applied.
func TestRefusedBehindAConflict(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	d := s.driver(nil)
	n := 0
	s.wrong(func(s *double) {
		s.answer = func(r *http.Request) (int, string, bool) {
			if r.Method != http.MethodPut {
				return 0, "", false
			}
			if n++; n == 1 {
				return 409, "ConditionalRequestConflict", true // a copy was delivered before, and done since
			}
			return 503, "SlowDown", false
		}
	})
	d.store.client = s.over(answering{&http.Transport{}, func(r *http.Request, to http.RoundTripper) (*http.Response, error) {
		if r.Method == http.MethodHead { // and nothing tells
			return nil, errors.New("no answer")
		}
		return to.RoundTrip(r)
	}})
	_, err := d.TryAcquire(within(t), request("k"))
	if n < 2 || !errors.Is(err, driver.ErrAmbiguous) {
		t.Errorf("writes: %d; got %.90v, want more than one, and %v", n, err, driver.ErrAmbiguous)
	}
}
