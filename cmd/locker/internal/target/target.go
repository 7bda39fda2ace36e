// Package target decides where a lock lives: a URL, or else a directory of this user.
package target

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

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
		dir, err := defaultDir(local)
		return Target{Dir: dir, Unasked: !local}, err
	}
	scheme, _, ok := strings.Cut(u, ":")
	scheme = strings.ToLower(scheme)
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

// TTL is the ttl that the URL names; 0: none, or none that Open takes.
func (t Target) TTL() time.Duration {
	u, err := url.Parse(t.URL)
	if err != nil {
		return 0
	}
	ttl, _ := time.ParseDuration(u.Query().Get("ttl")) // 0 with an error
	return max(ttl, 0)
}

// Used reports whether anybody has locked here yet, and makes nothing. What it cannot
// tell is "yes": Open finds out what is wrong. A directory that was named and is not
// there is an error, for it may be a typo.
func (t Target) Used() (bool, error) {
	dir, namespace := t.Dir, defaultNamespace
	if t.URL != "" {
		u, err := url.Parse(t.URL)
		if err != nil || u.Path == "" || u.Host != "" || u.Fragment != "" {
			return true, nil
		}
		dir, namespace = u.Path, cmp.Or(u.Query().Get("ns"), defaultNamespace)
		if missing(dir) {
			return false, fmt.Errorf("%s: there is no directory %s; the first locker run makes it", t, dir)
		}
	}
	return !missing(filepath.Join(dir, namespace)), nil
}

// defaultNamespace is the library's: a directory below the one that the URL names.
const defaultNamespace = "locker"

func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// Open opens the backend, making it if need be.
func (t Target) Open(ctx context.Context, o *locker.Options) (*locker.Locker, error) {
	raw := t.URL
	if raw == "" {
		if err := os.MkdirAll(t.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("the default directory cannot be made: %w (set LOCKER_URL to lock somewhere else)", err)
		}
		raw = (&url.URL{Scheme: "file", Path: filepath.ToSlash(t.Dir)}).String()
	}
	silence()
	l, err := locker.Open(ctx, raw, o)
	if err != nil {
		return nil, Plain(err)
	}
	return l, nil
}

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
func defaultDir(local bool) (string, error) {
	instead := "set LOCKER_URL"
	if local { // which does not look at it
		instead = "instead of --local pass --url"
	}
	if runtime.GOOS == "windows" {
		if dir := os.Getenv("LOCALAPPDATA"); filepath.IsAbs(dir) {
			return filepath.Join(dir, "locker"), nil
		}
		return "", noDir("LOCALAPPDATA", instead)
	}
	// The XDG Base Directory Specification: a relative path is invalid and ignored.
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "locker"), nil
	}
	if home := os.Getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "locker"), nil
	}
	return "", noDir("HOME", instead)
}

func noDir(variable, instead string) error {
	is := "is not set"
	if v := os.Getenv(variable); v != "" {
		is = fmt.Sprintf("is %q, which is not an absolute path", v)
	}
	return fmt.Errorf("%s %s, so there is no directory to lock in: set %s, or %s (file:///var/lib/locks, say)", variable, is, variable, instead)
}
