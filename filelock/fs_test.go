//go:build linux

package filelock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/locker/driver"
)

// FS1: a contender that is paused between any two of its steps never takes a key whose
// holder renews meanwhile.
func TestFS1RenewalWhileAContenderIsPaused(t *testing.T) {
	t.Parallel()
	steps(t, 10, func(t *testing.T, step int) bool {
		dir := directory(t)
		holder := opened(t, dir)
		sys := newDouble()
		b := on(t, dir, sys, here(t), nil)
		r := request("k")
		r.TTL = ttl
		g, err := holder.TryAcquire(within(t), r)
		if err != nil {
			t.Fatal(err)
		}
		var n atomic.Int32
		paused := false
		sys.set(func(string, string) error {
			if int(n.Add(1)) != step {
				return nil
			}
			paused = true
			// Renewed in time, three times, until the first deadline is long over.
			for range 3 {
				pass(t, ttl/2)
				renewed, err := holder.Renew(within(t), g)
				if err != nil {
					t.Errorf("step %d: renew: %v", step, err)
					return nil
				}
				g = renewed
			}
			return nil
		}, nil)
		_, err = b.TryAcquire(within(t), request("k"))
		sys.set(nil, nil)
		if !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("step %d: got %v, want a refusal", step, err)
		}
		return paused
	})
}

// steps runs f for every step of something, all at once, and requires that there were
// at least so many: f reports whether its step was reached.
func steps(t *testing.T, least int, f func(t *testing.T, step int) bool) {
	t.Helper()
	const most = 50
	var reached atomic.Int32
	t.Cleanup(func() {
		if n := int(reached.Load()); n < least || n == most {
			t.Errorf("%d steps, want at least %d and fewer than %d", n, least, most)
		}
	})
	for step := 1; step <= most; step++ {
		t.Run(fmt.Sprint(step), func(t *testing.T) {
			t.Parallel()
			if f(t, step) {
				reached.Add(1)
			}
		})
	}
}

// FS1, the other way round: the holder stalls inside its renewal while the key lapses
// and is taken over. Whatever step it stalls at, it does not believe afterwards.
func TestFS1HolderStalledInsideARenewal(t *testing.T) {
	t.Parallel()
	steps(t, 4, func(t *testing.T, step int) bool {
		dir := directory(t)
		sys := newDouble()
		a, b := on(t, dir, sys, here(t), nil), opened(t, dir)
		r := request("k")
		r.TTL = ttl // not shorter: a loaded machine must get to the renewal in time
		g, err := a.TryAcquire(within(t), r)
		if err != nil {
			t.Fatal(err)
		}
		var n atomic.Int32
		stalled, taken := false, false
		sys.set(func(string, string) error {
			if int(n.Add(1)) != step {
				return nil
			}
			stalled = true
			eventually(t, 5*time.Second, "the key lapses", func() bool {
				_, err := b.TryAcquire(within(t), request("k"))
				taken = err == nil
				return taken
			})
			return nil
		}, nil)
		_, err = a.Renew(within(t), g)
		sys.set(nil, nil)
		switch {
		case stalled && err == nil:
			t.Fatalf("step %d: the renewal was believed although the key was taken over", step)
		case stalled && !taken:
			t.Fatalf("step %d: not taken over", step)
		case !stalled && err != nil:
			t.Fatalf("renew: %v", err)
		case !stalled:
			return false
		}
		refusedBy(t, a, "k")
		return true
	})
}

