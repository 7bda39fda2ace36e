package netfault_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/conformance/live/netfault"
)

// web is an HTTP server that keeps what it got and answers with it.
type web struct {
	*httptest.Server
	mu  sync.Mutex
	got []sent
}

// sent is a request as it arrived.
type sent struct {
	line, host, body string
	header           http.Header
	at               time.Time
}

func site(t *testing.T) *web {
	t.Helper()
	s := &web{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.got = append(s.got, sent{r.Method + " " + r.RequestURI, r.Host, string(body), r.Header.Clone(), time.Now()})
		s.mu.Unlock()
		w.Header().Set("Date", "Mon, 02 Jan 2006 15:04:05 GMT")
		w.Header().Set("ETag", `"1"`)
		if r.Header.Get("If-None-Match") != "" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = fmt.Fprintf(w, "got %s", body)
	}))
	t.Cleanup(s.Close)
	return s
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
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, h.URL()+path, strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	res, err := browser(t).Do(r)
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

func TestHTTPFaults(t *testing.T) {
	for _, c := range []struct {
		fault   conformance.NetworkFault
		silent  bool // the client hears nothing
		applied int
	}{
		{conformance.LoseRequests, false, 0},
		{conformance.LoseReplies, false, 1},
		{conformance.BlackHole, true, 0},
		{conformance.Mute, true, 1},
	} {
		t.Run(c.fault.String(), func(t *testing.T) {
			s := site(t)
			h := httpProxy(t, s, nil)
			putWorks(t, h, "/before")
			h.Set(c.fault, 0)
			patience := 10 * time.Second
			if c.silent {
				patience = silence
			}
			_, _, err := put(t, h, "/harmed", patience)
			if c.silent && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want silence", err)
			}
			if !c.silent {
				isReset(t, err)
			}
			if got := s.count("PUT /harmed"); got != c.applied {
				t.Errorf("the server had it %d times, want %d", got, c.applied)
			}
			if h.Fired() != 1 {
				t.Errorf("Fired: got %d, want 1", h.Fired())
			}
			h.Set(conformance.Sound, 0)
			putWorks(t, h, "/after")
		})
	}
}

// Who waits behind a black hole is told when the network changes.
func TestHTTPSilenceEndsWithTheFault(t *testing.T) {
	s := site(t)
	h := httpProxy(t, s, nil)
	h.Set(conformance.BlackHole, 0)
	done := make(chan error, 1)
	go func() {
		_, _, err := put(t, h, "/harmed", 10*time.Second)
		done <- err
	}()
	eventually(t, "it is swallowed", func() bool { return h.Fired() == 1 })
	h.Set(conformance.Sound, 0)
	isReset(t, <-done)
}

// A reply that is under way is lost when the network breaks before it has come.
func TestHTTPBreaksUnderWay(t *testing.T) {
	s := site(t)
	h := httpProxy(t, s, nil)
	h.Set(conformance.Delays, 300*time.Millisecond)
	failed := false
	for i := 0; i < 20 && !failed; i++ {
		h.Set(conformance.Delays, 300*time.Millisecond)
		done := make(chan error, 1)
		go func() {
			_, _, err := put(t, h, fmt.Sprintf("/%d", i), 10*time.Second)
			done <- err
		}()
		eventually(t, "it is late", func() bool { return h.Fired() > 0 })
		h.Set(conformance.LoseReplies, 0)
		failed = <-done != nil
	}
	if !failed {
		t.Error("no reply was lost")
	}
}

func TestHTTPDelays(t *testing.T) {
	s := site(t)
	h := httpProxy(t, s, &netfault.HTTPOptions{Seed: 3})
	h.Set(conformance.Delays, 60*time.Millisecond)
	var shortest, longest time.Duration
	for i := range 12 {
		begun := time.Now()
		putWorks(t, h, "/k")
		took := time.Since(begun)
		if i == 0 || took < shortest {
			shortest = took
		}
		longest = max(longest, took)
	}
	if longest-shortest < 20*time.Millisecond {
		t.Errorf("from %v to %v: want them to differ", shortest, longest)
	}
}

func TestHTTPCopies(t *testing.T) {
	const d = 100 * time.Millisecond
	s := site(t)
	h := httpProxy(t, s, nil)
	h.Set(conformance.Copies, d)
	putWorks(t, h, "/k")
	h.Set(conformance.Sound, 0)
	eventually(t, "the copy", func() bool { return s.count("PUT /k") == 2 })
	got := s.requests()
	if got[1].body != "body" || got[1].host != got[0].host || got[1].at.Sub(got[0].at) < d-10*time.Millisecond {
		t.Errorf("got %+v", got)
	}
}

