package live

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A sweep removes what dead runs have left in its own Docker, and touches nothing of live runs, of other Dockers, and of runs
// that have no claim here.
func TestSweepTakesOnlyTheDead(t *testing.T) {
	if runtime.GOOS == "windows" {
		return // nothing is ever swept there
	}
	dir := filepath.Join(t.TempDir(), "locker-live", "host")
	claim := func(run, daemon string) *os.File {
		t.Helper()
		f, err := newClaim(dir, run, daemon)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	defer claim("alive", "here").Close()
	for run, daemon := range map[string]string{"dead": "here", "elsewhere": "there", "idle": ""} {
		claim(run, daemon).Close() // as the kernel does when a process ends
	}
	synctest.Test(t, func(t *testing.T) {
		docker := &fakeDocker{containers: map[string]string{"a": "alive", "d": "dead", "e": "elsewhere", "u": "unknown"}}
		if err := sweep(docker, dir, "here"); err != nil {
			t.Fatal(err)
		}
		if got, want := docker.ids(), "a e u"; got != want {
			t.Errorf("after the sweep there are the containers %s, want %s", got, want)
		}
	})
	wantFiles(t, dir, "alive", "elsewhere")
}

// Where there are no locks a run leaves no claim, and its sweep says nothing of those that others have left.
func TestNoLocks(t *testing.T) {
	cache := t.TempDir()
	dir := filepath.Join(cache, "locker-live", "host")
	claim, err := newClaim(dir, "run", "here")
	if err == nil {
		claim.Close()
		return // there are
	}
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a claim: got %v, want %v", err, errors.ErrUnsupported)
	}
	wantFiles(t, cache)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "other"), []byte("here"), 0o600); err != nil {
		t.Fatal(err)
	}
	docker := &fakeDocker{containers: map[string]string{"o": "other"}}
	if err := sweep(docker, dir, "here"); err != nil || docker.ids() != "o" {
		t.Errorf("a sweep: got %v and the containers %q, want nothing and %q", err, docker.ids(), "o")
	}
}

// A run whose claim another process is just looking at gets one all the same, and its end leaves no folder.
func TestClaimComesAndGoes(t *testing.T) {
	if runtime.GOOS == "windows" {
		return
	}
	cache := t.TempDir()
	dir := filepath.Join(cache, "locker-live", "host")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "run")
	sweeper, err := os.Create(path) // who opened the file before its lock, and locks it
	if err != nil {
		t.Fatal(err)
	}
	defer sweeper.Close()
	if err := lockClaim(sweeper, path); err != nil {
		t.Fatal(err)
	}
	if _, err := newClaim(dir, "run", "here"); !errors.Is(err, errClaimed) {
		t.Errorf("a claim that somebody has: got %v, want %v", err, errClaimed)
	}
	dropClaim(dir, "run")
	mine, err := newClaim(dir, "run", "here")
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	if err := lockClaim(sweeper, path); !errors.Is(err, errClaimed) {
		t.Errorf("the lock of a file that was removed: got %v, want %v", err, errClaimed)
	}
	dropClaim(dir, "run")
	wantFiles(t, cache)
}

// Runs that begin and end side by side, and sweep meanwhile, all get their claims.
func TestClaimsSideBySide(t *testing.T) {
	if runtime.GOOS == "windows" {
		return
	}
	const runs, rounds, sweepers = 8, 200, 2
	cache := t.TempDir()
	dir := filepath.Join(cache, "locker-live", "host")
	var claiming, sweeping sync.WaitGroup
	for i := range runs {
		claiming.Go(func() {
			for j := range rounds {
				run := fmt.Sprintf("run-%d-%d", i, j)
				claim, err := newClaim(dir, run, "here")
				if err != nil {
					t.Error(err)
					return
				}
				dropClaim(dir, run)
				claim.Close()
			}
		})
	}
	done := make(chan struct{})
	for range sweepers {
		sweeping.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := sweep(&fakeDocker{}, dir, "there"); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	claiming.Wait()
	close(done)
	sweeping.Wait()
	wantFiles(t, cache)
}

// A reaper goes on while Docker is away, and says so if that does not end.
func TestReapWaitsForDocker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		const restart = 20 * time.Second
		docker := &fakeDocker{
			containers: map[string]string{"a": "run"},
			away:       func() bool { return time.Since(begun) < restart },
		}
		ctx, cancel := context.WithTimeout(t.Context(), reaperGivesUp)
		defer cancel()
		if err := reap(ctx, docker, "run", 0); err != nil || docker.ids() != "" {
			t.Errorf("after Docker has come back: got %v, left %q", err, docker.ids())
		}
		docker.away = func() bool { return true }
		ctx, cancel = context.WithTimeout(t.Context(), reaperGivesUp)
		defer cancel()
		if err := reap(ctx, docker, "run", 0); !errors.Is(err, errAway) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Docker does not come back: got %v, want that", err)
		}
	})
}

func wantFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if len(got) != len(want) {
		t.Fatalf("files: got %q, want %q", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("file %d: got %s, want %s", i, got[i], want[i])
		}
	}
}
