//go:build linux

package filelock

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/locker/driver"
)

// CO1, CO2, CO3: a grant, a refusal, a greater token.
func TestGrantRefuseRelease(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	a, b := opened(t, dir), opened(t, dir)
	g := acquire(t, a, "nightly")
	if g.Token != 1 || g.Left != ttl || g.Sent.IsZero() {
		t.Errorf("got token %v, left %v, sent zero %v", g.Token, g.Left, g.Sent.IsZero())
	}
	held := refusal(t, b, "nightly")
	if held.Token != g.Token || held.Owner != "test" || held.Attempt != g.Attempt || held.ExpiresIn <= 0 || held.ExpiresIn > ttl+a.Info().Slack {
		t.Errorf("got %+v", held)
	}
	if err := a.Release(within(t), g); err != nil {
		t.Fatal(err)
	}
	if err := a.Release(within(t), g); !errors.Is(err, driver.ErrLost) {
		t.Errorf("a second release: got %v, want ErrLost", err)
	}
	if next := acquire(t, b, "nightly"); next.Token != 2 {
		t.Errorf("got token %v, want 2", next.Token)
	}
	if _, err := a.Renew(within(t), g); !errors.Is(err, driver.ErrLost) {
		t.Errorf("renew after release: got %v, want ErrLost", err)
	}
}

// CO4: tokens rise over many rounds and three drivers, and little stays behind.
func TestRoundsLeaveLittle(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	ds := []*Driver{opened(t, dir), opened(t, dir), opened(t, dir)}
	var last driver.Token
	for i := range 100 {
		d := ds[i%len(ds)]
		g := acquire(t, d, "k")
		if g.Token <= last {
			t.Fatalf("token %v after %v", g.Token, last)
		}
		last = g.Token
		if err := d.Release(within(t), g); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range ds {
		_ = d.Close()
	}
	if left := names(t, filepath.Join(dir, "locker", "k")); len(left) > 2*8+2 {
		t.Errorf("%d files left: %v", len(left), left)
	}
}

// CO5: odd keys do not meet.
func TestKeysAreIndependent(t *testing.T) {
	t.Parallel()
	d := opened(t, directory(t))
	keys := []string{"a", "a/b", "ab", "A", ".", "..", "a.b", "%41", "~", "lock-1", "schlüssel", "with space", strings.Repeat("x", 512), strings.Repeat("x", 511) + "y", strings.Repeat("Ü", 256)}
	for _, k := range keys {
		r := request(k)
		r.TTL = time.Minute // until all are listed
		if _, err := d.TryAcquire(within(t), r); err != nil {
			t.Fatalf("%q: %v", k, err)
		}
	}
	var listed []string
	for st, err := range d.List(within(t), "") {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, st.Key)
	}
	slices.Sort(keys)
	slices.Sort(listed)
	if !slices.Equal(keys, listed) {
		t.Errorf("listed %q, want %q", listed, keys)
	}
}

func TestEscapeIsInjectiveWithoutCase(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, k := range []string{"a", "A", "%61", "%41", "a%", "a/", "a_2f", ".a", "a.", strings.Repeat("A", 100), strings.Repeat("a", 300), strings.Repeat("a", 301), "~", "é", "e\u0301"} {
		e := escape(k)
		if len(e) > maxName || strings.ContainsAny(e, "/\x00") || e[0] == '.' {
			t.Errorf("escape(%q) = %q", k, e)
		}
		if other, ok := seen[strings.ToLower(e)]; ok {
			t.Errorf("%q and %q are both %q", k, other, e)
		}
		seen[strings.ToLower(e)] = k
		if back, ok := unescape(e); !strings.Contains(e, "~") && (!ok || back != k) {
			t.Errorf("unescape(escape(%q)) = %q, %v", k, back, ok)
		}
	}
}

// CO17: an attempt that is sent again gets what its first send granted.
func TestResentAttempt(t *testing.T) {
	t.Parallel()
	d := opened(t, directory(t))
	r := request("k")
	first, err := d.TryAcquire(within(t), r)
	if err != nil {
		t.Fatal(err)
	}
	again, err := d.TryAcquire(within(t), r)
	if err != nil || again.Token != first.Token || !again.Sent.IsZero() || again.Left != ttl {
		t.Errorf("got %+v, %v", again, err)
	}
	if err := d.Release(within(t), driver.Grant{Request: r}); err != nil { // from the Request alone
		t.Errorf("release from the request: %v", err)
	}
	if err := tryErr(d, "k", t); err != nil {
		t.Error(err)
	}
}