func TestHTTPResets(t *testing.T) {
	run := func() (lost, applied []string) {
		s := site(t)
		h := httpProxy(t, s, &netfault.HTTPOptions{Seed: 42})
		h.Set(conformance.Resets, 0)
		for i := range 200 {
			path := fmt.Sprintf("/%d", i)
			if _, _, err := put(t, h, path, 10*time.Second); err == nil {
				continue
			}
			if s.count("PUT "+path) == 0 {
				lost = append(lost, path)
			} else {
				applied = append(applied, path)
			}
		}
		if got, want := h.Fired(), len(lost)+len(applied); got != want {
			t.Errorf("Fired: got %d, want %d", got, want)
		}
		return lost, applied
	}
	lost, applied := run()
	if len(lost) < 3 || len(applied) < 3 || len(lost)+len(applied) > 50 {
		t.Errorf("%d before and %d after the server had it, of 200", len(lost), len(applied))
	}
	again, too := run()
	equal(t, "before, again", again, lost)
	equal(t, "after, again", too, applied)
}

func TestHTTPRules(t *testing.T) {
	s := site(t)
	h := httpProxy(t, s, &netfault.HTTPOptions{Verb: netfault.S3Verb})
	onPath := func(p string) func(*http.Request) bool {
		return func(r *http.Request) bool { return r.Method == http.MethodPut && r.URL.Path == p }
	}
	h.Rules(
		netfault.Rule{Match: onPath("/slow"), Skip: 1, Times: 1, Do: netfault.Answer, Status: 503, Body: netfault.S3Error("SlowDown", "wait")},
		netfault.Rule{Match: onPath("/late"), Do: netfault.AnswerLate, Status: 409, Body: netfault.S3Error("ConditionalRequestConflict", "again")},
		netfault.Rule{Match: onPath("/twice"), Do: netfault.Repeat},
		netfault.Rule{Match: onPath("/dropped"), Do: netfault.DropRequest},
		netfault.Rule{Match: onPath("/unheard"), Do: netfault.DropReply},
		netfault.Rule{Match: func(r *http.Request) bool { return r.URL.Query().Get("x-id") == "skewed" }, Behind: func(a *http.Response) { a.Header.Set("Date", "skewed") }},
	)
	h.Set(conformance.Sound, 0)

	putWorks(t, h, "/slow")
	if status, body, err := put(t, h, "/slow", 10*time.Second); status != 503 || !strings.Contains(body, "<Code>SlowDown</Code>") || err != nil {
		t.Errorf("the second: got %d, %q, %v", status, body, err)
	}
	putWorks(t, h, "/slow")
	if got := s.count("PUT /slow"); got != 2 {
		t.Errorf("the server had /slow %d times, want 2", got)
	}
	if status, _, _ := put(t, h, "/late", 10*time.Second); status != 409 || s.count("PUT /late") != 1 {
		t.Errorf("got %d, and the server had it %d times; want 409 and once", status, s.count("PUT /late"))
	}
	putWorks(t, h, "/twice")
	eventually(t, "the copy", func() bool { return s.count("PUT /twice") == 2 })
	_, _, err := put(t, h, "/dropped", 10*time.Second)
	isReset(t, err)
	_, _, err = put(t, h, "/unheard", 10*time.Second)
	isReset(t, err)
	if s.count("PUT /dropped") != 0 || s.count("PUT /unheard") != 1 {
		t.Errorf("dropped arrived %d times, unheard %d; want 0 and 1", s.count("PUT /dropped"), s.count("PUT /unheard"))
	}
	if h.Fired() != 5 {
		t.Errorf("Fired: got %d, want 5", h.Fired())
	}
	res, err := browser(t).Get(h.URL() + "/?list-type=2&x-id=skewed")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.Header.Get("Date") != "skewed" {
		t.Errorf("Date: got %q", res.Header.Get("Date"))
	}
	if got, want := h.Counts(), map[string]int{"PUT": 7, "LIST": 1}; !maps.Equal(got, want) {
		t.Errorf("counts: got %v, want %v", got, want)
	}
	if got := h.Counts(); len(got) != 0 {
		t.Errorf("counts begin anew: got %v", got)
	}
}

// Before and Behind stop a client between its steps.
func TestHTTPRuleStopsAClient(t *testing.T) {
	s := site(t)
	h := httpProxy(t, s, nil)
	reached, goOn := make(chan struct{}), make(chan struct{})
	h.Rules(netfault.Rule{Times: 1, Before: func(*http.Request) { close(reached); <-goOn }})
	done := make(chan error, 1)
	go func() {
		_, _, err := put(t, h, "/stopped", 10*time.Second)
		done <- err
	}()
	<-reached
	putWorks(t, h, "/other")
	if s.count("PUT /stopped") != 0 {
		t.Error("it went on")
	}
	close(goOn)
	if err := <-done; err != nil || s.count("PUT /stopped") != 1 {
		t.Errorf("got %v, and the server had it %d times", err, s.count("PUT /stopped"))
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
