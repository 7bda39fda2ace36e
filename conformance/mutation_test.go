package conformance_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/driver"
)

// The environment of a child that runs cases against a mutant. A mutant runs in a process
// of its own, in virtual time: it may panic, spin, or leave a goroutine in its bubble, all
// of which end the test binary.
const (
	envMutant = "LOCKER_CONFORMANCE_MUTANT" // its name; sound for none
	envCases  = "LOCKER_CONFORMANCE_CASES"  // ids with commas; empty: all
)

const (
	sound = "sound"
	// soundPoller is a sound backend whose waiters poll.
	soundPoller = "sound, polling"
	lineBegin   = "case begins: "
	lineSays    = "case says: "
	lineEnd     = "case ended: "
	// stall is how long a child may say nothing. No case takes a second in virtual time.
	stall = 30 * time.Second
)

// TestMutantChild is the child's half of TestMutants and of the matrix.
func TestMutantChild(t *testing.T) {
	name := os.Getenv(envMutant)
	if name == "" {
		return // not a child
	}
	h := virtual()
	for _, m := range mutants {
		if m.name == name {
			h.PerCase = m.make
		}
	}
	if name == soundPoller {
		h.PerCase = defect{info: noQueue}.harness
	}
	var ids []string
	if list := os.Getenv(envCases); list != "" {
		ids = strings.Split(list, ",")
	}
	tell := func(line string) func(conformance.Result) {
		return func(r conformance.Result) {
			b, err := json.Marshal(r)
			if err != nil {
				t.Error(err)
			}
			fmt.Println(line + string(b))
		}
	}
	conformance.RunEach(t, h, ids, func(id string) { fmt.Println(lineBegin + id) }, tell(lineSays), tell(lineEnd))
}

// runMutant runs cases (nil: all) against a mutant in a child and returns what came of
// each. A case that ends the process has failed by panic or hang; the others are run in
// another child.
func runMutant(t *testing.T, binary, name string, ids []string) map[string]conformance.Result {
	t.Helper()
	results := map[string]conformance.Result{}
	if ids == nil {
		for _, k := range conformance.Cases() {
			ids = append(ids, k.ID)
		}
	}
	for len(ids) > 0 {
		died := runChild(t, binary, name, ids, results)
		var left []string
		for _, id := range ids {
			if _, done := results[id]; !done {
				left = append(left, id)
			}
		}
		if died == "" && len(left) > 0 {
			t.Fatalf("mutant %s: the child ended without running %v", name, left)
		}
		ids = left
	}
	return results
}

// runChild returns the case that ended the child.
func runChild(t *testing.T, binary, name string, ids []string, results map[string]conformance.Result) (died string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	quiet := time.AfterFunc(stall, cancel)
	defer quiet.Stop()
	cmd := exec.CommandContext(ctx, binary, "-test.run=^TestMutantChild$", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), envMutant+"="+name, envCases+"="+strings.Join(ids, ","))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	running := ""
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		quiet.Reset(stall)
		line := lines.Text()
		if id, ok := strings.CutPrefix(line, lineBegin); ok {
			running = id
		}
		text, says := strings.CutPrefix(line, lineSays)
		text, ends := strings.CutPrefix(text, lineEnd)
		if !says && !ends {
			continue
		}
		var r conformance.Result
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatalf("mutant %s: %v in %q", name, err, text)
		}
		results[r.ID] = r
		if ends {
			running = ""
		}
	}
	_ = cmd.Wait()
	if r := results[running]; running != "" && r.Verdict != conformance.Failed {
		r = conformance.Result{ID: running, Verdict: conformance.Failed, Cause: conformance.ByPanic, Detail: stderr.String()}
		if ctx.Err() != nil {
			r.Cause = conformance.ByHang
		}
		results[running] = r
	}
	return running
}

// Each mutant is caught by the case that names its fault, and by that case's own rule.
func TestMutants(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, m := range mutants {
		if names[m.name] {
			t.Errorf("two mutants are called %s", m.name)
		}
		names[m.name] = true
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			r := runMutant(t, exe, m.name, []string{m.killer})[m.killer]
			if r.Verdict != conformance.Failed || r.Cause != conformance.ByRule {
				t.Fatalf("%s (%s): %s says %s (%s), want it failed by its rule\n%s", m.name, m.why, m.killer, r.Verdict, r.Cause, r.Detail)
			}
			t.Log(r.Detail)
		})
	}
}

// Where a definite answer is due, one that says nothing breaks the rule: no fault was
// injected, and the machine is not slow.
func TestUnansweredIsNoAnswer(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, ids := range map[string][]string{
		"renewal-unanswered": {"expiry/renew-too-late", "request/released-is-over", "request/only-owner-renews"},
		"release-unanswered": {"expiry/release-too-late", "request/released-is-over", "request/only-owner-releases", "request/release-by-request"},
		"break-unanswered":   {"break/wrong-token"},
		"refusal-unanswered": {"contention/barrier"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for id, r := range runMutant(t, exe, name, ids) {
				if r.Verdict != conformance.Failed || r.Cause != conformance.ByRule || !strings.Contains(r.Detail, driver.ErrUnavailable.Error()) {
					t.Errorf("%s says %s (%s), want it failed by its rule\n%s", id, r.Verdict, r.Cause, r.Detail)
				}
			}
		})
	}
}

// What the mutants are made of passes every case: what a mutant fails is its own fault.
func TestSoundPasses(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{sound, soundPoller} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, r := range runMutant(t, exe, name, nil) {
				if r.Verdict == conformance.Failed {
					t.Error(r)
				}
			}
		})
	}
}
