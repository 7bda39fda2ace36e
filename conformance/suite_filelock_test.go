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
	"testing"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/filelock"
)

// envDirectory is where children find the directory.
const envDirectory = "LOCKER_CONFORMANCE_DIRECTORY"

// TestMain makes the test binary its own child process.
func TestMain(m *testing.M) {
	conformance.ServeIfChild(func(ctx context.Context) (driver.Driver, error) {
		return openDirectory(ctx, os.Getenv(envDirectory), nil)
	})
	os.Exit(m.Run())
}

// The directory is where the process cases run: it excludes other processes. Its waiters
// poll, and its holders count on the boot clock, which memlock's do not.
func TestFilelock(t *testing.T) {
	dir := t.TempDir()
	open := func(ctx context.Context) (driver.Driver, error) { return openDirectory(ctx, dir, nil) }
	control, err := open(t.Context())
	if errors.Is(err, driver.ErrUnsupported) {
		t.Log("not here:", err)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = control.Close() })
	conformance.Run(t, conformance.Harness{
		Driver: open,
		Control: func(ctx context.Context) error {
			_, err := control.(driver.Inspector).Inspect(ctx, "control")
			return err
		},
		Child: func(ctx context.Context) (*exec.Cmd, error) {
			cmd, err := conformance.Self(ctx)
			if err == nil {
				cmd.Env = append(os.Environ(), envDirectory+"="+dir)
			}
			return cmd, err
		},
		Faults: conformance.Faults{
			Client: func(ctx context.Context) (driver.Driver, conformance.Network, error) { return networked(open(ctx)) },
			Remove: func(_ context.Context, key string) error { return removeKey(dir, key) },
		},
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
	})
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
	quoted, err := json.Marshal(key)
	if err != nil {
		return err
	}
	found := ""
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil // other cases make and remove theirs meanwhile
		}
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, quoted) {
			found = filepath.Dir(path)
		}
		return nil
	})
	if found == "" {
		return errors.Join(err, fmt.Errorf("no record names %q", key))
	}
	return os.RemoveAll(found)
}
