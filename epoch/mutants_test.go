package epoch

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
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
	if testing.Short() || raceEnabled {
		t.Skip("a build of its own")
	}
	t.Parallel()
	dir := filepath.Join("testdata", "mutants")
	patches, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil || len(patches) != len(mutantBounds) {
		t.Fatalf("%d patches for %d mutants, %v", len(patches), len(mutantBounds), err)
	}
	sources := map[string]string{}
	for _, p := range patches {
		if mutantBounds[strings.TrimSuffix(filepath.Base(p), ".patch")] == nil {
			t.Errorf("%s has no bounds", p)
		}
		b, err := os.ReadFile(p) // from the list above
		if err != nil {
			t.Fatal(err)
		}
		if err := apply(string(b), sources); err != nil {
			t.Fatalf("%s: %v", p, err)
		}
	}
	work := t.TempDir()
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	overlay := map[string]string{}
	for name, text := range sources {
		overlay[filepath.Join(wd, name)] = filepath.Join(work, name)
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, added := range []string{"mutant.go", "mutant_test.go"} {
		overlay[filepath.Join(wd, added)] = filepath.Join(wd, dir, added+".txt")
	}
	b, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(work, "overlay.json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
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

// apply applies a unified diff to sources, reading files on first use. The lines of a
// hunk say where it goes, its numbers nothing: patches survive edits elsewhere, and one
// that no longer fits, or fits twice, is an error.
func apply(patch string, sources map[string]string) error {
	var name, before, after string
	flush := func() error {
		if before == "" {
			return nil
		}
		text, ok := sources[name]
		if !ok {
			b, err := os.ReadFile(name) // named by a patch of this package
			if err != nil {
				return err
			}
			text = string(b)
		}
		if n := strings.Count(text, before); n != 1 {
			return fmt.Errorf("%s: a hunk fits %d times:\n%s", name, n, before)
		}
		sources[name] = strings.Replace(text, before, after, 1)
		before, after = "", ""
		return nil
	}
	for line := range strings.Lines(patch) {
		switch {
		case strings.HasPrefix(line, "--- "), strings.HasPrefix(line, "@@"):
			if err := flush(); err != nil {
				return err
			}
		case strings.HasPrefix(line, "+++ b/"):
			name = strings.TrimSpace(strings.TrimPrefix(line, "+++ b/"))
		case name == "": // what the patch is about
		case line[0] == '-':
			before += line[1:]
		case line[0] == '+':
			after += line[1:]
		case line[0] == ' ':
			before += line[1:]
			after += line[1:]
		default:
			return fmt.Errorf("not a line of a diff: %q", line)
		}
	}
	return flush()
}