// EX1, EX3, EX5: held as long as it is renewed, free after its ttl, not revived.
func TestRenewAndLapse(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	a, b := opened(t, dir), opened(t, dir)
	g := acquire(t, a, "k")
	start := driver.Now()
	for driver.Now().Sub(start) < 3*time.Second {
		pass(t, 500*time.Millisecond)
		renewed, err := a.Renew(within(t), g)
		if err != nil {
			t.Fatal(err)
		}
		if renewed.Token != g.Token {
			t.Fatalf("the token changed from %v to %v", g.Token, renewed.Token)
		}
		g = renewed
		refusedBy(t, b, "k")
	}
	var took time.Duration
	eventually(t, 2*ttl, "the key is free", func() bool {
		if _, err := b.TryAcquire(within(t), request("k")); err != nil {
			return false
		}
		took = driver.Now().Sub(g.Sent)
		return true
	})
	if took < ttl {
		t.Errorf("taken over %v after the last renewal, before its ttl", took)
	}
	if _, err := a.Renew(within(t), g); !errors.Is(err, driver.ErrLost) {
		t.Errorf("renew after the takeover: got %v", err)
	}
	if err := a.Release(within(t), g); !errors.Is(err, driver.ErrLost) {
		t.Errorf("release after the takeover: got %v", err)
	}
	refusedBy(t, a, "k")
}

