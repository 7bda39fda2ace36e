package netfault_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/locker/conformance/live/netfault"
)

// web is an HTTP server that keeps what it got and answers with it.
type web struct {
	*httptest.Server
	mu  sync.Mutex
	got []sent
	// answering is called before an answer, if it is not nil.
	answering func(http.ResponseWriter)
}

// sent is a request as it arrived.
type sent struct {
	line, host, body string
	header           http.Header
	encoding         []string
	at               time.Time
}

func site(t *testing.T) *web {
	t.Helper()
	s := &web{}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *web) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.got = append(s.got, sent{r.Method + " " + r.RequestURI, r.Host, string(body), r.Header.Clone(), r.TransferEncoding, time.Now()})
	answering := s.answering
	s.mu.Unlock()
	if answering != nil {
		answering(w)
	}
	w.Header().Set("Date", "Mon, 02 Jan 2006 15:04:05 GMT")
	w.Header().Set("ETag", `"1"`)
	if r.Header.Get("If-None-Match") != "" {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = fmt.Fprintf(w, "got %s", body)
}

// answer makes the server call f before each answer.
func (s *web) answer(f func(http.ResponseWriter)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answering = f
}

func (s *web) requests() []sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

func (s *web) count(line string) int {
	n := 0
	for _, g := range s.requests() {
		if g.line == line {
			n++
		}
	}
	return n
}

func httpProxy(t *testing.T, s *web, o *netfault.HTTPOptions) *netfault.HTTP {
	t.Helper()
	h, err := netfault.ListenHTTP(netfault.At(s.Listener.Addr().String()), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// browser sends each request on a connection of its own: nothing but the proxy resets it.
func browser(t *testing.T) *http.Client {
	tr := &http.Transport{DisableKeepAlives: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func put(t *testing.T, h *netfault.HTTP, path string, patience time.Duration) (int, string, error) {
	t.Helper()
	return putBy(t, browser(t), h, path, patience)
}

func putBy(t *testing.T, by *http.Client, h *netfault.HTTP, path string, patience time.Duration) (int, string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, h.URL()+path, strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	res, err := by.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, string(b), err
}

func putWorks(t *testing.T, h *netfault.HTTP, path string) {
	t.Helper()
	if status, body, err := put(t, h, path, 10*time.Second); err != nil || status != 200 || body != "got body" {
		t.Errorf("%s: got %d, %q, %v", path, status, body, err)
	}
}
