package s3lock

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/locker/driver"
)

// answering lets something between answer what it chooses, or change what the store said.
type answering struct {
	http.RoundTripper
	answer func(*http.Request, http.RoundTripper) (*http.Response, error)
}

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	return a.answer(r, a.RoundTripper)
}

// page200 is how many web servers answer any request, with an ETag of the page.
func page200(r *http.Request) *http.Response {
	const page = "<html>Sign in</html>"
	return &http.Response{
		StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Request: r, ContentLength: int64(len(page)), Body: io.NopCloser(strings.NewReader(page)),
		Header: http.Header{"Etag": {`W/"14-page"`}, "Content-Type": {"text/html"}},
	}
}

// A page with an ETag is no answer to a write: S3 answers one with nothing but a head. A
// holder that took it for a renewal would go on beside the next one.
func TestPagesAreNoAnswerToWrites(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	d, f := s.driver(nil), newFence(t, s)
	store := d.store.client
	portal := s.over(answering{&http.Transport{}, func(r *http.Request, to http.RoundTripper) (*http.Response, error) {
		if r.Method == http.MethodPut {
			return page200(r), nil
		}
		return to.RoundTrip(r)
	}})
	unknown := func(what string, err error) {
		t.Helper()
		if !driver.IsAmbiguous(err) {
			t.Errorf("%s: got %v, want an unknown outcome", what, err)
		}
	}
	g := acquire(t, d, "k")
	d.store.client, f.client = portal, portal
	_, err := d.Renew(within(t), g)
	unknown("renew", err)
	unknown("release", d.Release(within(t), g))
	_, err = d.TryAcquire(within(t), request("other"))
	unknown("acquire", err)
	unknown("a fence's write", f.Write(within(t), 1, "x"))
	d.store.client = store
	release(t, d, g)
}

// A 408 without a code of S3's comes from something between, which may have sent the write on.
func TestErrorsOfSomethingBetween(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	d := s.driver(nil)
	store := d.store.client
	d.store.client = s.over(answering{&http.Transport{}, func(r *http.Request, to http.RoundTripper) (*http.Response, error) {
		res, err := to.RoundTrip(r)
		if err == nil && r.Method == http.MethodPut {
			_ = res.Body.Close()
			res.StatusCode, res.Header, res.ContentLength, res.Body = http.StatusRequestTimeout, http.Header{}, 0, http.NoBody
		}
		return res, err
	}})
	r := request("k")
	if _, err := d.TryAcquire(within(t), r); !driver.IsAmbiguous(err) {
		t.Errorf("acquire: got %v, want an unknown outcome", err)
	}
	d.store.client = store
	g, err := d.TryAcquire(within(t), r)
	if err != nil || g.Token != 1 {
		t.Fatalf("the same attempt again: got token %v, %v; want 1", g.Token, err)
	}
	release(t, d, g)
}

// Of all that HTTP calls a success only 200 says that the reply is the store's, and whole: a 202
// has not been done yet, a 203 was changed on its way, a 206 is a part.
func TestOtherSuccesses(t *testing.T) {
	t.Parallel()
	for _, status := range []int{201, 202, 203, 204, 205, 206, 207, 226} {
		s := newDouble(t)
		d, f := s.driver(nil), newFence(t, s)
		if err := f.Write(within(t), 9, "nine"); err != nil {
			t.Fatal(err)
		}
		g := acquire(t, d, "k")
		store := d.store.client
		d.store.client = s.over(answering{&http.Transport{}, func(r *http.Request, to http.RoundTripper) (*http.Response, error) {
			res, err := to.RoundTrip(r)
			if err == nil && res.StatusCode == http.StatusOK {
				res.StatusCode = status
				if status == http.StatusPartialContent && strings.HasSuffix(r.URL.Path, "report.csv") {
					res.ContentLength, res.Body = 4, io.NopCloser(strings.NewReader("nine"))
				}
			}
			return res, err
		}})
		f.client = d.store.client
		if got, err := f.Read(within(t), 1); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%d: a fence's read: got %q, %v; want ErrUnavailable", status, got, err)
		}
		if err := f.Write(within(t), 1, "one"); !errors.Is(err, driver.ErrUnavailable) || driver.IsAmbiguous(err) {
			t.Errorf("%d: a fence's write with a stale token: got %v, want ErrUnavailable", status, err)
		}
		if st, err := d.Inspect(within(t), "k"); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%d: inspect: got held %v, %v; want ErrUnavailable", status, st.Held, err)
		}
		if _, err := d.store.get(within(t), d.store.object("k", 1), ""); err == nil {
			t.Errorf("%d: a read: got no error", status)
		}
		if _, err := d.Renew(within(t), g); !driver.IsAmbiguous(err) {
			t.Errorf("%d: renew: got %v, want an unknown outcome", status, err)
		}
		d.store.client = store
		if err := d.store.delete(within(t), "x"); err != nil { // its success is 204
			t.Errorf("delete: %v", err)
		}
	}
}

