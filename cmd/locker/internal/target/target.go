// Package target decides where a lock lives: a URL, or else a directory of this user.
package target

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/filelock"
)

// Target is where locks live.
type Target struct {
	URL string // empty: the default directory
	// Dir is the default directory; empty with a URL.
	Dir string
	// Unasked: nobody has said that locking on this host only is what they want.
	Unasked bool
}

// Warning is what is said once when nobody has chosen a place: a cron job that lost its
// LOCKER_URL must not become one lock per host in silence.
const Warning = "locking on this host only; set LOCKER_URL or pass --local"

// URLVariable names the environment variable with the URL.
const URLVariable = "LOCKER_URL"

// Choose decides between the flag, the environment and the default directory. local is
// --local: the default directory, whatever the environment says.
func Choose(flag string, local bool) (Target, error) {
	u := flag
	switch {
	case local && flag != "":
		return Target{}, errors.New("--local and --url exclude each other")
	case !local && flag == "":
		u = os.Getenv(URLVariable)
	}
	if u == "" {
		dir, err := defaultDir()
		return Target{Dir: dir, Unasked: !local}, err
	}
	scheme, _, ok := strings.Cut(u, ":")
	switch {
	case scheme == "mem":
		return Target{}, errors.New("a mem:// lock is private to one process and excludes nobody; for a lock on this host pass --local")
	case !ok:
		return Target{}, fmt.Errorf("%q is not a URL: for a directory write file://%s", u, filepath.ToSlash(absolute(u)))
	case !slices.Contains(locker.Schemes(), scheme):
		return Target{}, fmt.Errorf("%s: this command has no backend for %s://, only for %s://",
			locker.RedactURL(u), scheme, strings.Join(locker.Schemes(), "://, "))
	}
	return Target{URL: u}, nil
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// String names the place for people, without secrets.
func (t Target) String() string {
	if t.URL != "" {
		return locker.RedactURL(t.URL)
	}
	return t.Dir
}

// Open opens the backend.
func (t Target) Open(ctx context.Context, o *locker.Options) (*locker.Locker, error) {
	raw := t.URL
	if raw == "" {
		if err := os.MkdirAll(t.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("the default directory cannot be made: %w (set LOCKER_URL to lock somewhere else)", err)
		}
		raw = (&url.URL{Scheme: "file", Path: filepath.ToSlash(t.Dir)}).String()
	}
	l, err := locker.Open(ctx, raw, o)
	if err != nil {
		// Whoever reads this has called a command of the library's name.
		return nil, plainError{err}
	}
	return l, nil
}

// plainError is an error whose text does not begin with the library's name.
type plainError struct{ error }

func (e plainError) Error() string { return strings.TrimPrefix(e.error.Error(), "locker: ") }
func (e plainError) Unwrap() error { return e.error }

// Descriptor returns a file that keeps the lease's key taken for as long as anybody has
// it open, at the longest for the ttl; nil if the backend has no such thing.
func Descriptor(l *locker.Lease) (*os.File, error) {
	f, err := filelock.File(l.Grant())
	if errors.Is(err, locker.ErrUnsupported) {
		return nil, nil
	}
	return f, err
}

// defaultDir is the user's state folder. There is no other fallback: two jobs that fell
// back to different directories would not exclude each other.
func defaultDir() (string, error) {
	if runtime.GOOS == "windows" {
		if dir := os.Getenv("LOCALAPPDATA"); filepath.IsAbs(dir) {
			return filepath.Join(dir, "locker"), nil
		}
		return "", errors.New("LOCALAPPDATA is not set, so there is no directory to lock in: set LOCKER_URL")
	}
	// The XDG Base Directory Specification: a relative path is invalid and ignored.
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "locker"), nil
	}
	if home := os.Getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "locker"), nil
	}
	return "", errors.New("HOME is not set, so there is no directory to lock in: set HOME or LOCKER_URL (file:///var/lib/locks, say)")
}
