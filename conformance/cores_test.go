package conformance_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/internal/mutate"
)

// cores are broken cores that a case names, by the patch's name: the core's own patches,
// each of which the core's tests catch too. push: also per push; building a binary for
// each takes seconds.
var cores = []struct {
	patch, killer string
	push          bool
}{
	{"close-releases-under-a-running-function", "local/close-waits-for-function", false},
	{"do-hides-the-loss", "local/do-tells-loss", false},
	{"do-keeps-the-lock-on-panic", "local/do-releases-on-panic", false},
	{"r01-counts-from-answer", "renewal/counts-from-send", false},
	{"r01-counts-from-last-send", "expiry/re-sent-grant", false},
	{"r01-no-boot-clock", "expiry/suspend", false},
	{"r01-no-grace", "expiry/belief-ends-first", false},
	{"r02-err-trusts-the-timer", "expiry/suspend", false},
	{"r02-no-timer", "renewal/all-fail", true},
	{"r02-suspend-unnoticed", "expiry/suspend", false},
	{"r03-frees-before-the-deadline", "expiry/not-freed-early", false},
	{"r03-loss-by-answer-ignored", "break/ends-holder", false},
	{"r04-claim-window-not-extended", "queue/hand-off-lasts", false},
	{"r04-first-renewal-at-once", "queue/early-push", false},
	{"r04-one-try-only", "renewal/errors-pass", false},
	{"r04-renews-by-itself", "expiry/belief-ends-first", false},
	{"r04-two-in-flight", "renewal/one-in-flight", false},
	{"r04-unbounded-batch", "contention/many-keys", false},
	{"r05-failure-settles-all", "expiry/failure-behind-lost-reply", false},
	{"r05-fresh-attempt-on-resend", "queue/re-sent-enqueue", false},
	{"r05-held-by-own-undo", "expiry/own-undo", false},
	{"r05-no-undo", "contract/cancelled-wait", true},
	{"r05-undo-once", "expiry/too-slow-grant", false},
	{"r05-undone-attempt-reused", "queue/fresh-attempt", false},
	{"r05-unknown-is-held", "network/lost-reply-of-acquire", false},
	{"r06-belief-outlives-release", "local/release-ends-belief", false},
	{"r06-not-mine-is-an-error", "renewal/release-errors-pass", false},
	{"r06-release-needs-a-live-context", "contract/release-without-context", false},
	{"r07-idle-round-trip", "local/one-waiter-at-the-backend", false},
	{"r07-not-in-order", "local/first-come-first-served", false},
	{"r07-poller-asks-while-we-hold", "local/one-waiter-at-the-backend", false},
	{"r07-try-asks-the-backend", "contract/not-reentrant", false},
	{"r08-broken-ticket-spins", "queue/broken-ear", false},
	{"r08-expiry-unknown", "queue/long-behind-short", false},
	{"r08-gives-up-while-waiting", "contention/errors-while-waiting", false},
	{"r08-poll-too-slow", "queue/lost-push", false},
	{"r08-poller-does-not-back-off", "contention/idle-waiter", false},
	{"r10-regression-accepted", "server/killed", true},
	{"r10-regression-kept", "server/killed", false},
	{"r10-reset-without-floor", "server/killed", false},
	{"r11-adjusts-silently", "contract/impossible-ttl", false},
	{"r13-always-confirms", "queue/early-push", false},
	{"r13-late-push-believed", "queue/push-after-expiry", true},
	{"r13-never-confirms", "queue/push-confirmed", false},
	{"r13-unanswered-poll-is-gone", "queue/short-behind-long", false},
	{"r14-break-forgets-now", "break/now", false},
	{"r14-break-takes-any-token", "break/wrong-token", false},
	{"r15-empty-key", "contract/invalid-keys", false},
}

// coreMutants are the patches of the core's own tests, and ours, whose tests are cases.
func coreMutants(t *testing.T) []mutate.Mutant {
	t.Helper()
	var all []mutate.Mutant
	for _, dir := range []string{filepath.Join("..", "testdata", "mutants"), filepath.Join("testdata", "cores")} {
		ms, err := mutate.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, ms...)
	}
	return all
}

// named are the broken cores that a case names, with that case.
func named(t *testing.T, all bool) map[string]string {
	t.Helper()
	killers := map[string]string{}
	for _, core := range cores {
		if all || core.push {
			killers[core.patch] = core.killer
		}
	}
	for _, m := range coreMutants(t) {
		if strings.Contains(m.Tests[0], "/") {
			killers[m.Name] = m.Tests[0]
		}
	}
	return killers
}

// buildCore makes the test binary of this package over a broken core.
func buildCore(t *testing.T, m mutate.Mutant) string {
	t.Helper()
	dir := t.TempDir()
	overlay, err := m.Overlay("..", dir)
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "conformance.test")
	out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", binary, ".").CombinedOutput()
	if err != nil {
		t.Fatalf("build with %s: %v\n%s", m.Name, err, out)
	}
	return binary
}

// runCore runs cases against a broken core: over a backend with a queue, and, where that
// one passes, over one whose waiters poll.
func runCore(t *testing.T, m mutate.Mutant, ids []string) map[string]conformance.Result {
	t.Helper()
	binary := buildCore(t, m)
	results := runMutant(t, binary, sound, ids)
	for id, r := range runMutant(t, binary, soundPoller, ids) {
		if r.Verdict == conformance.Failed && results[id].Verdict != conformance.Failed {
			results[id] = r
		}
	}
	return results
}

// Each broken core is caught by the case that names its fault.
func TestMutantCores(t *testing.T) {
	size := os.Getenv(conformance.SizeVariable)
	killers := named(t, size == "full" || size == "soak")
	found := 0
	for _, m := range coreMutants(t) {
		killer := killers[m.Name]
		if killer == "" {
			continue
		}
		found++
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			r := runCore(t, m, []string{killer})[killer]
			byRule := r.Cause == conformance.ByRule || r.Cause == conformance.ByHistory
			if spins := m.Name == "r08-broken-ticket-spins"; spins { // no virtual time passes beside a spin
				byRule = byRule || r.Cause == conformance.ByHang
			}
			if r.Verdict != conformance.Failed || !byRule {
				t.Fatalf("%s (%s): %s says %s (%s), want it failed by its rule or its history\n%s", m.Name, m.Why, killer, r.Verdict, r.Cause, r.Detail)
			}
			t.Log(r.Cause, r.Detail)
		})
	}
	if found != len(killers) {
		t.Errorf("patches: got %d, want the %d that a case names", found, len(killers))
	}
}