// FS3: a contender that stops for good at any step blocks nobody.
func TestFS3StoppedContender(t *testing.T) {
	t.Parallel()
	steps(t, 20, func(t *testing.T, step int) bool {
		dir := directory(t)
		sys := newDouble()
		bystander := on(t, dir, sys, here(t), nil)
		others := opened(t, dir)
		if err := tryErr(others, "k", t); err != nil {
			t.Fatal(err)
		}
		var n atomic.Int32
		reached, resume := make(chan struct{}), make(chan struct{})
		sys.set(func(string, string) error {
			if int(n.Add(1)) == step {
				close(reached)
				<-resume
			}
			return nil
		}, nil)
		r := request("k")
		done := make(chan driver.Grant, 1)
		go func() {
			g, _ := bystander.TryAcquire(within(t), r)
			done <- g
		}()
		stopped := false
		select {
		case <-reached:
			stopped = true
		case <-done:
		}
		if stopped {
			// Either it has the key already, for a ttl, or the others get it at once.
			err := tryErr(others, "k", t)
			var held *driver.HeldError
			if errors.As(err, &held) {
				if held.Attempt != r.Attempt {
					t.Errorf("step %d: refused because of %+v, want the stopped one", step, held)
				}
				eventually(t, 3*ttl, "others go on", func() bool { return tryErr(others, "k", t) == nil })
			} else if err != nil {
				t.Errorf("step %d: %v", step, err)
			}
			close(resume)
			<-done
		}
		sys.set(nil, nil)
		return stopped
	})
}

// FS4: records of other boots and other machines.
func TestFS4OtherBoots(t *testing.T) {
	t.Parallel()
	mid, other := strings.Repeat("ab", 16), strings.Repeat("cd", 16)
	for name, c := range map[string]struct {
		holder, contender host
		lives             bool // the holder's process is still there
		atOnce            bool
	}{
		"rebooted":                    {host{boot: "1", machine: mid}, host{boot: "2", machine: mid}, false, true},
		"rebooted, alive after all":   {host{boot: "1", machine: mid}, host{boot: "2", machine: mid}, true, false},
		"another machine":             {host{boot: "1", machine: mid}, host{boot: "2", machine: other}, false, false},
		"no machine id":               {host{boot: "1"}, host{boot: "2"}, false, false},
		"no machine id there":         {host{boot: "1"}, host{boot: "2", machine: mid}, false, false},
		"same boot, another machine":  {host{boot: "1", machine: mid}, host{boot: "1", machine: other}, false, true},
		"same boot, alive":            {host{boot: "1"}, host{boot: "1"}, true, false},
		"another time namespace":      {host{boot: "1"}, host{boot: "1", offset: time.Hour}, true, false},
		"another time namespace back": {host{boot: "1", offset: -time.Hour}, host{boot: "1"}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := directory(t)
			inside := func(h host) *double {
				d := newDouble()
				d.skew = h.offset // what such a process reads
				return d
			}
			a, b := on(t, dir, inside(c.holder), c.holder, nil), on(t, dir, inside(c.contender), c.contender, nil)
			g := acquire(t, a, "k")
			if !c.lives {
				dies(t, a, g)
			}
			began := driver.Now()
			err := tryErr(b, "k", t)
			if c.atOnce {
				if err != nil {
					t.Fatalf("got %v, want the key at once", err)
				}
				return
			}
			if !errors.Is(err, driver.ErrHeld) {
				t.Fatalf("got %v, want a refusal", err)
			}
			eventually(t, 3*ttl, "taken over", func() bool { return tryErr(b, "k", t) == nil })
			if took := driver.Now().Sub(began); c.holder.boot != c.contender.boot && took < ttl+ttl/clockError {
				t.Errorf("taken over after %v of observation: the other clock may be slower", took)
			}
			if took := driver.Now().Sub(g.Sent); took < ttl {
				t.Errorf("taken over %v after the grant", took)
			}
		})
	}
}

// FS4: one-shot processes of one boot continue each other's observation.
func TestFS4ObservationIsWrittenDown(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	a := on(t, dir, kernel{}, host{boot: "1"}, nil)
	g := acquire(t, a, "k")
	dies(t, a, g)
	began := driver.Now()
	eventually(t, 3*ttl, "a fresh process takes over", func() bool {
		b, err := open(within(t), dir, nil, kernel{}, host{boot: "2"})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = b.Close() }()
		return tryErr(b, "k", t) == nil
	})
	if took := driver.Now().Sub(began); took < ttl+ttl/clockError {
		t.Errorf("taken over after %v: the other clock may be slower", took)
	}
}

