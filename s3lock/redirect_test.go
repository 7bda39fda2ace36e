package s3lock

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fencelock/locker/driver"
)

// A client that follows redirects reads an object where it was to write one. The answer to
// that is taken for no write, or a number that is taken would be granted again.
func TestRedirectedWrites(t *testing.T) {
	t.Parallel()
	for _, status := range []int{301, 302, 303, 307, 308} {
		s := newDouble(t)
		a := s.driver(nil)
		moved := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, s.URL+r.URL.RequestURI(), status)
		}))
		t.Cleanup(moved.Close)
		c := s3.New(s.over(&http.Transport{}).Options(), func(o *s3.Options) { o.BaseEndpoint = &moved.URL })
		// Reads are followed, and so is a write that stays one.
		if _, err := NewDriver(within(t), c, testBucket, &Options{Namespace: "new"}); status < http.StatusTemporaryRedirect && (!errors.Is(err, ErrRegion) || !strings.Contains(err.Error(), "sends on to "+s.URL)) {
			t.Errorf("%d: open: got %v, want ErrRegion that names %s", status, err, s.URL)
		}
		release(t, a, acquire(t, a, "k"))
		held := acquire(t, s.driver(nil), "k")
		a.store.client = c
		if g, err := a.TryAcquire(within(t), request("k")); err == nil || driver.IsAmbiguous(err) {
			t.Fatalf("%d: got token %v, %v, while %v is held", status, g.Token, err, held.Token)
		}
		f, err := NewFence(c, testBucket, "report.csv")
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Write(within(t), 1, "x"); err == nil || driver.IsAmbiguous(err) {
			t.Errorf("%d: a fence's write: got %v", status, err)
		}
	}
}
