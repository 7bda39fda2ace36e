package s3lock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/locker/driver"
)

func probe(t *testing.T, s *double) Report {
	t.Helper()
	r, err := Probe(within(t), s.client(), testBucket, &Options{Prefix: "some/where"})
	if err != nil {
		t.Fatal(err)
	}
	if left := s.names(); len(left) > 0 {
		t.Errorf("a probe left %v", left)
	}
	return r
}

func TestProbeOfAGoodStore(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	r := probe(t, s)
	sum := 0
	for _, n := range s.verbs() {
		sum += n
	}
	if sum < 80 || sum > 120 {
		t.Errorf("it sent %d requests, want about a hundred, as its comment says", sum)
	}
	if r.Err() != nil || !r.ClocksAgree() || len(r.Checks) != 11 {
		t.Errorf("got %v:\n%v", r.Err(), r)
	}
	for _, c := range r.Checks {
		if c.Verdict != Met {
			t.Errorf("%s: got %s (%s), want met", c.Requirement, c.Verdict, c.Found)
		}
	}
}

// Each store that cannot keep locks is refused when it is opened, by the name of what it
// lacks, and nothing is left in it.
func TestStoresThatLackSomething(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		break_ func(*double)
		want   string
	}{
		"ignores If-None-Match":       {func(s *double) { s.ignoreNoneMatch = true }, reqCreateTwice},
		"ignores If-Match":            {func(s *double) { s.ignoreMatch = true }, reqReplaceStale},
		"creates on If-Match":         {func(s *double) { s.createsOnMatch = true }, reqReplaceNone},
		"checks first, writes later":  {func(s *double) { s.gap = 20 * time.Millisecond }, reqCreateRace},
		"lists in another order":      {func(s *double) { s.backwards = true }, reqList},
		"does not implement creating": {func(s *double) { s.answer = refuses("If-None-Match", 501, "NotImplemented") }, reqCreate},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newDouble(t)
			s.wrong(c.break_)
			_, err := NewDriver(within(t), s.client(), testBucket, nil)
			if !errors.Is(err, ErrStore) || !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want ErrStore that names %q", err, c.want)
			}
			if left := s.names(); len(left) > 0 {
				t.Errorf("it left %v", left)
			}
		})
	}
}

// What a store answered is not called something else.
func TestProbeTellsWhatWasAnswered(t *testing.T) {
	t.Parallel()
	for header, code := range map[string]string{"If-Match": "NotImplemented", "If-None-Match": "NotImplemented"} {
		s := newDouble(t)
		n := 0
		s.answer = func(r *http.Request) (int, string, bool) {
			if r.Method == http.MethodPut && r.Header.Get(header) != "" {
				if n++; header == "If-Match" || n > 1 {
					return 501, code, false
				}
			}
			return 0, "", false
		}
		_, err := NewDriver(within(t), s.client(), testBucket, nil)
		if !errors.Is(err, ErrStore) || strings.Contains(err.Error(), "it wrote over") || !strings.Contains(err.Error(), code) {
			t.Errorf("%s: got %v, want ErrStore that names the answer", header, err)
		}
	}
}

func refuses(header string, status int, code string) func(*http.Request) (int, string, bool) {
	return func(r *http.Request) (int, string, bool) {
		if r.Method == http.MethodPut && r.Header.Get(header) != "" {
			return status, code, false
		}
		return 0, "", false
	}
}

// Where the store's clocks do not agree, contenders judge by what they see themselves, and
// so does everybody who opens the namespace later.
func TestClocksThatDisagree(t *testing.T) {
	t.Parallel()
	for name, break_ := range map[string]func(*double){
		"front ends 5 s apart":     func(s *double) { s.dates = []time.Duration{0, 5 * time.Second} },
		"Date 5 s late":            func(s *double) { s.dates = []time.Duration{-5 * time.Second} },
		"Date 5 s early":           func(s *double) { s.dates = []time.Duration{5 * time.Second} },
		"a proxy that says so":     func(s *double) { s.header = http.Header{"Via": {"1.1 proxy"}} },
		"a cache that says so":     func(s *double) { s.header = http.Header{"Age": {"3"}} },
		"no date that can be read": func(s *double) { s.header = http.Header{"Date": {"yesterday"}} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newDouble(t)
			s.wrong(break_)
			a := s.driver(nil)
			if a.store.clock.trusted() || !strings.Contains(a.Info().ExpiryClock, "contender's own") {
				t.Errorf("the clocks are trusted: %s", a.Info().ExpiryClock)
			}
			s.wrong(func(s *double) { s.dates, s.header = nil, nil })
			if b := s.driver(nil); b.store.clock.trusted() {
				t.Error("a later client trusts the clocks although the probe did not")
			}
		})
	}
}

