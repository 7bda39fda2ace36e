package live

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moby/moby/client"
)

func TestImageNames(t *testing.T) {
	t.Parallel()
	script, err := builder()
	if err != nil {
		t.Skip(err)
	}
	names := func(servers ...string) []string {
		t.Helper()
		out, err := exec.Command(script, append([]string{"-n"}, servers...)...).Output()
		if err != nil {
			t.Skipf("the script does not run here: %v", err)
		}
		return strings.Fields(string(out))
	}
	all := names("redis", "valkey", "postgres", "pgbouncer", "etcd", "s3", "minio")
	if len(all) != 7 {
		t.Fatalf("seven servers: got %d names, %q", len(all), all)
	}
	for i, server := range []string{"debian", "debian", "debian", "debian", "etcd", "versitygw", "minio"} {
		if !strings.HasPrefix(all[i], "locker-live/"+server+":") {
			t.Errorf("image %d: got %s, want one of %s", i, all[i], server)
		}
	}
	if again := names("etcd"); !slices.Equal(again, all[4:5]) {
		t.Errorf("the same recipe: got %s, then %s", all[4], again)
	}
	var exit *exec.ExitError
	if err := exec.Command(script, "-n", "oracle").Run(); !errors.As(err, &exit) || exit.ExitCode() != 2 {
		t.Errorf("an unknown server: got %v, want exit code 2", err)
	}
}

// What Docker has is used without asking a registry, the official image first.
func TestImageOrder(t *testing.T) {
	t.Parallel()
	e, err := docker()
	if err != nil {
		missing(t, "etcd", false, err)
	}
	local, err := e.find(image{server: "etcd"}, patience(t))
	if err != nil {
		missing(t, "etcd", false, err)
	}
	official := image{server: "etcd", official: "127.0.0.1:1/locker-live-test:" + strings.ToLower(run)}
	begun := time.Now()
	if got, err := e.get(official, 0); err != nil || got != local {
		t.Errorf("without the official image: got %s, %v, want %s", got, err, local)
	}
	if took := time.Since(begun); took > registryAnswers {
		t.Errorf("the local image was found after %v", took)
	}

	ctx := context.Background()
	if _, err := e.docker.ImageTag(ctx, client.ImageTagOptions{Source: local, Target: official.official}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = e.docker.ImageRemove(ctx, official.official, client.ImageRemoveOptions{}) })
	if got, err := e.get(official, 0); err != nil || got != official.official {
		t.Errorf("with the official image: got %s, %v, want %s", got, err, official.official)
	}
}

// Where there is neither, the error says why, soon.
func TestImageMissing(t *testing.T) {
	t.Parallel()
	e, err := docker()
	if err != nil {
		missing(t, "etcd", false, err)
	}
	_, err = e.get(image{server: "oracle", official: "127.0.0.1:1/oracle:1"}, time.Minute)
	if err == nil {
		t.Fatal("there is an image of what is not there")
	}
	for _, want := range []string{"cannot pull 127.0.0.1:1/oracle:1", "images/build -n oracle", "no image for oracle; there are: redis"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error: got %v, want it to have %q", err, want)
		}
	}
}

// mute is a Docker whose registry accepts connections and never answers, or one that never comes to an end.
type mute struct {
	client.APIClient
	knows bool // that there is such an image
}

func (m mute) DistributionInspect(ctx context.Context, _ string, _ client.DistributionInspectOptions) (client.DistributionInspectResult, error) {
	if m.knows {
		return client.DistributionInspectResult{}, nil
	}
	<-ctx.Done()
	return client.DistributionInspectResult{}, ctx.Err()
}

func (m mute) ImagePull(ctx context.Context, _ string, _ client.ImagePullOptions) (client.ImagePullResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A registry that is out of reach in silence costs seconds, and a pull without end minutes.
func TestPullIsBounded(t *testing.T) {
	for knows, want := range map[bool]time.Duration{false: registryAnswers, true: pulled} {
		synctest.Test(t, func(t *testing.T) {
			e := &engine{docker: mute{knows: knows}}
			begun := time.Now()
			err := e.pull(t.Context(), "registry.invalid/redis:8")
			if took := time.Since(begun); took != want {
				t.Errorf("known %v: it takes %v, want %v", knows, took, want)
			}
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "cannot pull registry.invalid/redis:8") {
				t.Errorf("known %v: got %v", knows, err)
			}
		})
	}
	if registryAnswers > 10*time.Second || pulled > 5*time.Minute {
		t.Errorf("a registry may take %v to answer and %v to send: more than a test binary has", registryAnswers, pulled)
	}
}

// script writes a script that takes the place of images/build.
func script(t *testing.T, lines string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "build")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+lines), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// A test waits for a build as long as it has time for, says that it goes on, and the build does.
func TestBuildOutlivesPatience(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		return // it has no such scripts
	}
	slow := script(t, `until [ -e "$0.go" ]; do sleep 0.05; done; : >"$0.made"`)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := runBuild(ctx, slow, "etcd", 50*time.Millisecond)
	if err == nil || ctx.Err() != nil {
		t.Fatalf("a build that does not end: got %v, %v, want an error soon", err, ctx.Err())
	}
	for _, want := range []string{"still being built after 50ms", "run this again later", slow + " etcd"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error: got %v, want it to have %q", err, want)
		}
	}
	if err := os.WriteFile(slow+".go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(context.Context) bool {
		_, err := os.Stat(slow + ".made")
		return err == nil
	})
}

func TestBuildEnds(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		return
	}
	if err := runBuild(t.Context(), script(t, `[ "$1" = etcd ]`), "etcd", time.Minute); err != nil {
		t.Errorf("a build that works: %v", err)
	}
	err := runBuild(t.Context(), script(t, "echo it is said here\necho and here >&2\nexit 3"), "etcd", time.Minute)
	if err == nil {
		t.Fatal("a build that fails counts as one that works")
	}
	for _, want := range []string{"images/build etcd", "exit status 3", "it is said here\nand here"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error: got %v, want it to have %q", err, want)
		}
	}
}
