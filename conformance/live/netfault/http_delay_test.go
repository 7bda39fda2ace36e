package netfault_test

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/conformance/live/netfault"
)

// took sends a request and returns how long it and the reply took.
func took(t *testing.T, h *netfault.HTTP, s *web, by *http.Client) (there, back time.Duration) {
	t.Helper()
	begun := time.Now()
	if _, _, err := putBy(t, by, h, "/k", time.Hour); err != nil {
		t.Fatal(err)
	}
	arrived := s.requests()
	at := arrived[len(arrived)-1].at
	return at.Sub(begun), time.Since(at)
}

// The suite's Delays are from nothing to d, both ways, and the seed's.
func TestHTTPDelays(t *testing.T) {
	const d = time.Second
	run := func(seed uint64) (there, back []time.Duration) {
		virtual(t, func(t *testing.T) {
			h, s, client := virtualSite(t, &netfault.HTTPOptions{Seed: seed})
			h.Set(conformance.Delays, d)
			for range 100 {
				request, reply := took(t, h, s, client)
				there, back = append(there, request), append(back, reply)
			}
			if h.Fired() != 200 {
				t.Errorf("Fired: got %d, want 200", h.Fired())
			}
		})
		return there, back
	}
	there, back := run(3)
	for _, all := range [][]time.Duration{there, back} {
		if shortest, longest := slices.Min(all), slices.Max(all); shortest > d/10 || longest > d || longest < d*9/10 {
			t.Errorf("from %v to %v, want nothing to %v", shortest, longest, d)
		}
	}
	again, andBack := run(3)
	if !slices.Equal(there, again) || !slices.Equal(back, andBack) {
		t.Error("the same seed drew other delays")
	}
	if other, _ := run(4); slices.Equal(there, other) || slices.Equal(there, back) {
		t.Error("another seed, or the other direction, drew the same delays")
	}
}

// A rule's delays are exact, also where the rule answers.
func TestHTTPRuleDelays(t *testing.T) {
	for name, c := range map[string]struct {
		rule        netfault.Rule
		there, back time.Duration
		fired       int
	}{
		"request":     {netfault.Rule{Delay: time.Minute}, time.Minute, 0, 1},
		"reply":       {netfault.Rule{DelayReply: time.Second}, 0, time.Second, 1},
		"both":        {netfault.Rule{Delay: time.Minute, DelayReply: time.Second}, time.Minute, time.Second, 2},
		"answer late": {netfault.Rule{Do: netfault.AnswerLate, Delay: time.Minute, DelayReply: time.Second}, time.Minute, time.Second, 2},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				h, s, client := virtualSite(t, nil)
				h.Rules(c.rule)
				if there, back := took(t, h, s, client); there != c.there || back != c.back {
					t.Errorf("got %v there and %v back, want %v and %v", there, back, c.there, c.back)
				}
				if h.Fired() != c.fired {
					t.Errorf("Fired: got %d, want %d", h.Fired(), c.fired)
				}
			})
		})
	}
	virtual(t, func(t *testing.T) {
		h, s, client := virtualSite(t, nil)
		h.Rules(netfault.Rule{Do: netfault.Answer, Delay: time.Minute, DelayReply: time.Second})
		begun := time.Now()
		status, _, err := putBy(t, client, h, "/k", time.Hour)
		if got, want := time.Since(begun), time.Minute+time.Second; err != nil || status != 200 || got != want {
			t.Errorf("an answer: got %d, %v after %v; want it after %v", status, err, got, want)
		}
		if len(s.requests()) != 0 {
			t.Errorf("the server had %v, want nothing", s.requests())
		}
	})
}

// A copy comes so much later than the answer, is the same request, and overtakes it never.
func TestHTTPCopies(t *testing.T) {
	const d, slow = 10 * time.Second, time.Minute
	for name, begin := range map[string]func(*netfault.HTTP, time.Duration){
		"Set":  func(h *netfault.HTTP, d time.Duration) { h.Set(conformance.Copies, d) },
		"rule": func(h *netfault.HTTP, d time.Duration) { h.Rules(netfault.Rule{Do: netfault.Repeat, After: d}) },
		"rule, delayed": func(h *netfault.HTTP, d time.Duration) {
			h.Rules(netfault.Rule{Do: netfault.Repeat, Delay: time.Hour / 2, After: d})
		},
	} {
		for _, d := range []time.Duration{0, d} {
			t.Run(fmt.Sprint(name, " ", d), func(t *testing.T) {
				virtual(t, func(t *testing.T) {
					h, s, client := virtualSite(t, nil)
					s.answer(func(http.ResponseWriter) { pass(slow) })
					begin(h, d)
					if _, body, err := putBy(t, client, h, "/k", time.Hour); err != nil || body != "got body" {
						t.Errorf("got %q, %v", body, err)
					}
					h.Rules()
					h.Set(conformance.Sound, 0) // what is under way comes all the same
					after(time.Hour)
					got := s.requests()
					if len(got) != 2 {
						t.Fatalf("got %+v, want two", got)
					}
					if late := got[1].at.Sub(got[0].at); late != slow+d {
						t.Errorf("the copy came after %v, want %v", late, slow+d)
					}
					got[1].at = got[0].at
					if !reflect.DeepEqual(got[0], got[1]) {
						t.Errorf("got %+v and %+v", got[0], got[1])
					}
				})
			})
		}
	}
}

// Where no answer shows that the original arrived, there is no copy.
func TestHTTPNoCopyWithoutAnAnswer(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h, s, client := virtualSite(t, nil)
		s.answer(func(http.ResponseWriter) { panic(http.ErrAbortHandler) })
		h.Set(conformance.Copies, time.Second)
		if _, _, err := putBy(t, client, h, "/k", time.Hour); err == nil {
			t.Error("got an answer, want none")
		}
		after(time.Hour)
		if got := s.count("PUT /k"); got != 1 {
			t.Errorf("the server had it %d times, want once", got)
		}
	})
}
