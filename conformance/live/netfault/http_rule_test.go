package netfault_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/conformance/live/netfault"
)

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

// reply is what a client got.
func reply(t *testing.T, method, url string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Method", method)
	res, err := browser(t).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(b)
}

// What a rule answers has its status, its headers and its body, which Behind may change, and
// the rule sees the request's own headers.
func TestHTTPRuleAnswers(t *testing.T) {
	for action, had := range map[netfault.Action]int{netfault.Answer: 0, netfault.AnswerLate: 1} {
		s := site(t)
		h := httpProxy(t, s, nil)
		h.Rules(netfault.Rule{
			Match: func(r *http.Request) bool { return r.Header.Get("X-Method") == http.MethodDelete },
			Do:    action, Status: 503, Body: "<no/>",
			Header: http.Header{"Retry-After": {"7"}, "Date": {"then"}},
			Behind: func(r *http.Response) { r.Header.Set("X-Behind", r.Status+r.Header.Get("Retry-After")); r.StatusCode++ },
		})
		if res, body := reply(t, http.MethodGet, h.URL()); res.StatusCode != http.StatusOK || body != "got " {
			t.Errorf("no match: got %d, %q", res.StatusCode, body)
		}
		res, body := reply(t, http.MethodDelete, h.URL())
		if res.StatusCode != http.StatusGatewayTimeout || body != "<no/>" || res.ContentLength != 5 {
			t.Errorf("got %d, %q, length %d", res.StatusCode, body, res.ContentLength)
		}
		for name, want := range map[string]string{"Retry-After": "7", "Date": "then", "X-Behind": "7", "Content-Type": "application/xml", "ETag": ""} {
			if got := res.Header.Get(name); got != want {
				t.Errorf("%s: got %q, want %q", name, got, want)
			}
		}
		if got := s.count("DELETE /"); got != had {
			t.Errorf("the server had it %d times, want %d", got, had)
		}
	}
}

// Behind may change what the server said.
func TestHTTPRuleChangesTheReply(t *testing.T) {
	s := site(t)
	h := httpProxy(t, s, nil)
	h.Rules(netfault.Rule{Behind: func(r *http.Response) { r.StatusCode = 202; r.Header.Set("ETag", "other") }})
	if res, body := reply(t, http.MethodGet, h.URL()); res.StatusCode != http.StatusAccepted || res.Header.Get("ETag") != "other" || body != "got " {
		t.Errorf("got %d, %v, %q", res.StatusCode, res.Header, body)
	}
	if h.Fired() != 0 {
		t.Errorf("Fired: got %d, want 0", h.Fired())
	}
}

// A rule without a Status answers 200 and now; one with a Status that is none is refused at once.
func TestHTTPRuleStatus(t *testing.T) {
	s := site(t)
	h := httpProxy(t, s, nil)
	h.Rules(netfault.Rule{Do: netfault.Answer})
	res, _ := reply(t, http.MethodGet, h.URL())
	if at, err := http.ParseTime(res.Header.Get("Date")); res.StatusCode != http.StatusOK || err != nil || time.Since(at) > time.Hour {
		t.Errorf("got %d, %v, %v", res.StatusCode, at, err)
	}
	for _, status := range []int{-1, 42, 100, 199, 1000} {
		func() {
			defer func() {
				if got, want := fmt.Sprint(recover()), fmt.Sprintf("netfault: rule 1: status %d,", status); !strings.HasPrefix(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
			}()
			h.Rules(netfault.Rule{}, netfault.Rule{Do: netfault.Answer, Status: status})
		}()
	}
	if res, _ := reply(t, http.MethodGet, h.URL()); res.StatusCode != http.StatusOK || len(s.requests()) != 0 {
		t.Error("the rules before are gone")
	}
}

// The reply to a HEAD has a length and no body, the server's as well as a rule's: the next
// reply on the connection is the next.
func TestHTTPHead(t *testing.T) {
	s := site(t)
	h := httpProxy(t, s, nil)
	tr := &http.Transport{MaxConnsPerHost: 1}
	t.Cleanup(tr.CloseIdleConnections)
	client := &http.Client{Transport: tr}
	h.Rules(netfault.Rule{Skip: 1, Times: 1, Do: netfault.Answer, Status: 404, Body: "not there"})
	for i, want := range []struct{ status, length int }{{200, 4}, {404, 9}, {200, 4}} {
		res, err := client.Head(h.URL())
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != want.status || res.ContentLength != int64(want.length) {
			t.Errorf("%d: got %d, length %d, want %+v", i, res.StatusCode, res.ContentLength, want)
		}
	}
}