// A probe that is too slow to compare the clocks trusts none: the slowness may hide that
// they differ by more than the margin.
func TestClocksThatAreTooSlowToCompare(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	s.wrong(func(s *double) {
		s.dates = []time.Duration{5 * time.Second}
		s.answer = func(r *http.Request) (int, string, bool) {
			if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/clock-") {
				<-time.After(4200 * time.Millisecond)
			}
			return 0, "", false
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	d, err := NewDriver(ctx, s.client(), testBucket, nil)
	if err != nil || d.store.clock.trusted() {
		t.Errorf("got %v, trusted %v; want the contender's own clock", err, d.store.clock.trusted())
	}
}

// Every grant's own object is compared with the reply that lists it: a Date that went wrong
// before this client's first request, so that its replies fit each other, shows.
func TestOwnGrantShowsClocksThatDisagree(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	s.driver(nil)
	s.wrong(func(s *double) { s.dates = []time.Duration{30 * time.Second} })
	d := s.driver(nil)
	if !d.store.clock.trusted() {
		t.Fatalf("nothing was to be seen yet: %s", d.store.clock.why())
	}
	acquire(t, d, "k")
	if d.store.clock.trusted() {
		t.Error("the clocks are still trusted")
	}
}

// Races in which everybody is told to come back later prove nothing.
func TestRacesWithoutAWinner(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		code   string
		want   error
	}{
		"busy":      {503, "SlowDown", driver.ErrUnavailable},
		"conflicts": {409, "ConditionalRequestConflict", ErrStore},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newDouble(t)
			s.answer = func(r *http.Request) (int, string, bool) {
				if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/create-") {
					return c.status, c.code, false
				}
				return 0, "", false
			}
			_, err := NewDriver(within(t), s.client(), testBucket, nil)
			if !errors.Is(err, c.want) || driver.IsAmbiguous(err) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if left := s.names(); len(left) > 0 {
				t.Errorf("it left %v", left)
			}
		})
	}
}

// A probe whose time is over removes what it has made.
func TestProbeThatEndsLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var n atomic.Int64
	s.answer = func(*http.Request) (int, string, bool) {
		if n.Add(1) == 20 {
			cancel()
		}
		return 0, "", false
	}
	if _, err := Probe(ctx, s.client(), testBucket, nil); err == nil {
		t.Error("it did not end")
	}
	if left := s.names(); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
}

