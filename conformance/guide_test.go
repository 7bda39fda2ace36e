package conformance_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// mylock is what the guide lets its reader write, over memory.
const mylock = `package mylock

import (
	"context"
	"time"

	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/memlock"
)

type Driver struct{ *memlock.Driver }

var server = memlock.NewServer()

func NewDriver(_ context.Context, url string) (*Driver, error) { return &Driver{server.Driver()}, nil }

`

// The guide's code, taken literally, is a backend in a module of its own, whose only
// requirement is the root module.
func TestGuide(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile(filepath.Join("..", "docs", "writing-a-backend.md"))
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	code := map[string]string{"go.mod": "module example.com/mylock\n\ngo 1.25.0\n\nrequire github.com/fencelock/locker v0.0.0\n\nreplace github.com/fencelock/locker => " + root + "\n"}
	for _, m := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(guide), -1) {
		switch {
		case strings.HasPrefix(m[1], "package mylock_test"):
			code["mylock_test.go"] = m[1]
		case strings.Contains(m[1], ") Info() driver.Info"):
			code["mylock.go"] = mylock + m[1]
		default:
			t.Errorf("what is this test to do with\n%s", m[1])
		}
	}
	dir := t.TempDir()
	for name, text := range code {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-run", "^TestConformance$/^contract$/^(fresh-key|exclusion)$", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GOPROXY=off", "MYLOCK_URL=x")
	if out, err := cmd.CombinedOutput(); err != nil || len(code) != 3 {
		t.Errorf("%d files of the guide: %v\n%s", len(code), err, out)
	}
}
