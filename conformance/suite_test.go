package conformance_test

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/conformance/history"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/memlock"
)

// other is a lock library that has no driver. It happens to be ours.
type other struct{ l *locker.Locker }

func (o other) TryAcquire(ctx context.Context, key string, ttl time.Duration) (conformance.Held, error) {
	l, err := o.l.TryAcquire(ctx, key, locker.WithTTL(ttl))
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (o other) Acquire(ctx context.Context, key string, ttl time.Duration) (conformance.Held, error) {
	l, err := o.l.Acquire(ctx, key, locker.WithTTL(ttl))
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (o other) Close() error { return o.l.Close() }

func TestCheckOfAnotherLibrary(t *testing.T) {
	t.Parallel()
	server := memlock.NewServer()
	told := 0
	r := conformance.Check(t.Context(), conformance.Harness{
		Locker: func(context.Context) (conformance.Lock, error) {
			l, err := locker.New(server.Driver(), nil)
			return other{l}, err
		},
	}, conformance.CheckOptions{
		Only: func(k conformance.Case) bool {
			return strings.HasPrefix(k.ID, "contract/") || k.ID == "fence/one-token-many-writes"
		},
		Each: func(conformance.Result) { told++ },
	})
	if !r.OK() || r.Counts[conformance.Passed] < 7 || r.Counts[conformance.Undeclared] < 7 || told != len(r.Results) {
		t.Fatalf("told of %d results, and:\n%s", told, r)
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back conformance.Report
	if err := json.Unmarshal(b, &back); err != nil || back.String() != r.String() {
		t.Errorf("the report as JSON: got %v and\n%s\nwant\n%s", err, back.String(), r)
	}
}

// only runs one case with Check.
func only(t *testing.T, h conformance.Harness, id string) (*conformance.Report, conformance.Result) {
	t.Helper()
	r := conformance.Check(t.Context(), h, conformance.CheckOptions{Only: func(k conformance.Case) bool { return k.ID == id }})
	if len(r.Results) != 1 {
		t.Fatalf("%s: got %d results, want 1\n%s", id, len(r.Results), r)
	}
	return r, r.Results[0]
}

// slow is a control request that takes a fifth of the ttl.
func slow(context.Context) error {
	<-time.After(400 * time.Millisecond)
	return nil
}

func TestSlowServerIsNoEvidence(t *testing.T) {
	t.Parallel()
	h := ttlTimes(3, 2).harness(conformance.Harness{})
	h.Control = slow
	r, res := only(t, h, "expiry/dead-holder")
	if res.Verdict != conformance.Inconclusive || res.Repeats != 1 || r.Repeated != 1 {
		t.Errorf("a grant that ends late, on a slow machine: got %+v, want it inconclusive after one repetition", res)
	}
	if !r.TooVague() || r.OK() {
		t.Errorf("a report with nothing but an inconclusive case is OK:\n%s", r)
	}
}

func TestTwoHoldersAreEvidenceOnASlowMachine(t *testing.T) {
	t.Parallel()
	h := ttlTimes(1, 2).harness(conformance.Harness{})
	h.Control = slow
	if r, res := only(t, h, "expiry/dead-holder"); res.Verdict != conformance.Failed || r.OK() {
		t.Errorf("a key that is given away early, on a slow machine: got %+v, want it failed", res)
	}
}

func TestPartialReport(t *testing.T) {
	t.Parallel()
	h := memory(memlock.NewServer())
	h.Reopen = nil
	r, res := only(t, h, "namespace/other-layout")
	if res.Verdict != conformance.Skipped || !r.Partial || !r.OK() {
		t.Errorf("a core case whose harness is missing: got %+v, partial %v, want it skipped and the report partial", res, r.Partial)
	}
}

func TestSkipsAreAllowedByName(t *testing.T) {
	t.Parallel()
	h := memory(memlock.NewServer())
	h.Reopen = nil
	h.Allow = []string{}
	if r, res := only(t, h, "namespace/other-layout"); res.Verdict != conformance.Failed || res.Cause != conformance.BySetup || r.OK() {
		t.Errorf("a skip that is not allowed: got %+v, want it failed", res)
	}
	h.Allow = []string{"namespace/other-layout"}
	if r, res := only(t, h, "namespace/other-layout"); res.Verdict != conformance.Skipped || !r.Partial {
		t.Errorf("a skip that is allowed: got %+v, want it skipped", res)
	}
	if _, res := only(t, h, "server/killed"); res.Verdict != conformance.Failed {
		t.Errorf("a server that nothing can kill: got %+v, want it failed", res)
	}
	h.NoServer = true
	if r, res := only(t, h, "server/killed"); res.Verdict != conformance.Undeclared || r.Partial {
		t.Errorf("no server: got %+v, want it undeclared", res)
	}
}

func TestHarnessMustBeComplete(t *testing.T) {
	t.Parallel()
	both := memory(memlock.NewServer())
	both.Locker = func(context.Context) (conformance.Lock, error) { return nil, nil }
	for what, h := range map[string]conformance.Harness{"neither": {}, "both": both, "virtual": {Virtual: true}} {
		if r := conformance.Check(t.Context(), h, conformance.CheckOptions{}); r.Err == "" || r.OK() {
			t.Errorf("%s: got a report without an error", what)
		}
	}
}

// one runs a case that is not in the table, in virtual time.
func one(t *testing.T, run func(*conformance.C)) (r conformance.Result) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		h := memory(memlock.NewServer())
		h.TTL, h.Slack, h.Virtual = 2*time.Second, 50*time.Millisecond, true
		r, _ = conformance.RunOne(h, memlock.NewServer().Driver().Info(), conformance.Case{ID: "test/one", Rule: "A rule.", Run: run})
	})
	return r
}