// A mismatch that shows up later switches this client to the observed rule, before it can
// take a key too early.
func TestClocksThatDisagreeLater(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	var log bytes.Buffer
	a, b := s.driver(nil), s.driver(&Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if !b.store.clock.trusted() {
		t.Fatal(b.store.clock.why())
	}
	acquire(t, a, "k")
	if _, err := b.TryAcquire(within(t), request("k")); !errors.Is(err, driver.ErrHeld) {
		t.Fatal(err)
	}
	s.wrong(func(s *double) { s.dates = []time.Duration{30 * time.Second} })
	if _, err := b.TryAcquire(within(t), request("k")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("Date jumped 30 s ahead: got %v, want ErrHeld", err)
	}
	if b.store.clock.trusted() {
		t.Error("the clocks are still trusted")
	}
	if n := strings.Count(log.String(), "does not advance evenly"); n != 1 {
		t.Errorf("the log tells it %d times, want once: %s", n, log.String())
	}
	if r, err := b.Probe(within(t)); err != nil || r.Err() != nil {
		t.Errorf("Probe: got %v, %v", err, r.Err())
	}
}

// A holder of whom nothing is known is given up under the observed rule, never early.
func TestObservedRule(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	a, b := s.driver(nil), s.driver(&Options{Expiry: Observed})
	acquire(t, a, "k")
	begun := time.Now()
	for {
		g, err := b.TryAcquire(within(t), request("k"))
		if err == nil {
			if seen := time.Since(begun); seen < ttl || g.Token != 2 {
				t.Errorf("token %v after %v, want 2 after %v at least", g.Token, seen, ttl)
			}
			break
		}
		if !errors.Is(err, driver.ErrHeld) || time.Since(begun) > 5*ttl {
			t.Fatalf("after %v: %v", time.Since(begun), err)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// A Date that is far ahead of every Last-Modified makes no live record look dead, however
// long its holder's next renewal is off: only what a contender has seen itself counts.
func TestDateFarAheadTakesNoLiveLease(t *testing.T) {
	t.Parallel()
	for _, o := range []*Options{{}, {Expiry: Observed}} {
		s := newDouble(t)
		s.wrong(func(s *double) { s.dates = []time.Duration{2 * time.Hour} })
		r := request("k")
		r.TTL = 30 * time.Second
		g, err := s.driver(o).TryAcquire(within(t), r)
		if err != nil {
			t.Fatal(err)
		}
		other := s.driver(o)
		for range 3 {
			if next, err := other.TryAcquire(within(t), request("k")); !errors.Is(err, driver.ErrHeld) {
				t.Errorf("%s rule: got token %v, %v while %v is good for %v more", o.Expiry, next.Token, err, g.Token, g.Left)
			}
			<-time.After(2600 * time.Millisecond)
		}
	}
}

func TestLifecycleRuleIsWarnedAbout(t *testing.T) {
	t.Parallel()
	rule := func(prefix, status string) string {
		return `<LifecycleConfiguration><Rule><ID>tidy</ID><Filter><Prefix>` + prefix + `</Prefix></Filter><Status>` + status +
			`</Status><Expiration><Days>30</Days></Expiration></Rule></LifecycleConfiguration>`
	}
	for _, c := range []struct {
		lifecycle string
		want      Verdict
	}{
		{rule("", "Enabled"), Warned},
		{rule("some/", "Enabled"), Warned},
		{rule("some/where/locker/x", "Enabled"), Warned},
		{rule("elsewhere/", "Enabled"), Met},
		{rule("", "Disabled"), Met},
	} {
		s := newDouble(t)
		s.lifecycle = c.lifecycle
		var log bytes.Buffer
		o := &Options{Prefix: "some/where", Logger: slog.New(slog.NewTextHandler(&log, nil))}
		if _, err := NewDriver(within(t), s.client(), testBucket, o); err != nil {
			t.Fatal(err)
		}
		if warned := strings.Contains(log.String(), `rule \"tidy\" expires objects`); warned != (c.want == Warned) {
			t.Errorf("%s: the log says %q", c.lifecycle, log.String())
		}
	}
	s := newDouble(t)
	s.lifecycle = `<LifecycleConfiguration><Rule><ID>markers</ID><Filter><Prefix></Prefix></Filter><Status>Enabled</Status>` +
		`<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration></Rule></LifecycleConfiguration>`
	if r := probe(t, s); !strings.Contains(r.String(), "met        "+reqLifecycle) {
		t.Errorf("a rule about left-over delete markers: got\n%v", r)
	}
	for class, want := range map[string]Verdict{"GLACIER": Warned, "DEEP_ARCHIVE": Warned, "STANDARD_IA": Met} {
		s.lifecycle = `<LifecycleConfiguration><Rule><ID>cold</ID><Filter><Prefix></Prefix></Filter><Status>Enabled</Status>` +
			`<Transition><Days>30</Days><StorageClass>` + class + `</StorageClass></Transition></Rule></LifecycleConfiguration>`
		if r := probe(t, s); !strings.Contains(r.String(), fmt.Sprintf("%-9s  %s", want, reqLifecycle)) {
			t.Errorf("a rule that moves objects to %s: got\n%v", class, r)
		}
	}
	s = newDouble(t)
	s.answer = func(r *http.Request) (int, string, bool) {
		if r.URL.Query().Has("lifecycle") {
			return 403, "AccessDenied", false
		}
		return 0, "", false
	}
	if r := probe(t, s); r.Err() != nil || !strings.Contains(r.String(), "unchecked  "+reqLifecycle) {
		t.Errorf("without the permission to ask: got\n%v", r)
	}
}
