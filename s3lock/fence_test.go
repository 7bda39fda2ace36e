package s3lock

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/fence"
	"github.com/fencelock/locker/memlock"
)

func newFence(t *testing.T, s *double) *Fence {
	t.Helper()
	f, err := NewFence(s.client(), testBucket, "report.csv")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFence(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	f := newFence(t, s)
	if got, err := f.Read(within(t), 1); got != "" || err != nil {
		t.Errorf("no object: got %q, %v", got, err)
	}
	if err := f.Write(within(t), 7, "seven"); err != nil {
		t.Fatal(err)
	}
	if err := f.Write(within(t), 7, "seven again"); err != nil {
		t.Errorf("the same token: got %v", err)
	}
	if err := f.Raise(within(t), 9); err != nil {
		t.Fatal(err)
	}
	var stale *fence.StaleError
	if err := f.Write(within(t), 8, "eight"); !errors.Is(err, driver.ErrStale) || !errors.As(err, &stale) || stale.Mark != 9 || stale.Token != 8 {
		t.Errorf("a stale write: got %v", err)
	}
	if err := f.Raise(within(t), 8); !errors.Is(err, driver.ErrStale) {
		t.Errorf("a stale raise: got %v", err)
	}
	if _, err := f.Read(within(t), 8); !errors.Is(err, driver.ErrStale) {
		t.Errorf("a stale read: got %v", err)
	}
	if got, err := f.Read(within(t), 9); got != "seven again" || err != nil {
		t.Errorf("read: got %q, %v; want what was there before the raise", got, err)
	}
	if err := f.Write(within(t), 0, "none"); !errors.Is(err, driver.ErrStale) {
		t.Errorf("no token: got %v", err)
	}
}

// The check and the write are one step: whatever the order, the newest token wins, and a
// raise between somebody's read and write refuses the write.
func TestFenceIsAtomic(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	var wg sync.WaitGroup
	const writers = 12
	errs := make([]error, writers+1)
	for i := 1; i <= writers; i++ {
		wg.Go(func() { errs[i] = newFence(t, s).Write(within(t), driver.Token(i), fmt.Sprint(i)) })
	}
	wg.Wait()
	got, err := newFence(t, s).Read(within(t), writers)
	if err != nil || got != fmt.Sprint(writers) || errs[writers] != nil {
		t.Errorf("got %q, %v, and the newest writer %v", got, err, errs[writers])
	}
	for i, err := range errs {
		if err != nil && !errors.Is(err, driver.ErrStale) {
			t.Errorf("writer %d: %v", i, err)
		}
	}
}

// A raise between a holder's read and its write refuses the write.
func TestFenceRaisedBetweenReadAndWrite(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	if err := newFence(t, s).Write(within(t), 7, "seven"); err != nil {
		t.Fatal(err)
	}
	raised := make(chan error, 1)
	s.wrong(func(s *double) {
		s.answer = func(r *http.Request) (int, string, bool) {
			if r.Method == http.MethodPut {
				s.wrong(func(s *double) { s.answer = nil })
				raised <- newFence(t, s).Raise(within(t), 9)
			}
			return 0, "", false
		}
	})
	err := newFence(t, s).Write(within(t), 8, "eight")
	if rerr := <-raised; rerr != nil || !errors.Is(err, driver.ErrStale) {
		t.Errorf("got %v, and the raise %v; want ErrStale", err, rerr)
	}
	if got, err := newFence(t, s).Read(within(t), 9); got != "seven" || err != nil {
		t.Errorf("read: got %q, %v; want what was there", got, err)
	}
}

// Equal contents are not equal objects: a writer that looked at the first of two is refused
// by the second, although S3 hashes nothing but contents.
func TestFenceWroteTheSameAgain(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	f := newFence(t, s)
	var etags []string
	for _, token := range []driver.Token{7, 7, 8} {
		if err := f.Write(within(t), token, "same"); err != nil {
			t.Fatal(err)
		}
		g, err := f.look(within(t))
		if err != nil || g.mark != token || string(g.body) != "same" || slices.Contains(etags, g.etag) {
			t.Errorf("token %v: got mark %v, content %q, ETag %s, %v; the ETags before: %v", token, g.mark, g.body, g.etag, err, etags)
		}
		etags = append(etags, g.etag)
	}
}

// described is what an object is besides its content. In clear text, behind a write, it would
// be less secret than it was.
var described = map[string]string{
	"Content-Type": "text/csv", "Content-Encoding": "identity", "Content-Language": "en", "Content-Disposition": "attachment",
	"Cache-Control": "no-cache", "X-Amz-Meta-From": "her",
	"X-Amz-Server-Side-Encryption": "aws:kms", "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id": "key",
}

// An object that was there before is content as a whole, and has the mark 0; one whose mark
// is no token is corrupt. What describes it stays.
func TestFenceAroundWhatWasThere(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	f := newFence(t, s)
	s.edit("report.csv", []byte("a,b\n"))
	s.wrong(func(s *double) {
		for h, v := range described {
			s.objects["report.csv"].meta.Set(h, v)
		}
	})
	if got, err := f.Read(within(t), 1); got != "a,b\n" || err != nil {
		t.Errorf("read: got %q, %v", got, err)
	}
	if err := f.Raise(within(t), 3); err != nil {
		t.Fatal(err)
	}
	if got, err := f.Read(within(t), 3); got != "a,b\n" || err != nil {
		t.Errorf("read behind a raise: got %q, %v", got, err)
	}
	s.mu.Lock()
	meta := s.objects["report.csv"].meta
	s.mu.Unlock()
	for h, want := range described {
		if got := meta.Get(h); got != want {
			t.Errorf("%s behind a write: got %q, want %q", h, got, want)
		}
	}
	s.edit("report.csv", []byte("x\nfencing-token: 9999999999999999999 "+driver.NewAttempt().String()+"\n"))
	if _, err := f.Read(within(t), 3); !errors.Is(err, driver.ErrCorrupt) {
		t.Errorf("a mark that is no token: got %v, want ErrCorrupt", err)
	}
}

// Content is nobody's business, whatever it looks like.
func TestFenceAroundWhatLooksLikeAnError(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"<Error>disk full</Error>", "<?xml version=\"1.0\"?><Error><Code>NoSuchKey</Code></Error>"} {
		s := newDouble(t)
		f := newFence(t, s)
		if err := f.Write(within(t), 9, content); err != nil {
			t.Fatal(err)
		}
		if got, err := f.Read(within(t), 9); got != content || err != nil {
			t.Errorf("read: got %q, %v; want %q", got, err, content)
		}
		if got, err := f.Read(within(t), 1); !errors.Is(err, driver.ErrStale) {
			t.Errorf("a stale read of %q: got %q, %v; want ErrStale", content, got, err)
		}
		if err := f.Write(within(t), 10, "ok"); err != nil {
			t.Errorf("write over %q: %v", content, err)
		}
	}
}