// FS10: two boot ids, one machine id, both alive: held, and as long as it is renewed.
func TestFS10TwoContainersOfOneMachine(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	mid := strings.Repeat("ab", 16)
	a, b := on(t, dir, kernel{}, host{boot: "1", machine: mid}, nil), on(t, dir, kernel{}, host{boot: "2", machine: mid}, nil)
	g := acquire(t, a, "k")
	from := driver.Now()
	for driver.Now().Sub(from) < 2*ttl {
		pass(t, ttl/4)
		var err error
		if g, err = a.Renew(within(t), g); err != nil {
			t.Fatal(err)
		}
		refusedBy(t, b, "k")
	}
}

// FS10: a renewal whose system call returns late: the next one waits for it, so the
// beat never goes back.
func TestFS10LateRenewal(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	sys := newDouble()
	d := on(t, dir, sys, here(t), nil)
	g := acquire(t, d, "k")
	resume, hung := make(chan struct{}), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(resume) })
	t.Cleanup(goOn) // or closing would wait for the call
	var touches atomic.Int32
	sys.set(func(call, _ string) error {
		if call == "touch" && touches.Add(1) == 1 {
			close(hung)
			<-resume
		}
		return nil
	}, nil)
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	if _, err := d.Renew(short(), g); !driver.IsAmbiguous(err) {
		t.Fatalf("a renewal that hangs: got %v, want ambiguous", err)
	}
	<-hung
	began := driver.Now()
	if _, err := d.Renew(short(), g); !driver.IsAmbiguous(err) {
		t.Fatalf("a renewal behind one that hangs: got %v, want ambiguous", err)
	}
	if took := driver.Now().Sub(began); took > 100*time.Millisecond+d.Info().Slack {
		t.Errorf("it took %v", took)
	}
	if n := touches.Load(); n != 1 {
		t.Errorf("%d renewals set the beat while one of them hung", n)
	}
	goOn()
	path := filepath.Join(dir, "locker", "k", "lock-1")
	var last time.Duration
	for range 20 {
		renewed, err := d.Renew(within(t), g)
		if err != nil {
			t.Fatal(err)
		}
		g = renewed
		st, err := kernel{}.lstat(path)
		if err != nil || st.mtime < last {
			t.Fatalf("the beat went from %v to %v, %v", last, st.mtime, err)
		}
		last = st.mtime
	}
}