// A page of a listing may be empty and not be the last one; one that says that there is more
// and not where is not complete.
func TestPagesOfAListing(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	d := s.driver(nil)
	acquire(t, d, "k")
	const empty = `<?xml version="1.0"?><ListBucketResult><IsTruncated>true</IsTruncated>`
	d.store.client = s.over(answering{&http.Transport{}, func(r *http.Request, to http.RoundTripper) (*http.Response, error) {
		res, err := to.RoundTrip(r)
		if q := r.URL.Query(); err == nil && q.Has("list-type") && !q.Has("continuation-token") {
			res.ContentLength, res.Body = -1, io.NopCloser(strings.NewReader(empty+"<NextContinuationToken>"+q.Get("prefix")+"</NextContinuationToken></ListBucketResult>"))
		}
		return res, err
	}})
	if st, err := d.Inspect(within(t), "k"); err != nil || !st.Held {
		t.Errorf("inspect behind an empty page: got held %v, %v", st.Held, err)
	}
	s.wrong(func(s *double) { s.listing = empty + "</ListBucketResult>" })
	d = s.driver(nil)
	if n, err := d.store.Newest(within(t), "k"); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("newest: got %d, %v; want ErrUnavailable", n, err)
	}
	for st, err := range d.List(within(t), "") {
		if !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("list: got %v, %v; want ErrUnavailable", st, err)
		}
		return
	}
	t.Error("list: got nothing, as if nothing were held")
}

// A number that was used and collected is free again, and a listing from the time when it was
// the newest shows it as that. The listing that confirms a grant is one from behind its write.
func TestListingsFromBefore(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	a, b := s.driver(nil), s.driver(&Options{Keep: 1})
	release(t, a, acquire(t, a, "k")) // a remembers 1, and that it has ended
	release(t, b, acquire(t, b, "k"))
	n, etag, err := b.store.listed(within(t), b.store.folder("k"), "")
	if n != 2 || err != nil {
		t.Fatalf("the newest: got %d, %v; want 2", n, err)
	}
	before := fmt.Sprintf(`<?xml version="1.0"?><ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>%s</Key><ETag>%s</ETag></Contents></ListBucketResult>`,
		b.store.object("k", n), etag)
	release(t, b, acquire(t, b, "k"))
	held := acquire(t, b, "k")
	if err := b.store.Sweep(within(t), "k", 2); err != nil {
		t.Fatal(err)
	}
	s.wrong(func(s *double) { s.listing = before })
	r := request("k")
	for range 2 {
		if g, err := a.TryAcquire(within(t), r); err == nil { // unknown, or nothing was sent
			t.Errorf("got token %v, while %v is held; want an error", g.Token, held.Token)
		}
	}
	s.wrong(func(s *double) { s.listing = "" })
	if g, err := a.TryAcquire(within(t), r); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("got token %v, %v; want ErrHeld", g.Token, err)
	}
	if _, err := b.Renew(within(t), held); err != nil {
		t.Errorf("the holder renews: %v", err)
	}
}

// A store that lists other ETags than it answers writes with could confirm nothing.
func TestListedETagsThatDiffer(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	s.listedETag = "-1"
	if _, err := NewDriver(within(t), s.client(), testBucket, nil); !errors.Is(err, ErrStore) {
		t.Errorf("got %v, want ErrStore", err)
	}
}

