package s3lock

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/fencelock/locker/driver"
)

// recording keeps a copy of every request that changes something.
type recording struct {
	http.RoundTripper
	mu   sync.Mutex
	kept []func() (*http.Response, error)
}

func (c *recording) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPut && r.Method != http.MethodDelete {
		return c.RoundTripper.RoundTrip(r)
	}
	body := []byte{}
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	again := func() (*http.Response, error) {
		late, err := http.NewRequest(r.Method, r.URL.String(), bytes.NewReader(body)) //nolint:noctx // long behind its call
		if err != nil {
			return nil, err
		}
		late.Header = r.Header.Clone()
		return c.RoundTripper.RoundTrip(late)
	}
	c.mu.Lock()
	c.kept = append(c.kept, again)
	c.mu.Unlock()
	return c.RoundTripper.RoundTrip(r)
}

// Copies of all that was ever written or deleted (creates, renewals, ends, seals, tombstones,
// collections) arrive again, in their order and against it, when their numbers were collected
// long ago. They change nothing for who holds the key, and let nobody in.
func TestLateCopies(t *testing.T) {
	t.Parallel()
	for _, reversed := range []bool{false, true} {
		s := newDouble(t)
		s.driver(nil) // the probe is not what this is about
		wire := &recording{RoundTripper: &http.Transport{}}
		open := func() *Driver {
			d, err := NewDriver(within(t), s.over(wire), testBucket, &Options{Keep: 2})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = d.Close() })
			return d
		}
		a, b := open(), open()
		for i := range 8 {
			g, err := a.Renew(within(t), acquire(t, a, "k"))
			if err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				release(t, a, g)
			} else if err := b.Break(within(t), "k", g.Token, driver.Break{Now: true}); err != nil {
				t.Fatal(err)
			}
			undo := request("k") // one whose create has no answer
			s.wrong(func(s *double) { s.answer = refuses("If-None-Match", 500, "InternalError") })
			lost, err := b.TryAcquire(within(t), undo)
			s.wrong(func(s *double) { s.answer = nil })
			if !driver.IsAmbiguous(err) {
				t.Fatalf("got %v, want an unknown outcome", err)
			}
			if err := b.Release(within(t), lost); err != nil && !errors.Is(err, driver.ErrLost) {
				t.Fatal(err)
			}
		}
		if err := a.store.Sweep(within(t), "k", 12); err != nil {
			t.Fatal(err)
		}
		held, err := b.Renew(within(t), acquire(t, b, "k"))
		if err != nil {
			t.Fatal(err)
		}
		if held, err = b.Renew(within(t), held); err != nil {
			t.Fatal(err)
		}
		wire.mu.Lock()
		late := slices.Clone(wire.kept)
		wire.mu.Unlock()
		if reversed {
			slices.Reverse(late)
		}
		for _, again := range late {
			res, err := again()
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if g, err := a.TryAcquire(within(t), request("k")); !errors.Is(err, driver.ErrHeld) {
				t.Fatalf("reversed %v: got token %v, %v, while %v is held", reversed, g.Token, err, held.Token)
			}
		}
		fresh := s.driver(nil)
		if g, err := fresh.TryAcquire(within(t), request("k")); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("reversed %v: fresh: got token %v, %v, while %v is held", reversed, g.Token, err, held.Token)
		}
		if held, err = b.Renew(within(t), held); err != nil {
			t.Fatalf("reversed %v: the holder renews: %v", reversed, err)
		}
		release(t, b, held)
		if g := acquire(t, fresh, "k"); g.Token != held.Token+1 {
			t.Errorf("reversed %v: token: got %v, want %v", reversed, g.Token, held.Token+1)
		}
	}
}