// FS8: who makes an end may die before writing it.
func TestFS8UnfinishedEnds(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{"empty": "", "torn": `{"layout": 1, "key": "k", "endi`, "foreign": "hello\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := directory(t)
			end := filepath.Join(dir, "locker", "k", "lock-1.end")
			write := func() {
				if err := os.WriteFile(end, []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			a, b := opened(t, dir), opened(t, dir)
			g := acquire(t, a, "k")
			write()
			if _, err := a.Renew(within(t), g); !errors.Is(err, driver.ErrLost) {
				t.Errorf("renew: got %v, want ErrLost", err)
			}
			refusedBy(t, b, "k") // the holder may still believe
			if err := a.Release(within(t), g); err != nil {
				t.Errorf("release over it: %v", err)
			}
			if g := acquire(t, b, "k"); g.Token != 2 {
				t.Errorf("got token %v", g.Token)
			}
		})
	}
	t.Run("now", func(t *testing.T) {
		t.Parallel()
		dir := directory(t)
		a, b := opened(t, dir), opened(t, dir)
		g := acquire(t, a, "k")
		if err := os.WriteFile(filepath.Join(dir, "locker", "k", "lock-1.end"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := b.Break(within(t), "k", g.Token, driver.Break{Now: true}); err != nil {
			t.Fatal(err)
		}
		acquire(t, b, "k")
	})
	t.Run("nobody left", func(t *testing.T) {
		t.Parallel()
		dir := directory(t)
		a, b := opened(t, dir), opened(t, dir)
		g := acquire(t, a, "k")
		if err := os.WriteFile(filepath.Join(dir, "locker", "k", "lock-1.end"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		eventually(t, 2*ttl, "the key lapses", func() bool { return tryErr(b, "k", t) == nil })
		if took := driver.Now().Sub(g.Sent); took < ttl {
			t.Errorf("free after %v", took)
		}
	})
}

// FS9, IN2: the key's directory is moved, removed, linked or copied while held.
func TestFS9DirectoryTamperedWith(t *testing.T) {
	t.Parallel()
	for name, tamper := range map[string]string{
		"moved":            `mv k elsewhere`,
		"removed":          `rm -r k`,
		"record removed":   `rm k/lock-1`,
		"replaced by copy": `cp -a k copy && rm -r k && mv copy k`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := directory(t)
			a, b := opened(t, dir), opened(t, dir)
			g := acquire(t, a, "k")
			sh := exec.Command("sh", "-c", tamper)
			sh.Dir = filepath.Join(dir, "locker")
			if out, err := sh.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if name == "moved" || name == "removed" {
				acquire(t, b, "k") // declared: exclusion is suspended, tokens start again
			}
			before := tree(t, filepath.Join(dir, "locker"))
			if _, err := a.Renew(within(t), g); !errors.Is(err, driver.ErrLost) {
				t.Errorf("renew: got %v, want ErrLost", err)
			}
			if err := a.Release(within(t), g); !errors.Is(err, driver.ErrLost) {
				t.Errorf("release: got %v, want ErrLost", err)
			}
			if after := tree(t, filepath.Join(dir, "locker")); after != before {
				t.Errorf("something was made: %s, before %s", after, before)
			}
		})
	}
	t.Run("linked", func(t *testing.T) { // a second name harms nobody
		t.Parallel()
		dir := directory(t)
		a, b := opened(t, dir), opened(t, dir)
		g := acquire(t, a, "k")
		sh := exec.Command("cp", "-al", filepath.Join(dir, "locker", "k"), filepath.Join(dir, "locker", "l"))
		if out, err := sh.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		refusedBy(t, b, "k")
		if _, err := b.TryAcquire(within(t), request("l")); !errors.Is(err, driver.ErrCorrupt) {
			t.Errorf("a foreign record: got %v, want ErrCorrupt", err)
		}
		if err := a.Release(within(t), g); err != nil {
			t.Error(err)
		}
	})
}

func tree(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		all = append(all, strings.TrimPrefix(p, dir))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}

// Corrupt records block the key until they are broken with Now; tokens go on.
func TestCorruptRecord(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(path string) error{
		"empty":     func(p string) error { return os.WriteFile(p, nil, 0o644) },
		"foreign":   func(p string) error { return os.WriteFile(p, []byte("hello"), 0o644) },
		"version":   func(p string) error { return os.WriteFile(p, []byte(`{"layout": 99}`), 0o644) },
		"directory": func(p string) error { return os.Mkdir(p, 0o755) },
		"link":      func(p string) error { return os.Symlink("/etc/passwd", p) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := directory(t)
			d := opened(t, dir)
			if err := tryErr(d, "k", t); err != nil {
				t.Fatal(err)
			}
			if err := make(filepath.Join(dir, "locker", "k", "lock-2")); err != nil {
				t.Fatal(err)
			}
			b := opened(t, dir)
			if _, err := b.TryAcquire(within(t), request("k")); !errors.Is(err, driver.ErrCorrupt) {
				t.Fatalf("got %v, want ErrCorrupt", err)
			}
			if _, err := b.Inspect(within(t), "k"); !errors.Is(err, driver.ErrCorrupt) {
				t.Errorf("inspect: got %v", err)
			}
			if err := b.Break(within(t), "k", 2, driver.Break{}); !errors.Is(err, driver.ErrCorrupt) {
				t.Errorf("break without Now: got %v", err)
			}
			if err := b.Break(within(t), "k", 7, driver.Break{Now: true}); !errors.Is(err, driver.ErrHeld) {
				t.Errorf("break with a wrong token: got %v", err)
			}
			if err := b.Break(within(t), "k", 2, driver.Break{Now: true}); err != nil {
				t.Fatalf("break with Now: %v", err)
			}
			if g := acquire(t, b, "k"); g.Token != 3 {
				t.Errorf("got token %v, want 3", g.Token)
			}
		})
	}
}

// Tokens go on behind a damaged record, also when a floor has raised them: what is left of
// it, or the newest record below it, however far, says how far. They fell back to the number
// once.
func TestTokensGoOnBehindADamagedRecord(t *testing.T) {
	t.Parallel()
	raised := func(t *testing.T, d *Driver) driver.Grant {
		t.Helper()
		r := request("k")
		r.Floor = 100
		g, err := d.TryAcquire(within(t), r)
		if err != nil || g.Token != 101 {
			t.Fatalf("got token %v (%v), want 101", g.Token, err)
		}
		return g
	}
	for name, damage := range map[string]func(t *testing.T, d *Driver, dir string) (n driver.Token){
		"its own, cut off": func(t *testing.T, d *Driver, dir string) driver.Token {
			g := raised(t, d)
			dies(t, d, g)
			path := filepath.Join(dir, "lock-1")
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, b[:len(b)/2], 0o644); err != nil {
				t.Fatal(err)
			}
			return 1
		},
		"a stranger's, far above": func(t *testing.T, d *Driver, dir string) driver.Token {
			if err := d.Release(within(t), raised(t, d)); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "lock-50"), []byte("hello"), 0o644); err != nil {
				t.Fatal(err)
			}
			return 50
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := directory(t)
			d := opened(t, dir)
			n := damage(t, d, filepath.Join(dir, "locker", "k"))
			b := opened(t, dir)
			if err := b.Break(within(t), "k", n, driver.Break{Now: true}); err != nil {
				t.Fatal(err)
			}
			if g := acquire(t, b, "k"); g.Token <= 101 {
				t.Errorf("got token %v, want more than 101", g.Token)
			}
		})
	}
}

