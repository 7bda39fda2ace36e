package locker_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestDependencies guards what users link into their programs: nothing outside the
// standard library and this module, and never package testing, whose flags would end up
// in their binaries.
func TestDependencies(t *testing.T) {
	const module = "github.com/fencelock/locker"
	pkgs := []string{".", "./driver", "./memlock", "./epoch", "./filelock", "./fence", "./faultlock"}
	for _, pkg := range pkgs {
		out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}{{if eq .ImportPath \"testing\"}}testing{{end}}", pkg).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", pkg, err, out)
		}
		for _, dep := range strings.Fields(string(out)) {
			if dep != module && !strings.HasPrefix(dep, module+"/") || strings.HasPrefix(dep, module+"/conformance") {
				t.Errorf("%s depends on %s", pkg, dep)
			}
		}
	}
}
