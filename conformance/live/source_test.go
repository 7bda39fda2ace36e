package live

import (
	"errors"
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

// What was left out is told once for each reason, in an order that does not change.
func TestLeftOut(t *testing.T) {
	var l leftOut
	if got := l.text(); got != "" {
		t.Errorf("nothing was left out: got %q", got)
	}
	for _, server := range []string{"s3", "redis", "etcd", "redis"} {
		l.add(server, errors.New("start Docker"))
	}
	l.add("minio", errors.New("build it"))
	const want = "live: left out what needs minio: build it\n" +
		"live: left out what needs etcd, redis, s3: start Docker\n"
	for range 10 {
		if got := l.text(); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
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
