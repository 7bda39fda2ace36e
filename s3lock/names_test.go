package s3lock

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/fencelock/locker/driver"
)

func TestEscapeIsInjective(t *testing.T) {
	t.Parallel()
	keys := []string{"a", "a/b", "ab", "A", ".", "..", "a.b", "!2f", "a!2fb", "%41", "~", "schlüssel", "with space", "-", "!-",
		strings.Repeat("x", 512), strings.Repeat("x", 511) + "y", strings.Repeat("ü", 256), strings.Repeat("x", 200), strings.Repeat("x", 201)}
	alphabet := []byte("aA/.!2f-ü \x01~")
	for range 2000 {
		k := make([]byte, 1+rand.IntN(12))
		for i := range k {
			k[i] = alphabet[rand.IntN(len(alphabet))]
		}
		keys = append(keys, string(k))
	}
	by := map[string]string{}
	for _, k := range keys {
		n := escape(k)
		if other, ok := by[n]; ok && other != k {
			t.Fatalf("%q and %q are both %q", k, other, n)
		}
		by[n] = k
		if len(n) > maxName || strings.ContainsAny(n, "/~%\\ ") || n[0] == '.' {
			t.Errorf("%q is called %q", k, n)
		}
		if got, ok := unescape(n); !hashed(n) && (!ok || got != k) {
			t.Errorf("unescape(%q): got %q, %v; want %q", n, got, ok, k)
		}
		for i := range len(k) + 1 {
			if p := namePrefix(k[:i]); !strings.HasPrefix(n, p) {
				t.Errorf("the name of %q, %q, does not begin with %q, the prefix's", k, n, p)
			}
		}
	}
}

func TestNewestComesFirst(t *testing.T) {
	t.Parallel()
	last := ""
	for _, n := range []uint64{maxNumber - 1, 1_000_000, 100, 99, 10, 9, 2, 1} {
		name := recordName(n)
		if name <= last {
			t.Errorf("%d: %q comes before %q", n, name, last)
		}
		last = name
		if got, ok := number(name); !ok || got != n {
			t.Errorf("number(%q): got %d, %v; want %d", name, got, ok, n)
		}
	}
	for _, name := range []string{"", ".json", "123.json", "99999999990.json", "9999999999.json", "+999999998.json", "9999999998", "9999999998.json/x", layoutName} {
		if n, ok := number(name); ok {
			t.Errorf("%q: got %d, want none", name, n)
		}
	}
}

// A namespace within another would mix its objects with those of one of the other's keys.
func TestNamespaceWithinAnother(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	outer := s.driver(&Options{Namespace: "app"})
	g := acquire(t, outer, "locker")
	for _, prefix := range []string{"app", "app/locker"} {
		if _, err := NewDriver(within(t), s.client(), testBucket, &Options{Prefix: prefix}); !errors.Is(err, driver.ErrLayout) {
			t.Errorf("prefix %q: got %v, want ErrLayout", prefix, err)
		}
	}
	if _, err := NewDriver(within(t), s.client(), testBucket, &Options{Namespace: "apple"}); err != nil {
		t.Errorf("beside it: %v", err)
	}
	if _, err := s.driver(&Options{Namespace: "app"}).TryAcquire(within(t), request("locker")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("its key: got %v, want ErrHeld", err)
	}
	release(t, outer, g)
}