// A record that was touched by hand is not believed.
func TestTouchedRecord(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	a, b := opened(t, dir), opened(t, dir)
	acquire(t, a, "k")
	if out, err := exec.Command("touch", filepath.Join(dir, "locker", "k", "lock-1")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := b.TryAcquire(within(t), request("k")); !errors.Is(err, driver.ErrCorrupt) {
		t.Errorf("got %v, want ErrCorrupt", err)
	}
}

// What cannot work is refused when it is opened, by name.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	if _, err := NewDriver(within(t), "/proc", nil); !errors.Is(err, driver.ErrUnsupported) && !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("/proc: got %v", err)
	}
	dir := directory(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := NewDriver(within(t), file, nil); !errors.Is(err, syscall.ENOTDIR) || !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("a file: got %v", err)
	}
	if _, err := NewDriver(within(t), filepath.Join(file, "below"), nil); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("below a file: got %v", err)
	}
	if _, err := NewDriver(within(t), "", nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no name: got %v", err)
	}
	if _, err := NewDriver(within(t), filepath.Join(dir, "made", "if", "missing"), nil); err != nil {
		t.Errorf("a missing directory is made: got %v", err)
	}
	sys := newDouble()
	sys.set(func(call, _ string) error {
		if call == "flock" {
			return syscall.ENOLCK
		}
		return nil
	}, nil)
	if _, err := open(within(t), directory(t), nil, sys, here(t)); !errors.Is(err, driver.ErrUnsupported) || !errors.Is(err, syscall.ENOLCK) {
		t.Errorf("no flock: got %v", err)
	}
	if _, err := open(within(t), directory(t), nil, lockless{kernel{}}, here(t)); !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), "does not exclude") {
		t.Errorf("a flock that does nothing: got %v", err)
	}
	for magic, want := range map[int64]string{0x6969: "nfs", 0x65735546: "fuse", 0x4d44: "vfat", 0x12345: "0x12345"} {
		if _, err := accept(magic); !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%#x: got %v", magic, err)
		}
	}
	if fs, err := accept(0x01021994); err != nil || fs.keeps {
		t.Errorf("tmpfs: got %+v, %v", fs, err)
	}
}

