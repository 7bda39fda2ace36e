package redis_test

import (
	"testing"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/conformance/live"
)

// The suites run one behind the other and beside nothing else: what they say of times is evidence.
//
// Redis that syncs its file with every write loses nothing: the whole suite, faults included.
func TestRedis(t *testing.T) {
	h := harness(t, live.Redis(t, live.RedisOptions{Persistence: live.RedisAlways, Own: true}))
	h.Allow = []string{}
	conformance.Run(t, h)
}

// Valkey runs the core cases.
func TestValkey(t *testing.T) {
	h := harness(t, live.Valkey(t, live.RedisOptions{Persistence: live.RedisAlways, Own: true}))
	report := conformance.Check(t.Context(), h, conformance.CheckOptions{
		Only: func(c conformance.Case) bool { return c.Level == conformance.Core && !c.Load },
	})
	settle(t, report, 50)
}

// settle fails the test unless the report has enough that passed and nothing that failed.
func settle(t *testing.T, r *conformance.Report, least int) {
	t.Helper()
	t.Log("\n" + r.String())
	if r.Err != "" || r.Counts[conformance.Failed] > 0 || r.TooVague() {
		t.Errorf("the report: got %d failed, %d inconclusive and error %q, want none",
			r.Counts[conformance.Failed], r.Counts[conformance.Inconclusive], r.Err)
	}
	if n := r.Counts[conformance.Passed]; n < least {
		t.Errorf("cases that passed: got %d, want at least %d", n, least)
	}
}
