package s3_test

import (
	"slices"
	"testing"
	"time"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/conformance/live"
	"github.com/fencelock/locker/s3lock"
)

// The whole suite, faults included, where the store's clock decides. It runs before all the
// others: a store with a disk below it has no speed for three suites.
func TestS3(t *testing.T) {
	s := live.S3(t, live.S3Options{})
	h := harness(t, s, s3lock.StoreClock, front(t, s))
	if harmed(&h, s) {
		h.Allow = []string{}
	}
	h.Parallel, h.TTL = atOnce, suiteTTL
	conformance.Run(t, h)
}

// harmed lets the suite stop and kill the server, if that is ours to do.
func harmed(h *conformance.Harness, s *live.S3Server) bool {
	if s.Ours() {
		h.Faults.Stop, h.Faults.Continue, h.Faults.Restart, h.Faults.Kill = s.Pause, s.Unpause, s.Restart, s.Crash
	}
	return s.Ours()
}

// Two gateways on one store are one store: clients use them in turn.
func TestTwoGateways(t *testing.T) {
	t.Parallel()
	first := live.S3(t, live.S3Options{})
	if !first.Ours() {
		t.Skip("a server of the environment has one gateway") // TestS3 has run on it
	}
	second := live.S3(t, live.S3Options{Store: first})
	h := harness(t, first, s3lock.StoreClock, front(t, first), front(t, second))
	partly(t, h, 80)
}

// Contenders that judge by what they see themselves are never early, either. One that has
// just come cannot know that a holder has been silent for long: the cases in which it is
// asked once have no sense here, and TestDeadHolder has instead.
func TestObserved(t *testing.T) {
	t.Parallel()
	s := live.S3(t, live.S3Options{})
	partly(t, harness(t, s, s3lock.Observed, front(t, s)), 80, "inspect/states", "expiry/renew-too-late", "expiry/release-too-late")
}

// Another store, which other people have written.
func TestMinIO(t *testing.T) {
	t.Parallel()
	s := live.MinIO(t, live.S3Options{})
	h := harness(t, s, s3lock.StoreClock, front(t, s))
	harmed(&h, s)
	partly(t, h, 80)
}

// partly runs the core cases that are no load, but for some, and wants so many to pass at
// least.
func partly(t *testing.T, h conformance.Harness, least int, but ...string) {
	t.Helper()
	h.Parallel, h.TTL = atOnce, suiteTTL
	r := conformance.Check(t.Context(), h, conformance.CheckOptions{
		Only: func(c conformance.Case) bool {
			return c.Level == conformance.Core && !c.Load && !slices.Contains(but, c.ID)
		},
	})
	t.Log("\n" + r.String())
	if r.Err != "" || r.Counts[conformance.Failed] > 0 || r.TooVague() {
		t.Errorf("the report: got %d failed, %d inconclusive and error %q, want none",
			r.Counts[conformance.Failed], r.Counts[conformance.Inconclusive], r.Err)
	}
	if n := r.Counts[conformance.Passed]; n < least {
		t.Errorf("cases that passed: got %d, want at least %d", n, least)
	}
}

// An acquire is four requests here, two of which wait for a disk, and all of it has a
// quarter of the ttl: fewer cases at once, and a longer ttl than elsewhere.
const (
	atOnce   = 8
	suiteTTL = 3 * time.Second
)