func TestWhatEndsACase(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		run     func(*conformance.C)
		verdict conformance.Verdict
		cause   conformance.Cause
		detail  string
	}{
		{"nothing", func(*conformance.C) {}, conformance.Passed, "", ""},
		{"a fault that never fired", func(c *conformance.C) { c.Peer("A").Faults("renew=before") },
			conformance.Failed, conformance.BySetup, "never fired"},
		{"a fault that fires in a moment", func(c *conformance.C) {
			a, key := c.Peer("A"), c.Key("k")
			a.Faults("try=before")
			c.Go(func() {
				c.Sleep(c.T / 50)
				_, _ = a.TryErr(key)
			})
			a.Faults("")
		}, conformance.Passed, "", ""},
		{"a failure", func(c *conformance.C) { c.Failf("two of %d", 3) }, conformance.Failed, conformance.ByRule, "two of 3"},
		{"a failure beside the case", func(c *conformance.C) {
			c.Go(func() { c.Failf("beside") })
			c.Sleep(time.Hour)
		}, conformance.Failed, conformance.ByRule, "beside"},
		{"a failure on top of a slow one", func(c *conformance.C) {
			c.Go(func() {
				<-c.Ctx.Done()
				c.Failf("hard")
			})
			c.Latef("slow")
		}, conformance.Failed, conformance.ByRule, "hard"},
		{"a panic", func(*conformance.C) { panic("oh") }, conformance.Failed, conformance.ByPanic, "oh"},
		{"no end", func(c *conformance.C) { <-c.Ctx.Done(); c.Sleep(1) }, conformance.Failed, conformance.BySetup, "did not end"},
		{"an illegal history", func(c *conformance.C) {
			a, b := c.Peer("A"), c.Peer("B")
			l := a.Try(c.Key("k"))
			if err := b.L.Break(c.Ctx, c.Key("k"), l.Token(), locker.Break{Now: true}); err != nil {
				c.Failf("Break: %v", err)
			}
			next := b.Try(c.Key("k"))
			l.Sure() // it has not heard of the break
			next.Sure()
		}, conformance.Failed, conformance.ByHistory, "both believed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := one(t, c.run)
			if r.Verdict != c.verdict || r.Cause != c.cause || !strings.Contains(r.Detail, c.detail) {
				t.Errorf("got %s (%s): %s, want %s (%s): %s", r.Verdict, r.Cause, r.Detail, c.verdict, c.cause, c.detail)
			}
		})
	}
}

// A size in time counts from when the clients are there.
func TestSlowClientsAreNoExcuse(t *testing.T) {
	t.Parallel()
	for _, k := range conformance.Cases() {
		if k.ID != "contention/loop" && k.ID != "fence/rising" {
			continue
		}
		t.Run(k.ID, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := memlock.NewServer()
				h := memory(s)
				h.TTL, h.Slack, h.Virtual = 2*time.Second, 50*time.Millisecond, true
				h.Driver = func(context.Context) (driver.Driver, error) {
					<-time.After(3 * h.TTL)
					return s.Driver(), nil
				}
				r, ops := conformance.RunOne(h, s.Driver().Info(), k)
				grants := 0
				for _, op := range ops {
					if op.Kind == history.Acquire && op.Outcome == history.OK {
						grants++
					}
				}
				if r.Verdict != conformance.Passed || grants < k.Push.N {
					t.Errorf("got %d grants, want at least %d, and %s", grants, k.Push.N, r)
				}
			})
		})
	}
}

func TestCasesAreWellFormed(t *testing.T) {
	t.Parallel()
	id := regexp.MustCompile(`^[a-z]+/[a-z0-9]+(-[a-z0-9]+)*$`)
	seen := map[string]bool{}
	for _, k := range conformance.Cases() {
		if !id.MatchString(k.ID) || seen[k.ID] {
			t.Errorf("id %q: want topic/kebab-case, once", k.ID)
		}
		seen[k.ID] = true
		if k.Run == nil || !strings.HasSuffix(k.Rule, ".") && !strings.HasSuffix(k.Rule, ".)") {
			t.Errorf("%s: want a rule that is a sentence, and something to run", k.ID)
		}
		if (k.Full != conformance.Size{}) && (k.Push == conformance.Size{}) {
			t.Errorf("%s has a full size and none per push", k.ID)
		}
	}
}

// bare is a driver that declares more than it implements.
type bare struct{ driver.Driver }

func (bare) Info() driver.Info {
	return driver.Info{Name: "bare", Features: []driver.Feature{driver.FeatureInspect, driver.FeaturePing}}
}

// An operation that is declared needs its interface, and an author who has forgotten one of its
// methods is told so.
func TestDeclaredInterfaces(t *testing.T) {
	t.Parallel()
	h := conformance.Harness{Driver: func(context.Context) (driver.Driver, error) { return bare{memlock.NewServer().Driver()}, nil }}
	r := conformance.Check(t.Context(), h, conformance.CheckOptions{Only: func(conformance.Case) bool { return false }})
	if !strings.Contains(r.Err, "inspect") || !strings.Contains(r.Err, "driver.Inspector") {
		t.Errorf("a driver that declares inspect and has no Inspector: got %q, want both named", r.Err)
	}
}
