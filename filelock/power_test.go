//go:build linux

package filelock

import (
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/fencelock/locker/driver"
)

// disk is a double that knows what a power loss would leave: of a file what it held at
// its last fsync, of a directory the names it had at its own.
type disk struct {
	*double
	mu    sync.Mutex
	files map[identity][]byte
	dirs  map[identity]map[string]identity
}

func newDisk() *disk {
	return &disk{double: newDouble(), files: map[identity][]byte{}, dirs: map[identity]map[string]identity{}}
}

func (d *disk) sync(fd int) error {
	if err := d.double.sync(fd); err != nil {
		return err
	}
	st, err := d.kernel.fstat(fd)
	if err != nil {
		return err
	}
	path := "/proc/self/fd/" + strconv.Itoa(fd)
	d.mu.Lock()
	defer d.mu.Unlock()
	if st.regular {
		d.files[st.id], err = os.ReadFile(path) // our own descriptor
		return err
	}
	entries := map[string]identity{}
	es, err := os.ReadDir(path + "/.")
	if err != nil {
		return err
	}
	for _, e := range es {
		if st, err := d.kernel.lstat(path + "/" + e.Name()); err == nil {
			entries[e.Name()] = st.id
		}
	}
	d.dirs[st.id] = entries
	return nil
}

