package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/filelock"
)

const (
	// envDirectory is where children find the directory.
	envDirectory = "LOCKER_CONFORMANCE_DIRECTORY"
	// envDefect is what is wrong with children: one of childDefects.
	envDefect = "LOCKER_CONFORMANCE_DEFECT"
)

// TestMain makes the test binary its own child process.
func TestMain(m *testing.M) {
	conformance.ServeIfChild(func(ctx context.Context) (driver.Driver, error) {
		return openDefective(ctx, os.Getenv(envDirectory), os.Getenv(envDefect))
	})
	os.Exit(m.Run())
}

// The directory is where the process cases run: it excludes other processes. Its waiters
// poll, and its holders count on the boot clock, which memlock's do not.
func TestFilelock(t *testing.T) {
	if h, ok := directory(t); ok {
		conformance.Run(t, h)
	}
}

// directory is the harness of a directory, and children with that environment. Not ok: it
// cannot be had here.
func directory(t *testing.T, env ...string) (h conformance.Harness, ok bool) {
	t.Helper()
	dir := t.TempDir()
	open := func(ctx context.Context) (driver.Driver, error) { return openDirectory(ctx, dir, nil) }
	control, err := open(t.Context())
	if errors.Is(err, driver.ErrUnsupported) && runtime.GOOS != "linux" {
		t.Log("not here:", err)
		return h, false
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = control.Close() })
	return conformance.Harness{
		NoServer: true,
		Allow:    []string{},
		Driver:   open,
		Control: func(ctx context.Context) error { // with the flushes of a grant: the disk is what is slow
			g, err := control.TryAcquire(ctx, driver.Request{Key: "control", Attempt: driver.NewAttempt(), TTL: time.Minute, Owner: "control"})
			if err == nil {
				err = control.Release(ctx, g)
			}
			return err
		},
		Child: func(ctx context.Context) (*exec.Cmd, error) {
			cmd, err := conformance.Self(ctx)
			if err == nil {
				cmd.Env = append(append(os.Environ(), envDirectory+"="+dir), env...)
			}
			return cmd, err
		},
		Faults: conformance.Faults{
			Client:    func(ctx context.Context) (driver.Driver, conformance.Network, error) { return networked(open(ctx)) },
			Remove:    func(_ context.Context, key string) error { return removeKey(dir, key) },
			Overwrite: func(_ context.Context, key string) error { return overwriteKey(dir, key) },
		},
		Footprint: func(context.Context) (map[string]int, error) { return countFiles(dir) },
		Reopen: func(ctx context.Context, base driver.Token) (driver.Driver, error) {
			return openDirectory(ctx, dir, &filelock.Options{TokenBase: base})
		},
		Fresh: func(ctx context.Context, base driver.Token) (driver.Driver, error) {
			fresh, err := os.MkdirTemp(dir, "fresh")
			if err != nil {
				return nil, err
			}
			return openDirectory(ctx, filepath.Join(fresh, "locks"), &filelock.Options{TokenBase: base})
		},
	}, true
}

// openDirectory opens a directory; an error is not wrapped into a driver that is nil.
func openDirectory(ctx context.Context, dir string, o *filelock.Options) (driver.Driver, error) {
	d, err := filelock.NewDriver(ctx, dir, o)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// removeKey removes the directory whose records name the key, as rm -r would.
func removeKey(dir, key string) error {
	record, err := recordOf(dir, key)
	if err != nil {
		return err
	}
	return os.RemoveAll(filepath.Dir(record))
}

// overwriteKey puts another file in the place of the key's record, as an editor would.
func overwriteKey(dir, key string) error {
	record, err := recordOf(dir, key)
	if err != nil {
		return err
	}
	other := record + ".edited"
	if err := os.WriteFile(other, []byte("nonsense\n"), 0o644); err != nil {
		return err
	}
	return os.Rename(other, record)
}

// recordOf finds a record that names the key: its newest, where it was used only once.
func recordOf(dir, key string) (string, error) {
	quoted, err := json.Marshal(key)
	if err != nil {
		return "", err
	}
	found := ""
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil // other cases make and remove theirs meanwhile
		}
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, quoted) {
			found = path
		}
		return nil
	})
	if found == "" {
		return "", errors.Join(err, fmt.Errorf("no record names %q", key))
	}
	return found, nil
}

// countFiles counts what a directory holds, and this process's descriptors of that.
func countFiles(dir string) (map[string]int, error) {
	n := map[string]int{}
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			n["files"]++
		}
		return nil
	})
	open, _ := filepath.Glob("/proc/self/fd/*") // on Linux
	for _, fd := range open {
		if to, _ := os.Readlink(fd); strings.HasPrefix(to, dir) {
			n["descriptors"]++
		}
	}
	return n, err
}
