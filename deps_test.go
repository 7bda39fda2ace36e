package locker_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/fencelock/locker"

// TestDependencies guards what users link into their programs: nothing outside the
// standard library and this module, and never package testing, whose flags would end up
// in their binaries.
func TestDependencies(t *testing.T) {
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

// clients are the backends with a module of their own, and what belongs to the one client
// of each.
var clients = map[string]string{
	"redislock": "github.com/redis/go-redis/",
	"s3lock":    "github.com/aws/",
}

// TestBackendsRequireTheirClientAlone guards the modules of the backends: the root and the
// one client, nothing for tests, and nothing that imports package testing.
func TestBackendsRequireTheirClientAlone(t *testing.T) {
	for dir, client := range clients {
		cmd := exec.Command("go", "mod", "edit", "-json")
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", dir, err)
		}
		var mod struct {
			Require []struct {
				Path     string
				Indirect bool
			}
		}
		if err := json.Unmarshal(out, &mod); err != nil {
			t.Fatal(err)
		}
		for _, r := range mod.Require {
			if !r.Indirect && r.Path != module && !strings.HasPrefix(r.Path, client) {
				t.Errorf("%s requires %s", dir, r.Path)
			}
		}
		cmd = exec.Command("go", "list", "-deps", ".")
		cmd.Dir = dir
		if out, err = cmd.Output(); err != nil {
			t.Fatalf("%s: %v", dir, err)
		}
		for _, dep := range strings.Fields(string(out)) {
			if dep == "testing" || strings.HasPrefix(dep, module+"/conformance") {
				t.Errorf("%s depends on %s", dir, dep)
			}
		}
	}
}
