package live

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
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
	for _, want := range []string{"cannot pull 127.0.0.1:1/oracle:1", "images/build -n oracle"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error: got %v, want it to have %q", err, want)
		}
	}
}