// lose rebuilds, in a new place, what a power loss leaves of a directory. Names that
// were never synced are lost; keep decides about names that are there but were not
// (a file system may have written them, and usually not what is in them).
func (d *disk) lose(t *testing.T, from, to string, keep func() bool) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	var copyDir func(from, to string, id identity)
	copyDir = func(from, to string, id identity) {
		if err := os.MkdirAll(to, 0o755); err != nil { // a test's directory
			t.Fatal(err)
		}
		entries := maps.Clone(d.dirs[id])
		if entries == nil {
			entries = map[string]identity{}
		}
		es, err := os.ReadDir(from)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		present := map[string]bool{}
		for _, e := range es {
			present[e.Name()] = true
			if st, err := d.kernel.lstat(from + "/" + e.Name()); err == nil && keep() {
				entries[e.Name()] = st.id
			}
		}
		for _, name := range slices.Sorted(maps.Keys(entries)) {
			id := entries[name]
			if _, isDir := d.dirs[id]; isDir {
				copyDir(from+"/"+name, to+"/"+name, id)
				continue
			}
			if st, err := os.Lstat(from + "/" + name); err == nil && st.IsDir() {
				copyDir(from+"/"+name, to+"/"+name, id)
				continue
			}
			if err := os.WriteFile(to+"/"+name, d.files[id], 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	st, err := d.kernel.lstat(from)
	if err != nil {
		t.Fatal(err)
	}
	copyDir(from, to, st.id)
}

// FS5: whatever a power loss takes, no token that was returned is given again, and no
// record stays unreadable for ever.
func TestFS5PowerLoss(t *testing.T) {
	t.Parallel()
	mid := strings.Repeat("ab", 16)
	rnd := rand.New(rand.NewPCG(1, 2)) // which names survive
	for round := range 30 {
		base := directory(t)
		from := filepath.Join(base, "before")
		sys := newDisk()
		d := on(t, from, sys, host{boot: "1", machine: mid}, nil)
		other := on(t, from, sys, host{boot: "1", machine: mid}, nil)
		var last driver.Token
		for i := range 1 + round%5 {
			by := []*Driver{d, other}[i%2]
			g := acquire(t, by, "k")
			last = g.Token
			if i < round%5 {
				if err := by.Release(within(t), g); err != nil {
					t.Fatal(err)
				}
			}
		}
		for crash := range 3 {
			to := filepath.Join(base, "after"+strconv.Itoa(crash))
			sys.lose(t, from, to, func() bool { return crash > 0 && rnd.IntN(2) == 0 })
			after := on(t, to, kernel{}, host{boot: "2", machine: mid}, nil)
			g := acquire(t, after, "k")
			if g.Token <= last {
				t.Fatalf("round %d: token %v after %v was returned", round, g.Token, last)
			}
		}
	}
}

// The double would notice: without fsync tokens do come back.
func TestFS5NoticesMissingSync(t *testing.T) {
	t.Parallel()
	base := directory(t)
	from, to := filepath.Join(base, "before"), filepath.Join(base, "after")
	sys := newDisk()
	h := host{boot: "1", machine: strings.Repeat("ab", 16)}
	g := acquire(t, on(t, from, sys, h, &Options{NoSync: true}), "k")
	sys.lose(t, from, to, func() bool { return false })
	if again := acquire(t, on(t, to, kernel{}, h, &Options{NoSync: true}), "k"); again.Token > g.Token {
		t.Errorf("token %v after %v: the double loses nothing", again.Token, g.Token)
	}
}

// The order of fsyncs: the file before its name, its name before the grant returns, and
// the parents' names before the first grant of a driver, unless the last holder has
// seen to it.
func TestSyncOrder(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	sys := newDouble()
	opened(t, dir)
	order := func(f func()) string {
		sys.reset()
		f()
		sys.mu.Lock()
		defer sys.mu.Unlock()
		var calls []string
		for _, c := range sys.log {
			if strings.HasPrefix(c, "write") || strings.HasPrefix(c, "touch") || strings.HasPrefix(c, "flock k") || strings.HasPrefix(c, "sync") || strings.HasPrefix(c, "link") {
				calls = append(calls, c)
			}
		}
		return strings.Join(calls, ", ")
	}
	const made = "write k, flock k, touch k, sync k, link "
	var g driver.Grant
	d := on(t, dir, sys, here(t), nil)
	if got, want := order(func() { g = acquire(t, d, "k") }), made+"lock-1, sync k, sync locker"; got != want {
		t.Errorf("a new key:\n got %s\nwant %s", got, want)
	}
	if got, want := order(func() { _ = d.Release(within(t), g) }), "write lock-1.end"; got != want {
		t.Errorf("release:\n got %s\nwant %s", got, want)
	}
	if got, want := order(func() { g = acquire(t, d, "k") }), made+"lock-2, sync k"; got != want {
		t.Errorf("again:\n got %s\nwant %s", got, want)
	}
	_ = d.Release(within(t), g)
	fresh := on(t, dir, sys, here(t), nil)
	if got, want := order(func() { g = acquire(t, fresh, "k") }), made+"lock-3, sync k"; got != want {
		t.Errorf("a fresh driver, released by its holder:\n got %s\nwant %s", got, want)
	}
	dies(t, fresh, g)
	third := on(t, dir, sys, here(t), nil)
	if got, want := order(func() { g = acquire(t, third, "k") }), "write lock-3.end, "+made+"lock-4, sync k, sync locker"; got != want {
		t.Errorf("a fresh driver after a killed holder:\n got %s\nwant %s", got, want)
	}

	// Who only sealed has made nothing durable.
	dies(t, third, g)
	sealer := on(t, dir, sys, here(t), nil)
	sys.set(func(call, _ string) error {
		if call == "link" {
			return syscall.ENOSPC
		}
		return nil
	}, nil)
	if _, err := sealer.TryAcquire(within(t), request("k")); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("a full disk: got %v", err)
	}
	sys.set(nil, nil)
	fourth := on(t, dir, sys, here(t), nil)
	if got, want := order(func() { g = acquire(t, fourth, "k") }), made+"lock-5, sync k, sync locker"; got != want {
		t.Errorf("a fresh driver behind a seal:\n got %s\nwant %s", got, want)
	}

	// Without a machine id another boot cannot tell a dead holder: what it ended must last.
	nobody := on(t, dir, sys, host{boot: here(t).boot}, nil)
	_ = fourth.Release(within(t), g)
	g = acquire(t, nobody, "k")
	if got, want := order(func() { _ = nobody.Release(within(t), g) }), "write lock-6.end, sync lock-6.end"; got != want {
		t.Errorf("release without a machine id:\n got %s\nwant %s", got, want)
	}
}

// At most two fsyncs from open to release of a key used before, and few system calls.
func TestSystemCalls(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	if err := tryErr(opened(t, dir), "k", t); err != nil {
		t.Fatal(err)
	}
	sys := newDouble()
	d := on(t, dir, sys, here(t), nil)
	open, _ := sys.total()
	g := acquire(t, d, "k")
	if err := d.Release(within(t), g); err != nil {
		t.Fatal(err)
	}
	all, syncs := sys.total()
	t.Logf("open %d system calls, acquire and release %d, %d of them fsync", open, all-open, syncs)
	if syncs > 2 {
		t.Errorf("%d fsyncs", syncs)
	}
	if all > 47 || all-open > 37 {
		t.Errorf("%d system calls, %d of them from acquire to release: %v", all, all-open, sys.log)
	}
	sys.reset()
	if g, _ = d.TryAcquire(within(t), request("k")); g.Token == 0 {
		t.Fatal("not granted")
	}
	if err := d.Release(within(t), g); err != nil {
		t.Fatal(err)
	}
	warm, syncs := sys.total()
	t.Logf("warm: %d system calls, %d of them fsync", warm, syncs)
	if warm > 25 || syncs > 2 {
		t.Errorf("warm: %d system calls, %d fsyncs: %v", warm, syncs, sys.log)
	}
}