// A mark at the end of a body may be cut off where nothing says how long the body is: such
// a body is not believed.
func TestFenceWhoseBodyMayBeCutOff(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	f := newFence(t, s)
	if err := f.Write(within(t), 9, "nine"); err != nil {
		t.Fatal(err)
	}
	s.wrong(func(s *double) { s.cut = 4 })
	if err := f.Write(within(t), 8, "eight"); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("a stale write: got %v, want ErrUnavailable", err)
	}
	s.wrong(func(s *double) { s.cut = 0 })
	if got, err := f.Read(within(t), 9); got != "nine" || err != nil {
		t.Errorf("read: got %q, %v; want what was there", got, err)
	}
}

// signIn answers writes itself, as a page to sign in does.
type signIn struct{ http.RoundTripper }

func (p signIn) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPut {
		return p.RoundTripper.RoundTrip(r)
	}
	return &http.Response{
		StatusCode: http.StatusOK, Status: "200 OK", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"text/html"}}, Body: io.NopCloser(strings.NewReader("<html>")), ContentLength: 6,
	}, nil
}

// A 200 that is not the store's is no write.
func TestFenceThatIsAnsweredByOthers(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	f, err := NewFence(s.over(signIn{&http.Transport{}}), testBucket, "report.csv")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Write(within(t), 1, "x"); !errors.Is(err, driver.ErrAmbiguous) {
		t.Errorf("got %v, want ErrAmbiguous", err)
	}
}

// A store without conditions is named, at once.
func TestFenceOnAStoreWithoutConditions(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	s.answer = refuses("If-None-Match", 501, "NotImplemented")
	f := newFence(t, s)
	if err := f.Write(within(t), 1, "x"); !errors.Is(err, driver.ErrUnsupported) || !errors.Is(err, ErrStore) {
		t.Errorf("got %v, want ErrStore", err)
	}
	sent(t, s, "a write", map[string]int{"GET": 1, "PUT": 1})
}

// A write whose outcome is unknown says so.
func TestFenceUnknown(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	f := newFence(t, s)
	s.wrong(func(s *double) { s.answer = refuses("If-None-Match", 500, "InternalError") })
	if err := f.Write(within(t), 1, "x"); !errors.Is(err, driver.ErrAmbiguous) {
		t.Errorf("got %v, want ErrAmbiguous", err)
	}
}

func TestTokenOfALease(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	l, err := New(within(t), s.client(), testBucket, nil, &locker.Options{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := l.Acquire(within(t), "k")
	if err != nil {
		t.Fatal(err)
	}
	if token, err := Token(lease); token != lease.Token() || err != nil {
		t.Errorf("got %v, %v; want %v", token, err, lease.Token())
	}
	if err := lease.Release(within(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := Token(lease); !errors.Is(err, locker.ErrReleased) {
		t.Errorf("after the release: got %v, want ErrReleased", err)
	}
	if err := l.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	d := memlock.NewServer().Driver()
	other, err := locker.New(d, &locker.Options{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(other.Close(), d.Close()) }()
	foreign, err := other.Acquire(within(t), "k")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Token(foreign); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("another backend's lease: got %v, want ErrUnsupported", err)
	}
}