// BR1 to BR4, FS8: break, Now, and ends that their writer never finished.
func TestBreak(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	a, b := opened(t, dir), opened(t, dir)
	g := acquire(t, a, "k")
	if err := b.Break(within(t), "k", g.Token+1, driver.Break{}); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("wrong token: got %v", err)
	}
	for range 2 { // the second time it is broken already
		if err := b.Break(within(t), "k", g.Token, driver.Break{By: "op", Reason: "stuck"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.Renew(within(t), g); !errors.Is(err, driver.ErrLost) {
		t.Errorf("renew a broken grant: got %v", err)
	}
	refusedBy(t, b, "k") // the holder still believes
	if st, err := b.Inspect(within(t), "k"); err != nil || !st.Held || !st.Broken {
		t.Errorf("inspect: %+v, %v", st, err)
	}
	if err := b.Break(within(t), "k", g.Token, driver.Break{Now: true}); err != nil {
		t.Fatal(err)
	}
	next := acquire(t, b, "k")
	if next.Token <= g.Token {
		t.Errorf("token %v after %v", next.Token, g.Token)
	}
	if err := a.Release(within(t), g); !errors.Is(err, driver.ErrLost) {
		t.Errorf("release a broken grant: got %v", err)
	}
	refusedBy(t, a, "k")
	if err := b.Break(within(t), "free", 1, driver.Break{}); !errors.Is(err, driver.ErrLost) {
		t.Errorf("break a free key: got %v", err)
	}
}

// A broken grant's key is given away at the old deadline, not before.
func TestBrokenUntilDeadline(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	a, b := opened(t, dir), opened(t, dir)
	g := acquire(t, a, "k")
	if err := b.Break(within(t), "k", g.Token, driver.Break{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 2*ttl, "the key is free", func() bool {
		_, err := b.TryAcquire(within(t), request("k"))
		return err == nil
	})
	if took := driver.Now().Sub(g.Sent); took < ttl {
		t.Errorf("given away after %v", took)
	}
}

// IN1: another process is told for how long a key has been held, whatever the renewals.
func TestInspectTellsSinceWhen(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	a, b := opened(t, dir), opened(t, dir)
	begun := time.Now()
	g := acquire(t, a, "k")
	for range 5 {
		<-time.After(20 * time.Millisecond)
		if _, err := a.Renew(within(t), g); err != nil {
			t.Fatal(err)
		}
	}
	st, err := b.Inspect(within(t), "k")
	if most := time.Since(begun) + time.Millisecond; err != nil || st.HeldFor < 99*time.Millisecond || st.HeldFor > most {
		t.Errorf("held for %v, %v; want 100ms to %v", st.HeldFor, err, most)
	}
}

// IN1, FS2: inspecting and listing disturb nothing, in the holder's own process too.
func TestInspectDisturbsNothing(t *testing.T) {
	t.Parallel()
	d := opened(t, directory(t))
	if st, err := d.Inspect(within(t), "never"); err != nil || st.Held || st.Token != 0 {
		t.Errorf("a key nobody used: %+v, %v", st, err)
	}
	g := acquire(t, d, "k")
	for range 20 {
		st, err := d.Inspect(within(t), "k")
		if err != nil || !st.Held || st.Token != g.Token || st.ExpiresIn <= 0 || st.Waiters >= 0 {
			t.Fatalf("inspect: %+v, %v", st, err)
		}
		refusedBy(t, d, "k")
	}
	if _, err := d.Renew(within(t), g); err != nil {
		t.Error(err)
	}
	if err := d.Release(within(t), g); err != nil {
		t.Error(err)
	}
	if st, err := d.Inspect(within(t), "k"); err != nil || st.Held || st.Token != g.Token {
		t.Errorf("after the release: %+v, %v", st, err)
	}
}

// R10: a floor raises the token, for good.
func TestFloor(t *testing.T) {
	t.Parallel()
	d := opened(t, directory(t))
	r := request("k")
	r.Floor = 1000
	g, err := d.TryAcquire(within(t), r)
	if err != nil || g.Token != 1001 {
		t.Fatalf("got token %v, %v", g.Token, err)
	}
	if err := d.Release(within(t), g); err != nil {
		t.Fatal(err)
	}
	if g := acquire(t, d, "k"); g.Token != 1002 {
		t.Errorf("got token %v after a floor, want 1002", g.Token)
	}
}

// NS1, NS2: other settings are refused, and a token base counts.
func TestNamespace(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	d := on(t, dir, kernel{}, here(t), &Options{Namespace: "app", TokenBase: 500})
	if g := acquire(t, d, "k"); g.Token != 501 {
		t.Errorf("got token %v, want 501", g.Token)
	}
	for _, o := range []*Options{{Namespace: "app"}, {Namespace: "app", TokenBase: 500, NoSync: true}} {
		if _, err := NewDriver(within(t), dir, o); !errors.Is(err, driver.ErrLayout) {
			t.Errorf("%+v: got %v, want ErrLayout", o, err)
		}
	}
	if other := opened(t, dir); acquire(t, other, "k").Token != 1 {
		t.Error("two namespaces share a key")
	}
	if _, err := NewDriver(within(t), dir, &Options{Namespace: "a/b"}); err == nil {
		t.Error("a namespace with a slash was accepted")
	}
}

// CO12: after Close calls answer ErrClosed, and what is held stays held for its ttl.
func TestCloseEndsNoGrant(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	a, b := opened(t, dir), opened(t, dir)
	g := acquire(t, a, "k")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Renew(within(t), g); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("renew after Close: got %v", err)
	}
	refusedBy(t, b, "k")
	eventually(t, 2*ttl, "the key is free", func() bool {
		_, err := b.TryAcquire(within(t), request("k"))
		return err == nil
	})
	if took := driver.Now().Sub(g.Sent); took < ttl {
		t.Errorf("free after %v, before its ttl", took)
	}
}

// Records that a person can read with cat, and that say nothing false.
func TestRecordIsReadable(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	d := opened(t, dir)
	r := request("Nightly")
	r.Note = "backup"
	if _, err := d.TryAcquire(within(t), r); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "locker", "%4eightly", "lock-1"))
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	for k, want := range map[string]any{"key": "Nightly", "owner": "test", "note": "backup", "token": "1", "validity_ms": 2000.0} {
		if fmt.Sprint(m[k]) != fmt.Sprint(want) {
			t.Errorf("%s is %v, want %v", k, m[k], want)
		}
	}
	if lines := strings.Count(string(b), "\n"); lines < 8 {
		t.Errorf("%d lines:\n%s", lines, b)
	}
}

// FS7: one descriptor per held lease, and none after the release.
func TestDescriptors(t *testing.T) {
	dir := directory(t) // not parallel: it counts the process's descriptors
	d := on(t, dir, kernel{}, here(t), &Options{NoSync: true})
	const leases = 2000
	count := func() int { return len(names(t, "/proc/self/fd")) }
	before := count()
	var gs []driver.Grant
	for i := range leases {
		r := request(fmt.Sprint("k", i))
		r.TTL = time.Minute
		g, err := d.TryAcquire(within(t), r)
		if err != nil {
			t.Fatal(err)
		}
		gs = append(gs, g)
	}
	if got := count() - before; got > leases+5 {
		t.Errorf("%d descriptors for %d leases", got, leases)
	}
	for _, g := range gs {
		if err := d.Release(within(t), g); err != nil {
			t.Fatal(err)
		}
	}
	if got := count() - before; got > 5 {
		t.Errorf("%d descriptors left", got)
	}
}
