package epoch

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencelock/locker/internal/mutate"
)

// mutantBounds are the negative controls that only a change of the shipped code can
// be. Each is a patch in testdata/mutants, applied by go test -overlay, so that the
// shipped code has no switches for them: within one mutated build a patch is switched
// on by its name. Without this the exploration might pass because it looks at nothing.
var mutantBounds = map[string]func() bounds{
	"no-look":             func() bounds { return within("conditional") },
	"no-check":            func() bounds { return within("collected") },
	"no-seal-late":        func() bounds { return within("conditional") },
	"late-answers":        func() bounds { return within("directory") },
	"adopt-undone":        func() bounds { return within("undone") },
	"counted-from-resend": func() bounds { return within("re-sent") },
	"quiet-to-arrival":    func() bounds { return within("observed") },
	"quiet-from-send":     func() bounds { return within("observed") },
	"broken-renewed":      func() bounds { return within("broken") },
}

// TestStateSpaceFindsMutants builds the package with every patch applied and requires
// that the exploration finds each.
func TestStateSpaceFindsMutants(t *testing.T) {
	t.Parallel()
	const dir = "testdata/mutants"
	mutants, err := mutate.Load(dir)
	if err != nil || len(mutants) != len(mutantBounds) {
		t.Fatalf("%d patches for %d mutants, %v", len(mutants), len(mutantBounds), err)
	}
	wd, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	extra := map[string]string{}
	for _, added := range []string{"mutant.go", "mutant_test.go"} {
		extra[filepath.Join(wd, added)] = filepath.Join(wd, dir, added+".txt")
	}
	file, err := mutate.Overlay(".", t.TempDir(), extra, mutants...)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "test", "-overlay="+file, "-count=1", "-vet=off", "-v", "-run=^(TestMutants|TestNoMutant)$", ".").CombinedOutput() // fixed arguments
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name := range mutantBounds {
		if !strings.Contains(string(out), "--- PASS: TestMutants/"+name+" ") {
			t.Errorf("%s did not run", name)
		}
	}
}
