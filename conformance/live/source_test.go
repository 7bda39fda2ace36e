package live

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMissing(t *testing.T) {
	for _, c := range []struct {
		require string
		failed  bool
	}{{"", false}, {"etcd,s3", false}, {"redis", true}, {"etcd, redis ,s3", true}} {
		t.Setenv(requireVariable, c.require)
		s := &spy{TB: t}
		s.do(func(tb testing.TB) { missing(tb, "redis", true, errors.New("the reason")) })
		text := s.skip + strings.Join(s.failures(), "")
		if got := len(s.failures()) > 0; got != c.failed || (s.skip == "") != c.failed {
			t.Errorf("%s=%q: failed %v, skipped %q, want failed %v", requireVariable, c.require, got, s.skip, c.failed)
		}
		for _, want := range []string{"redis", "the reason", "LOCKER_TEST_REDIS_URL"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s=%q: got %q, want it to have %q", requireVariable, c.require, text, want)
			}
		}
	}
	left.mu.Lock()
	defer left.mu.Unlock()
	if got := left.servers["the reason"]; !slices.Equal(got, []string{"redis"}) {
		t.Errorf("left out for the reason: got %q, want redis", got)
	}
	delete(left.servers, "the reason")
}

// A Docker that accepts connections and never answers is as good as none.
func TestSilentDocker(t *testing.T) {
	e, err := inTime(50*time.Millisecond, func() (*engine, error) { select {} })
	if e != nil || err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("got %v, want an error", err)
	}
}

// A typing error must not turn a missing server into a skip.
func TestUnknownServersAreRefused(t *testing.T) {
	for list, want := range map[string][]string{"": nil, "redis, etcd,s3,": nil, "redsi,s3,all": {"redsi", "all"}, "Redis": {"Redis"}} {
		if got := unknown(list); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", list, got, want)
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

// A test that waits for an image keeps time for itself.
func TestPatience(t *testing.T) {
	deadline, ok := t.Deadline()
	for _, tb := range []testing.TB{t, keeper{t}} {
		got := patience(tb)
		if want := time.Until(deadline); ok && (got > want*7/10 || got < want/2) {
			t.Errorf("patience of a %T: got %v of %v", tb, got, want)
		}
	}
}
