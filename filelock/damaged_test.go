//go:build linux

package filelock

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencelock/locker/driver"
)

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
