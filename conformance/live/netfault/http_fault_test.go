package netfault_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/conformance/live/netfault"
)

func TestHTTPLosses(t *testing.T) {
	for fault, applied := range map[conformance.NetworkFault]int{conformance.LoseRequests: 0, conformance.LoseReplies: 1} {
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, chunked %v", fault, chunked), func(t *testing.T) {
				s := site(t)
				h := httpProxy(t, s, nil)
				putWorks(t, h, "/before")
				h.Set(fault, 0)
				var body io.Reader = strings.NewReader("body")
				if chunked {
					body = io.MultiReader(body) // whose length the client cannot know
				}
				r, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, h.URL()+"/harmed", body)
				res, err := browser(t).Do(r)
				if err == nil {
					_ = res.Body.Close()
				}
				isReset(t, err)
				if got := s.count("PUT /harmed"); got != applied {
					t.Errorf("the server had it %d times, want %d", got, applied)
				}
				if applied == 1 {
					got := s.requests()[1]
					if got.body != "body" || slices.Equal(got.encoding, []string{"chunked"}) != chunked {
						t.Errorf("the server had %q, encoded %q", got.body, got.encoding)
					}
				}
				if h.Fired() != 1 {
					t.Errorf("Fired: got %d, want 1", h.Fired())
				}
				h.Set(conformance.Sound, 0)
				putWorks(t, h, "/after")
			})
		}
	}
}

// Who waits in silence hears nothing for as long as the fault lasts, and then a reset.
func TestHTTPSilences(t *testing.T) {
	set := func(f conformance.NetworkFault) func(*netfault.HTTP) {
		return func(h *netfault.HTTP) { h.Set(f, 0) }
	}
	rules := func(rs ...netfault.Rule) func(*netfault.HTTP) {
		return func(h *netfault.HTTP) { h.Rules(rs...) }
	}
	for name, c := range map[string]struct {
		begin, end func(*netfault.HTTP)
		applied    int
	}{
		"black hole":             {set(conformance.BlackHole), set(conformance.Sound), 0},
		"mute":                   {set(conformance.Mute), set(conformance.Sound), 1},
		"swallow":                {rules(netfault.Rule{Do: netfault.Swallow}), rules(), 0},
		"silence":                {rules(netfault.Rule{Do: netfault.Silence}), rules(), 1},
		"silence, ended by Set":  {rules(netfault.Rule{Do: netfault.Silence}), set(conformance.Delays), 1},
		"mute, ended by Rules":   {set(conformance.Mute), rules(), 1},
		"black hole after black": {set(conformance.BlackHole), set(conformance.BlackHole), 0},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				h, s, client := virtualSite(t, nil)
				c.begin(h)
				done := make(chan error, 1)
				go func() {
					_, _, err := putBy(t, client, h, "/harmed", 48*time.Hour)
					done <- err
				}()
				after(24 * time.Hour)
				if len(done) > 0 {
					t.Errorf("got %v, want silence", <-done)
				}
				if got := s.count("PUT /harmed"); got != c.applied || h.Fired() != 1 {
					t.Errorf("the server had it %d times, fired %d; want %d, 1", got, h.Fired(), c.applied)
				}
				c.end(h)
				after(0)
				if len(done) == 0 {
					t.Fatal("it waits behind the fault's end")
				}
				if err := <-done; err == nil || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v, want a reset", err)
				}
				if h.Fired() != 0 {
					t.Errorf("Fired behind the change: got %d, want 0", h.Fired())
				}
			})
		})
	}
}

// A client behind a hole is a real one's, too.
func TestHTTPSilenceEndsWithAReset(t *testing.T) {
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

// What a delay holds meets the change: a request that is on its way never arrives, a reply is
// lost.
func TestHTTPBreaksUnderWay(t *testing.T) {
	const d = time.Minute
	for fault, losesRequests := range map[conformance.NetworkFault]bool{
		conformance.LoseRequests: true, conformance.LoseReplies: false, conformance.BlackHole: true, conformance.Mute: false,
	} {
		for held, fired := range map[string]int{"request": 1, "reply": 2} {
			losesReplies := fault != conformance.LoseRequests
			if held == "request" && !losesRequests || held == "reply" && !losesReplies {
				continue
			}
			t.Run(fmt.Sprintf("%v, held %s", fault, held), func(t *testing.T) {
				virtual(t, func(t *testing.T) {
					h, s, client := virtualSite(t, &netfault.HTTPOptions{Seed: 2})
					h.Set(conformance.Delays, d)
					done := make(chan error, 1)
					go func() {
						_, _, err := putBy(t, client, h, "/k", time.Hour)
						done <- err
					}()
					for range int(2 * d / time.Second) {
						if h.Fired() == fired {
							break
						}
						after(time.Second)
					}
					if h.Fired() != fired {
						t.Fatalf("Fired: got %d, want %d", h.Fired(), fired)
					}
					h.Set(fault, 0)
					after(2 * d)
					if h.Fired() != 1 {
						t.Errorf("Fired behind the change: got %d, want 1", h.Fired())
					}
					if got, want := s.count("PUT /k"), fired-1; got != want {
						t.Errorf("the server had it %d times, want %d", got, want)
					}
					h.Set(conformance.Sound, 0)
					if err := <-done; err == nil || errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("got %v, want a reset", err)
					}
				})
			})
		}
	}
}

// Set and Rules start Fired anew.
func TestHTTPFiredBeginsAnew(t *testing.T) {
	s := site(t)
	h := httpProxy(t, s, nil)
	for name, change := range map[string]func(){
		"Set":   func() { h.Set(conformance.LoseRequests, 0) },
		"Rules": func() { h.Rules() },
	} {
		h.Set(conformance.LoseRequests, 0)
		_, _, err := put(t, h, "/harmed", 10*time.Second)
		isReset(t, err)
		if h.Fired() != 1 {
			t.Errorf("before %s: got %d, want 1", name, h.Fired())
		}
		change()
		if h.Fired() != 0 {
			t.Errorf("behind %s: got %d, want 0", name, h.Fired())
		}
	}
}
