package live

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"
)

// A Docker that accepts connections and never answers is as good as none.
func TestSilentDocker(t *testing.T) {
	e, err := inTime(50*time.Millisecond, func() (*engine, error) { select {} })
	if e != nil || err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("got %v, want an error", err)
	}
}

// Who names a Docker means that one: where it is dead, no other takes its place, and the error says which it is.
func TestDeadDockerHostIsNamed(t *testing.T) {
	const dead = "tcp://127.0.0.1:1"
	t.Setenv(client.EnvOverrideHost, dead)
	_, err := newEngine()
	if err == nil {
		t.Fatal("another Docker is used")
	}
	for _, want := range []string{"DOCKER_HOST=" + dead, "does not answer", "unset it"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error: got %v, want it to have %q", err, want)
		}
	}
}

func TestNoDocker(t *testing.T) {
	const denied = `check host "unix:///var/run/docker.sock": docker info: permission denied while trying to connect to the docker API at unix:///var/run/docker.sock`
	for _, c := range []struct {
		err         string
		has, hasNot string
	}{
		{"first\nsecond", "start Docker, it does not answer: first", "second"},
		{denied, "this user may not use Docker (be root, or in the group docker): " + denied, "start"},
		{"rootless Docker not found\n" + denied + "\nlast", denied, "rootless"},
	} {
		got := noDocker(errors.New(c.err)).Error()
		if !strings.Contains(got, c.has) || strings.Contains(got, c.hasNot) {
			t.Errorf("%q: got %q, want it to have %q and not %q", c.err, got, c.has, c.hasNot)
		}
	}
}

func TestPublish(t *testing.T) {
	loopback, all := netip.MustParseAddr("127.0.0.1"), netip.IPv4Unspecified()
	for _, c := range []struct {
		daemon, override, host string
		bind                   netip.Addr
	}{
		{"unix:///var/run/docker.sock", "", "127.0.0.1", loopback},
		{"npipe:////./pipe/docker_engine", "", "127.0.0.1", loopback},
		{"tcp://10.1.2.3:2376", "", "10.1.2.3", all},
		{"tcp://localhost:2375", "", "127.0.0.1", loopback},
		{"unix:///var/run/docker.sock", "host.docker.internal", "host.docker.internal", all},
		{"tcp://10.1.2.3:2376", "127.0.0.1", "127.0.0.1", loopback},
	} {
		host, bind := publish(c.daemon, c.override)
		if host != c.host || bind != c.bind {
			t.Errorf("publish(%q, %q): got %s, %v, want %s, %v", c.daemon, c.override, host, bind, c.host, c.bind)
		}
	}
}
