package s3lock

import (
	"errors"
	"net/http"
	"testing"

	"github.com/fencelock/locker/driver"
)

// Only S3's own NoSuchKey says that an object is not there. A proxy's 404, or the one with
// which VersityGW answers an unknown access key, ends nothing and proves nothing.
func TestNotFoundByOthers(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"", "XAdminUserNotFound", "NoSuchRoute"} {
		s := newDouble(t)
		d := s.driver(nil)
		f := newFence(t, s)
		g := acquire(t, d, "k")
		s.wrong(func(s *double) {
			s.answer = func(*http.Request) (int, string, bool) { return 404, code, false }
		})
		want := driver.ErrUnavailable
		if code == "XAdminUserNotFound" {
			want = ErrDenied
		}
		if _, err := d.Renew(within(t), g); !errors.Is(err, want) || errors.Is(err, driver.ErrLost) {
			t.Errorf("%q: renew: got %v, want %v", code, err, want)
		}
		if err := d.Release(within(t), g); !errors.Is(err, want) || errors.Is(err, driver.ErrLost) {
			t.Errorf("%q: release: got %v, want %v", code, err, want)
		}
		if _, err := NewDriver(within(t), s.client(), testBucket, nil); !errors.Is(err, want) || errors.Is(err, ErrStore) {
			t.Errorf("%q: open: got %v, want %v", code, err, want)
		}
		if err := d.Ping(within(t)); !errors.Is(err, want) || errors.Is(err, ErrNoBucket) {
			t.Errorf("%q: ping: got %v, want %v", code, err, want)
		}
		if got, err := f.Read(within(t), 1); !errors.Is(err, want) {
			t.Errorf("%q: a fence's read: got %q, %v, want %v", code, got, err, want)
		}
		if err := d.store.delete(within(t), "x"); !errors.Is(err, want) {
			t.Errorf("%q: delete: got %v, want %v", code, err, want)
		}
		s.wrong(func(s *double) { s.answer = nil })
		release(t, d, g) // it was ours to the end
		if g := acquire(t, s.driver(nil), "k"); g.Token != 2 {
			t.Errorf("%q: token behind it: got %v, want 2", code, g.Token)
		}
	}
}

// A reply that is no listing does not say that there is nothing.
func TestNoListing(t *testing.T) {
	t.Parallel()
	for _, listing := range []string{" ", "<html><body>Sign in</body></html>", `<?xml version="1.0"?><Other/>`,
		`<?xml version="1.0"?><ListBucketResult><Name>locks</Name><KeyCount>1</KeyCount><IsTruncated>false</IsTruncated>`,
		`<?xml version="1.0"?><ListBucketResult><Name>locks</Name><IsTruncated>false</IsTruncated><Contents>`,
	} {
		s := newDouble(t)
		d := s.driver(nil)
		acquire(t, d, "k")
		s.wrong(func(s *double) { s.listing = listing })
		if st, err := d.Inspect(within(t), "k"); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%q: inspect: got held %v, %v; want ErrUnavailable", listing, st.Held, err)
		}
		for st, err := range d.List(within(t), "") {
			if !errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("%q: list: got %q, %v; want ErrUnavailable", listing, st.Key, err)
			}
		}
		if g, err := s.driver(nil).TryAcquire(within(t), request("k")); !errors.Is(err, driver.ErrUnavailable) || driver.IsAmbiguous(err) {
			t.Errorf("%q: acquire: got token %v, %v; want ErrUnavailable", listing, g.Token, err)
		}
		if _, err := d.TryAcquire(within(t), request("other")); !errors.Is(err, driver.ErrUnavailable) || driver.IsAmbiguous(err) {
			t.Errorf("%q: acquire another: got %v; want ErrUnavailable", listing, err)
		}
	}
}

// The same in the middle of a probe: what was not said about conditions is no verdict on
// them.
func TestNotFoundByOthersInAProbe(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"", "XAdminUserNotFound"} {
		s := newDouble(t)
		s.answer = refuses("If-None-Match", 404, code)
		if r, err := Probe(within(t), s.client(), testBucket, nil); err == nil || errors.Is(err, ErrStore) || r.Err() != nil {
			t.Errorf("%q: got %v and the report %v, want an error that judges nothing", code, err, r.Err())
		}
	}
}
