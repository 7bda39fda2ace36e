package conformance_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fencelock/locker/conformance"
)

var update = flag.Bool("update", false, "run every case against every mutant and write the matrix")

var matrixFile = filepath.Join("testdata", "matrix.txt")

// spared are the cases that catch no mutant in virtual time, and why.
func spared() map[string]string {
	why := map[string]string{}
	for _, m := range processMutants {
		why[m.killer] = "it needs real processes: TestProcessMutants breaks them"
	}
	return why
}

// The matrix is written with -update: it takes some minutes, and a case that depends on
// how goroutines interleave may catch a mutant in one run and not in the next. Here it is
// checked that it is about the cases and the mutants that there are.
func TestMatrix(t *testing.T) {
	if *update {
		writeMatrix(t)
	}
	b, err := os.ReadFile(matrixFile)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	has := func(what, name string) []string {
		m := regexp.MustCompile(`(?m)^` + what + ` ` + regexp.QuoteMeta(name) + `: (.*)$`).FindStringSubmatch(text)
		if m == nil {
			t.Errorf("%s %s is not in %s: run this test with -update", what, name, matrixFile)
			return nil
		}
		return strings.Fields(m[1])
	}
	count := 0
	for _, m := range mutants {
		count++
		if killers := has("mutant", m.name); !slices.Contains(killers, m.killer) {
			t.Errorf("the matrix says that %s does not catch %s", m.killer, m.name)
		}
	}
	for _, m := range coreMutants(t) {
		count++
		has("mutant", "core/"+m.Name)
	}
	for patch, killer := range named(t, true) {
		if killers := has("mutant", "core/"+patch); !slices.Contains(killers, killer) {
			t.Errorf("the matrix says that %s does not catch core/%s", killer, patch)
		}
	}
	if n := strings.Count(text, "\nmutant "); n != count {
		t.Errorf("mutants in %s: got %d, want %d: run this test with -update", matrixFile, n, count)
	}
	for _, k := range conformance.Cases() {
		catches := has("case", k.ID)
		if len(catches) > 0 && catches[0] == "0" && spared()[k.ID] == "" {
			t.Errorf("%s catches no mutant, and no reason is given", k.ID)
		}
	}
}

func writeMatrix(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	killed := map[string][]string{} // by mutant: the cases that failed
	add := func(name string, results map[string]conformance.Result) {
		mu.Lock()
		defer mu.Unlock()
		killed[name] = []string{}
		for _, k := range conformance.Cases() {
			if r := results[k.ID]; r.Verdict == conformance.Failed {
				killed[name] = append(killed[name], k.ID)
			}
		}
	}
	t.Run("mutants", func(t *testing.T) {
		for _, m := range mutants {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				add(m.name, runMutant(t, exe, m.name, nil))
			})
		}
		for _, m := range coreMutants(t) {
			t.Run("core/"+m.Name, func(t *testing.T) {
				t.Parallel()
				add("core/"+m.Name, runCore(t, m, nil))
			})
		}
	})
	if t.Failed() {
		return
	}
	var b strings.Builder
	b.WriteString("Which case catches which mutant, in virtual time over memlock. Written by\n\n" +
		"\tgo test ./conformance -run 'TestMatrix$' -update\n\n" +
		"A mutant core/… is a patch in testdata/mutants or conformance/testdata/cores. One that\nno case catches cannot be seen from outside; the core's own tests catch it.\n\n")
	byCase := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(killed)) {
		fmt.Fprintf(&b, "mutant %s: %s\n", name, strings.Join(killed[name], " "))
		for _, id := range killed[name] {
			byCase[id]++
		}
	}
	b.WriteString("\n")
	for _, k := range conformance.Cases() {
		fmt.Fprintf(&b, "case %s: %d mutants", k.ID, byCase[k.ID])
		if byCase[k.ID] == 0 {
			fmt.Fprintf(&b, "; %s", spared()[k.ID])
		}
		b.WriteString("\n")
	}
	if err := os.MkdirAll("testdata", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(matrixFile, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
