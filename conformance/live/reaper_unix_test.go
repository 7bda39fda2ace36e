//go:build unix

package live

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What ends everything that belongs to a terminal does not end the reaper.
func TestReaperOutlivesItsTerminal(t *testing.T) {
	t.Parallel()
	e, err := docker()
	if err != nil {
		missing(t, "redis", false, err)
	}
	image := volumeImage(t, e)
	for name, signal := range map[string]syscall.Signal{"interrupted": syscall.SIGINT, "hung up": syscall.SIGHUP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := cheap(t, t.TempDir(), image, "hang")
			v.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as a shell starts a command
			v.start(t)
			t.Cleanup(func() { _, _ = removeAll(context.Background(), e.docker, v.run) })
			volumes := volumesOf(t, e, v.says(t, "container "))
			if err := syscall.Kill(-v.cmd.Process.Pid, signal); err != nil {
				t.Fatal(err)
			}
			v.ends(t)
			eventually(t, func(ctx context.Context) bool { return leftBy(ctx, t, v.run) == 0 })
			wantNoVolume(t, e, volumes)
		})
	}
}

// What is no file is no claim: a sweep says so, and does not wait for who writes into a pipe.
func TestSweepReadsOnlyFiles(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	swept := make(chan error, 1)
	go func() { swept <- sweep(&fakeDocker{}, dir, "here") }()
	select {
	case err := <-swept:
		if err == nil || !strings.Contains(err.Error(), "pipe") {
			t.Errorf("got %v, want an error that names the pipe", err)
		}
	case <-time.After(time.Minute):
		t.Error("the sweep waits for a pipe")
	}
}

// A reaper that has something to say when nobody listens any more does its work all the same.
func TestReaperOutlivesItsListener(t *testing.T) {
	t.Parallel()
	e, err := docker()
	if err != nil {
		missing(t, "redis", false, err)
	}
	cache := t.TempDir()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "locker-live", host)
	if err := os.MkdirAll(filepath.Join(dir, "no-claim"), 0o700); err != nil { // what the sweep complains of, behind
		t.Fatal(err)
	}
	dead, err := newClaim(dir, "dead", e.docker.DaemonHost()) // what keeps it for reaperSettles
	if err != nil {
		t.Fatal(err)
	}
	dead.Close()
	v := cheap(t, cache, volumeImage(t, e), "hang").start(t)
	t.Cleanup(func() { _, _ = removeAll(context.Background(), e.docker, v.run) })
	v.says(t, "container ")
	kill(t, v)
	v.ends(t)
	eventually(t, func(ctx context.Context) bool { return leftBy(ctx, t, v.run) == 0 })
}