// Somebody may have ended a grant before it was confirmed: the listing shows that.
func TestConfirmWhatHasChanged(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	d := s.driver(nil)
	g := acquire(t, d, "k")
	v, ok := d.Held(g)
	if err := d.Break(within(t), "k", g.Token, driver.Break{}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if n, err := d.store.Confirm(within(t), "k", 1, v); n != 1 || err != nil {
		t.Errorf("got %d, %v; want 1", n, err)
	}
}

// A read that is answered with what another namespace keeps under the same name and number frees
// no key, neither for who has just come nor for who has seen the holder.
func TestRecordsOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"released", "broken"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newDouble(t)
			a, other := s.driver(nil), s.driver(&Options{Namespace: "other"})
			g := acquire(t, other, "k")
			if how == "released" {
				release(t, other, g)
			} else {
				if err := other.Break(within(t), "k", g.Token, driver.Break{}); err != nil {
					t.Fatal(err)
				}
				s.wrong(func(s *double) {
					o := s.objects[other.store.object("k", 1)]
					o.modified = o.modified.Add(-time.Hour)
					s.objects[other.store.object("k", 1)] = o
				})
			}
			mixedUp(t, s, a, other)
		})
	}
}

func mixedUp(t *testing.T, s *double, a, other *Driver) {
	t.Helper()
	g := acquire(t, a, "k")
	seen, fresh := s.driver(nil), s.driver(nil)
	for range 2 { // the second is answered 304
		if _, err := seen.TryAcquire(within(t), request("k")); !errors.Is(err, driver.ErrHeld) {
			t.Fatal(err)
		}
	}
	mixed := s.over(answering{&http.Transport{}, func(r *http.Request, to http.RoundTripper) (*http.Response, error) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, a.store.object("k", 1)) {
			r = r.Clone(r.Context())
			r.URL.Path = "/" + testBucket + "/" + other.store.object("k", 1)
		}
		return to.RoundTrip(r)
	}})
	for what, d := range map[string]*Driver{"fresh": fresh, "seen": seen} {
		right := d.store.client
		d.store.client = mixed
		if got, err := d.TryAcquire(within(t), request("k")); !errors.Is(err, driver.ErrUnavailable) || driver.IsAmbiguous(err) {
			t.Errorf("%s: got token %v, %v; want ErrUnavailable", what, got.Token, err)
		}
		if st, err := d.Inspect(within(t), "k"); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%s: inspect: got held %v, %v; want ErrUnavailable", what, st.Held, err)
		}
		d.store.client = right
		if _, err := d.TryAcquire(within(t), request("k")); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("%s: behind it: got %v, want ErrHeld", what, err)
		}
	}
	release(t, a, g)
	if g := acquire(t, seen, "k"); g.Token != 2 {
		t.Errorf("token: got %v, want 2", g.Token)
	}
}

// A holder that has raised its token does not read what was there before it did, as a cache
// answers.
func TestFenceReadsFromBefore(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	f, o := newFence(t, s), newFence(t, s)
	if err := o.Write(within(t), 1, "old"); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	before := s.objects["report.csv"]
	s.mu.Unlock()
	if err := errors.Join(o.Write(within(t), 1, "new"), f.Raise(within(t), 2)); err != nil {
		t.Fatal(err)
	}
	right := f.client
	f.client = s.over(answering{&http.Transport{}, func(r *http.Request, _ http.RoundTripper) (*http.Response, error) {
		return &http.Response{
			StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Request: r, ContentLength: int64(len(before.body)),
			Body: io.NopCloser(bytes.NewReader(before.body)), Header: http.Header{"Etag": {before.etag}},
		}, nil
	}})
	if got, err := f.Read(within(t), 2); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("got %q, %v; want ErrUnavailable", got, err)
	}
	f.client = right
	if got, err := f.Read(within(t), 2); got != "new" || err != nil {
		t.Errorf("got %q, %v; want the new content", got, err)
	}
}
