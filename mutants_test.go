package locker_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/locker/internal/mutate"
)

// TestMutants breaks the core on purpose, one rule at a time, and wants the tests that
// name the rule to notice. A mutant that is not caught is a test that cannot fail.
func TestMutants(t *testing.T) {
	mutants, err := mutate.Load("testdata/mutants")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			overlay, err := m.Overlay(".", t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			run := "^(" + strings.Join(m.Tests, "|") + ")$"
			out, err := exec.CommandContext(ctx, "go", "test", "-overlay", overlay, "-vet=off", "-count=1", "-timeout=10s", "-run", run, ".").CombinedOutput()
			if err == nil {
				t.Fatalf("%v pass although %s", m.Tests, m.Why)
			}
			for _, name := range m.Tests {
				// A mutant may also make its test spin.
				spins := strings.Contains(string(out), "panic: test timed out") && strings.Contains(string(out), "\t"+name)
				if !spins && !strings.Contains(string(out), "--- FAIL: "+name) {
					t.Errorf("%s did not fail although %s:\n%s", name, m.Why, out)
				}
			}
		})
	}
}
