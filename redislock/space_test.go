package redislock

import (
	"fmt"
	"strings"
	"testing"
)

func TestSpaceNames(t *testing.T) {
	t.Parallel()
	s, err := newSpace("app")
	if err != nil {
		t.Fatal(err)
	}
	seen, used := map[string]string{}, map[*bucket]bool{}
	for _, key := range []string{"k", "a/b", "a", "{x}", "}:lock:k", "lock:k", "ü", " ", strings.Repeat("x", 512), "*", `\`, "[a]"} {
		lock := s.lock(key)
		if other, dup := seen[lock]; dup {
			t.Errorf("lock of %q and %q: got %q for both", key, other, lock)
		}
		seen[lock] = key
		if got, ok := s.key(lock); !ok || got != key {
			t.Errorf("key(%q): got %q and %v, want %q", lock, got, ok, key)
		}
		for _, k := range s.keys(key) {
			if name, _ := k.(string); !strings.HasPrefix(name, s.bucket(key).tag) {
				t.Errorf("a name of %q: got %q, want it to begin with %q", key, name, s.bucket(key).tag)
			}
		}
	}
	for i := range 10_000 {
		used[s.bucket(fmt.Sprint(i))] = true
	}
	if len(used) != buckets {
		t.Errorf("buckets of 10 000 keys: got %d, want all %d", len(used), buckets)
	}
	// It is a part of the layout: what this says must never change.
	if got, want := s.lock("nightly"), "{app:0a}:lock:nightly"; got != want {
		t.Errorf("lock: got %q, want %q", got, want)
	}
	for _, foreign := range []string{"{app:00}:token", "{app:00}:lock:nightly", "{apple:0a}:lock:nightly", "nightly", "{app:0a}:queue:nightly"} {
		if key, ok := s.key(foreign); ok {
			t.Errorf("key(%q): got %q, want it to be something else's", foreign, key)
		}
	}
}

func TestNamespaces(t *testing.T) {
	t.Parallel()
	for ns, good := range map[string]bool{
		"locker": true, "app:prod": true, "ü": true, "a*b?[c]": true,
		"": false, "a b": false, "a{b": false, "a}b": false, "a\nb": false, strings.Repeat("x", 129): false,
	} {
		if _, err := newSpace(ns); (err == nil) != good {
			t.Errorf("namespace %q: got %v, want it accepted: %v", ns, err, good)
		}
	}
}

func TestGlobbed(t *testing.T) {
	t.Parallel()
	if got, want := globbed(`a*b?[c]\`), `a\*b\?\[c\]\\`; got != want {
		t.Errorf("globbed: got %q, want %q", got, want)
	}
}
