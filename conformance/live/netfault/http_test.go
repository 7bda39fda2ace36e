package netfault_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/conformance/live/netfault"
)

// What the client signed arrives as it was sent, and so does what the server said.
func TestHTTPKeepsRequestsIntact(t *testing.T) {
	s := site(t)
	h := httpProxy(t, s, nil)
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, h.URL()+"/bucket/a%2Fb%20c~d//e?x-id=PutObject&b=2&a=%2F&empty", strings.NewReader("x"))
	r.Host = "bucket.example.com:9000"
	r.Header = http.Header{
		"Authorization": {"AWS4-HMAC-SHA256 Credential=x"}, "X-Amz-Date": {"20260102T030405Z"}, "Accept-Encoding": {"identity"},
		"If-Match": {`"etag"`}, "X-Amz-Meta-Two": {"one", "two"}, "User-Agent": {""},
	}
	want := r.Header.Clone()
	delete(want, "User-Agent")
	want.Set("Content-Length", "1")
	res, err := browser(t).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	got := s.requests()[0]
	if got.line != "PUT /bucket/a%2Fb%20c~d//e?x-id=PutObject&b=2&a=%2F&empty" || got.host != r.Host || got.body != "x" {
		t.Errorf("got %+v", got)
	}
	delete(got.header, "Connection")
	if !maps.EqualFunc(got.header, want, slices.Equal) {
		t.Errorf("header: got %v, want %v", got.header, want)
	}
	if res.Header.Get("Date") != "Mon, 02 Jan 2006 15:04:05 GMT" || res.Header.Get("ETag") != `"1"` {
		t.Errorf("reply's header: got %v", res.Header)
	}
}

func TestHTTPNotModifiedHasNoBody(t *testing.T) {
	s := site(t)
	h := httpProxy(t, s, nil)
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL()+"/k", nil)
	r.Header.Set("If-None-Match", `"1"`)
	res, err := browser(t).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusNotModified || res.Header.Get("Date") == "" {
		t.Errorf("got %d, %v", res.StatusCode, res.Header)
	}
}

// A client that keeps its connection is led to where the target is by now, and a request that
// the server breaks off is the client's to send again.
func TestHTTPKeepsNoConnection(t *testing.T) {
	first, second := site(t), site(t)
	var now atomic.Pointer[web]
	now.Store(first)
	h, err := netfault.ListenHTTP(func(context.Context) (string, error) { return now.Load().Listener.Addr().String(), nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	for i, s := range []*web{first, first, second, second} {
		now.Store(s)
		res, err := (&http.Client{Transport: tr}).Get(h.URL() + "/" + strconv.Itoa(i))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}
	if a, b := len(first.requests()), len(second.requests()); a != 2 || b != 2 {
		t.Errorf("requests: got %d and %d, want 2 and 2", a, b)
	}
}

func TestHTTPCloseLeavesNothing(t *testing.T) {
	s := site(t)
	h := httpProxy(t, s, nil)
	h.Set(conformance.Copies, time.Hour)
	putWorks(t, h, "/copied-in-an-hour")
	h.Set(conformance.BlackHole, 0)
	done := make(chan error, 1)
	go func() {
		_, _, err := put(t, h, "/swallowed", 10*time.Second)
		done <- err
	}()
	eventually(t, "it is swallowed", func() bool { return h.Fired() == 1 })
	if err := h.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := h.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
	if err := <-done; err == nil {
		t.Error("the request that was swallowed got an answer")
	}
	eventually(t, "no goroutine is left", func() bool { return goroutines() == 0 })
}

// A GET that the server breaks off is the client's to send again: the proxy never does.
func TestHTTPSendsNothingTwice(t *testing.T) {
	s := site(t)
	h := httpProxy(t, s, nil)
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodDelete} {
		isReset(t, breakOff(t, s, h, method))
		if got := s.count(method + " /broken"); got != 1 {
			t.Errorf("%s: the server had it %d times, want once", method, got)
		}
	}
}

// breakOff sends a request that the server breaks off, behind one that it answers: a
// connection that the proxy had kept would be used again.
func breakOff(t *testing.T, s *web, h *netfault.HTTP, method string) error {
	t.Helper()
	s.answer(nil)
	if err := once(t, method, h.URL()+"/first"); err != nil {
		t.Fatal(err)
	}
	s.answer(func(http.ResponseWriter) { panic(http.ErrAbortHandler) })
	return once(t, method, h.URL()+"/broken")
}

// once sends a request on a connection that is new, so that the client does not try again, and
// could be kept.
func once(t *testing.T, method, url string) error {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	res, err := tr.RoundTrip(r)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	_, err = io.Copy(io.Discard, res.Body)
	return err
}

// A body arrives as long as it is, and so does what comes back.
func TestHTTPLargeBodies(t *testing.T) {
	const there, back = 64<<20 + 1, 1<<20 + 1
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Got", strconv.FormatInt(n, 10))
		_, _ = io.CopyN(w, zeros{}, back)
	}))
	t.Cleanup(server.Close)
	h, err := netfault.ListenHTTP(netfault.At(server.Listener.Addr().String()), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, h.URL(), io.LimitReader(zeros{}, there))
	res, err := browser(t).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if got := res.Header.Get("X-Got"); got != strconv.Itoa(there) {
		t.Errorf("the server had %s bytes, want %d", got, there)
	}
	if got, err := io.Copy(io.Discard, res.Body); got != back || err != nil {
		t.Errorf("%d bytes came back (%v), want %d", got, err, back)
	}
}

// zeros is an endless body.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
