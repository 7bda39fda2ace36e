package locker_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/locker/internal/mutate"
)

// wallStep is added to package time: at each reading the wall clock has been stepped to
// somewhere else.
const wallStep = `package time

import "sync/atomic"

var wallReadings atomic.Uint32

func wallStep() int64 {
	const hour, year = 3600, 365 * 24 * 3600
	return []int64{0, hour, -hour, year, -year}[wallReadings.Add(1)%5]
}
`

// TestEX14WallClockSteps runs the suite on memory and on a directory, and the directory's own
// tests, in real time and in a world in which the wall clock is stepped by an hour or a year,
// either way, at every reading: nothing may change. A broken Instant shows that they would
// notice. (In a bubble of testing/synctest there is no clock but one.)
func TestEX14WallClockSteps(t *testing.T) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	src := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	text, err := os.ReadFile(src)
	if err != nil {
		t.Skipf("the source of package time is not here: %v", err)
	}
	reading := regexp.MustCompile(`(?m)^func Now\(\) Time \{\n\tsec, nsec, mono := \w+\(\)\n`)
	if n := len(reading.FindAll(text, -1)); n != 1 {
		t.Fatalf("time.Now reads the clock in another way than this test knows: %s", src)
	}
	dir := t.TempDir()
	stepped, added := filepath.Join(dir, "time.go"), filepath.Join(dir, "wallstep.go")
	for path, content := range map[string][]byte{
		stepped: reading.ReplaceAllFunc(text, func(b []byte) []byte {
			return append(bytes.Clone(b), "\tif mono != 0 {\n\t\tsec += wallStep()\n\t}\n"...)
		}),
		added: []byte(wallStep),
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	extra := map[string]string{src: stepped, filepath.Join(filepath.Dir(src), "wallstep.go"): added}

	run := func(extra map[string]string, args ...string) (string, error) {
		overlay, err := mutate.Overlay(".", t.TempDir(), extra)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		args = append([]string{"test", "-overlay", overlay, "-vet=off", "-count=1"}, args...)
		out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput()
		return string(out), err
	}
	for pkg, tests := range map[string]string{
		"./filelock":    "^(TestRenewAndLapse|TestKilledHolder|TestStoppedHolder|TestFS4|TestManyProcesses)",
		"./conformance": "^(TestMemlock|TestFilelock)$/^(contract|expiry|renewal)$",
	} {
		out, err := run(extra, "-run", tests, pkg)
		if err != nil || strings.Contains(out, "no tests to run") {
			t.Errorf("%s: %v\n%s", pkg, err, out)
		}
	}

	instant, err := filepath.Abs("driver/instant.go")
	if err != nil {
		t.Fatal(err)
	}
	text, err = os.ReadFile(instant)
	if err != nil {
		t.Fatal(err)
	}
	naive := bytes.Replace(text, []byte("at: time.Now()}"), []byte("at: time.Now().Round(0)}"), 1)
	if bytes.Equal(naive, text) {
		t.Fatal("an Instant is made in another way than this test knows")
	}
	extra[instant] = filepath.Join(dir, "instant.go")
	if err := os.WriteFile(extra[instant], naive, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := run(extra, "-run", "^TestMemlock$/^contract$", "./conformance"); err == nil {
		t.Errorf("a core that counts on the wall clock passes:\n%s", out)
	}
}
