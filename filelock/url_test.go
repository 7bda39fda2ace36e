package filelock_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fencelock/locker"
	_ "github.com/fencelock/locker/filelock"
)

func TestURL(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the directory backend needs Linux")
	}
	dir := t.TempDir()
	a, err := locker.Open(t.Context(), "file://"+dir+"?ns=jobs&token_base=40", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Close() }()
	b, err := locker.Open(t.Context(), "file://"+dir+"?ns=jobs&token_base=40", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	lease, err := a.TryAcquire(t.Context(), "k")
	if err != nil || lease.Token() != 41 {
		t.Fatalf("got token %v, %v; want 41", lease.Token(), err)
	}
	if _, err := b.TryAcquire(t.Context(), "k"); !errors.Is(err, locker.ErrHeld) {
		t.Errorf("through another client: got %v, want ErrHeld", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "jobs")); err != nil {
		t.Error(err)
	}
	if _, err := locker.Open(t.Context(), "file://"+dir+"?ns=jobs&token_base=40&sync=off", nil); !errors.Is(err, locker.ErrLayout) {
		t.Errorf("sync=off in a namespace made with sync: got %v, want ErrLayout", err)
	}
}

func TestURLRefuses(t *testing.T) {
	for raw, want := range map[string]string{
		"file://relative/path":                     "stands where a host would",
		"file:relative":                            "two slashes",
		"file://":                                  "want file:///absolute/path",
		"file:///tmp?sync=maybe":                   "want on or off",
		"file:///tmp?snyc=off":                     `did you mean "sync"`,
		"file://" + t.TempDir() + "?require=queue": "does not offer queue",
	} {
		_, err := locker.Open(t.Context(), raw, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			if strings.Contains(want, "queue") && runtime.GOOS != "linux" {
				continue
			}
			t.Errorf("%s: got %v, want an error with %q", raw, err, want)
		}
	}
}