// lockless is a file system whose flock does nothing.
type lockless struct{ system }

func (lockless) flock(int, int) error { return nil }

func TestHostFacts(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		strings.Repeat("0a", 16) + "\n": strings.Repeat("0a", 16), "": "", "uninitialized\n": "",
		strings.Repeat("0", 32): "", strings.Repeat("A", 32): "",
	} {
		if got := machineID(in); got != want {
			t.Errorf("machineID(%q) = %q, want %q", in, got, want)
		}
	}
	if d, err := parseOffset("monotonic           0         0\nboottime       -3600       500\n"); err != nil || d != -time.Hour+500 {
		t.Errorf("got %v, %v", d, err)
	}
	if _, err := parseOffset("monotonic 0 0\n"); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
	for _, c := range []struct{ set, got, want time.Duration }{
		{1234567891, 1234567891, 1}, {1234567891, 1234567800, 100}, {1234567891, 1e9, time.Second},
	} {
		if g, err := granularity(c.set, c.got); err != nil || g != c.want {
			t.Errorf("granularity(%d, %d) = %v, %v", c.set, c.got, g, err)
		}
	}
	if _, err := granularity(1234567891, 5); err == nil {
		t.Error("a file system that makes times up was accepted")
	}
}

// Two users of one directory (needs root, to become both).
func TestFS7TwoUsers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be two users")
	}
	t.Parallel()
	dir, err := os.MkdirTemp("/tmp", "filelock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	shared, private := filepath.Join(dir, "shared"), filepath.Join(dir, "private")
	for d, mode := range map[string]os.FileMode{dir: 0o755, shared: 0o777, private: 0o755} {
		if err := errors.Join(os.MkdirAll(d, mode), os.Chmod(d, mode)); err != nil {
			t.Fatal(err)
		}
	}
	root := opened(t, shared)
	g := acquire(t, root, "k")
	u := start(t, 65534, "loop", shared, "k")
	if got := u.ask("try"); !strings.HasPrefix(got, "held") {
		t.Errorf("another user's try: %s", got)
	}
	if err := root.Release(within(t), g); err != nil {
		t.Fatal(err)
	}
	if got := u.ask("try"); got != "granted 2" {
		t.Errorf("another user's try on the free key: %s", got)
	}
	refusedBy(t, root, "k")
	if got := u.ask("release"); got != "ok" {
		t.Errorf("release: %s", got)
	}
	acquire(t, root, "k")

	// Killed at any step of making a key's directory, the first user leaves one for all.
	for step := 1; ; step++ {
		key := fmt.Sprint("new", step)
		c := start(t, 0, "steps", shared, key, "LOCKER_STEP="+strconv.Itoa(step))
		got := c.ask("try")
		c.kill()
		other := start(t, 65534, "loop", shared, key)
		eventually(t, time.Second, fmt.Sprintf("another user has the key behind a kill at step %d", step), func() bool {
			return strings.HasPrefix(other.ask("try"), "granted ")
		})
		if got != "gone" {
			break
		}
	}

	opened(t, private)
	v := start(t, 65534, "open", private, "k")
	if got := v.line(); !strings.Contains(got, "permission denied") {
		t.Errorf("a directory of somebody else: %s", got)
	}
}
