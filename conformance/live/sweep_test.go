package live

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
)

// cheap makes a victim with a network, a volume and a container that does not run, whose claims are in this folder.
func cheap(t *testing.T, cache, image, end string) *victim {
	t.Helper()
	v := newVictim(t, end)
	v.cmd.Env = append(v.cmd.Env, victimImage+"="+image, "XDG_CACHE_HOME="+cache)
	return v
}

// thingsOfCheap is what a cheap victim has, beside a volume without a name.
const thingsOfCheap = 1 + 1 + 1

// reaper is the process that a victim has beside it.
func (v *victim) reaper(t *testing.T) *os.Process {
	t.Helper()
	pid, err := strconv.Atoi(v.says(t, "reaper "))
	if err != nil {
		t.Fatal(err)
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// What a run has left that died together with its reaper goes with the next run, and not with one that stands beside it.
func TestNextRunSweeps(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		return // nothing is ever swept there
	}
	e, err := docker()
	if err != nil {
		missing(t, "redis", false, err)
	}
	image, cache := volumeImage(t, e), t.TempDir()
	alive, dead := cheap(t, cache, image, "hang").start(t), cheap(t, cache, image, "hang").start(t)
	var volumes []string
	for _, v := range []*victim{alive, dead} {
		t.Cleanup(func() { _, _ = removeAll(context.Background(), e.docker, v.run) })
		reaper := v.reaper(t)
		volumes = append(volumes, volumesOf(t, e, v.says(t, "container "))...)
		if err := reaper.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := len(volumes), 2*2; got != want {
		t.Fatalf("two runs have %d volumes, want %d", got, want)
	}
	kill(t, dead)
	dead.ends(t)
	if got, want := leftBy(t.Context(), t, dead.run), thingsOfCheap; got != want {
		t.Fatalf("without a reaper %d things are left, want %d", got, want)
	}

	next := func() {
		t.Helper()
		v := cheap(t, cache, image, "fail").start(t)
		v.ends(t)
		if got := leftBy(t.Context(), t, v.run); got != 0 {
			t.Errorf("%d things are left of the run that sweeps", got)
		}
	}
	next()
	if got := leftBy(t.Context(), t, dead.run); got != 0 {
		t.Errorf("after the next run %d things are left of the dead one", got)
	}
	if got, want := leftBy(t.Context(), t, alive.run), thingsOfCheap; got != want {
		t.Errorf("after the next run the live one has %d things, want %d", got, want)
	}
	kill(t, alive)
	alive.ends(t)
	next()
	if got := leftBy(t.Context(), t, alive.run); got != 0 {
		t.Errorf("after its end and another run %d things are left", got)
	}
	wantNoVolume(t, e, volumes)
	wantFiles(t, cache)
}

// A run whose reaper has been killed does that one's work at its end.
func TestRunWithoutReaper(t *testing.T) {
	t.Parallel()
	e, err := docker()
	if err != nil {
		missing(t, "redis", false, err)
	}
	cache := filepath.Join(t.TempDir(), "cache")
	v := cheap(t, cache, volumeImage(t, e), "bereft").start(t)
	t.Cleanup(func() { _, _ = removeAll(context.Background(), e.docker, v.run) })
	volumes := volumesOf(t, e, v.says(t, "container "))
	v.ends(t)
	if got := leftBy(t.Context(), t, v.run); got != 0 {
		t.Errorf("%d things are left", got)
	}
	wantNoVolume(t, e, volumes)
}
