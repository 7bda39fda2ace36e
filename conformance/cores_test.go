package conformance_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/internal/mutate"
)

// cores are broken cores that a case names, by the patch's name. The core's own tests
// catch every patch; these are the ones that the suite must see from outside, on any
// backend.
var cores = []struct{ patch, killer string }{}

// coreMutants are the patches of the core.
func coreMutants(t *testing.T) []mutate.Mutant {
	t.Helper()
	ms, err := mutate.Load(filepath.Join("..", "testdata", "mutants"))
	if err != nil {
		t.Fatal(err)
	}
	return ms
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

// Each broken core is caught by the case that names its fault.
func TestMutantCores(t *testing.T) {
	byName := map[string]mutate.Mutant{}
	for _, m := range coreMutants(t) {
		byName[m.Name] = m
	}
	for _, core := range cores {
		t.Run(core.patch, func(t *testing.T) {
			t.Parallel()
			m, ok := byName[core.patch]
			if !ok {
				t.Fatalf("there is no patch %s", core.patch)
			}
			r := runMutant(t, buildCore(t, m), sound, []string{core.killer})[core.killer]
			if r.Verdict != conformance.Failed || r.Cause == conformance.BySetup {
				t.Fatalf("%s (%s): %s says %s (%s), want it failed\n%s", m.Name, m.Why, core.killer, r.Verdict, r.Cause, r.Detail)
			}
			t.Log(r.Cause, r.Detail)
		})
	}
}
