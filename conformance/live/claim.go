package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/moby/moby/client"
)

// A claim is a file that is named after a run and says in which Docker it starts things. The test binary keeps it locked, and
// the kernel ends the lock with the process, however that ends: who gets the lock of another run's claim knows that nobody
// will ask for what it has started. A reaper need not be dead for that: two may remove the same things.

// sweepsWithin bounds what a run spends on what others have left.
const sweepsWithin = time.Minute

// errClaimed is the error of a lock that somebody else has.
var errClaimed = errors.New("another process has the lock")

// claims returns the folder of this user's claims on this host. A container has a host name of its own: folders that machines
// share, and that may not know each other's locks, prove nothing.
func claims() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil { // there is no home
		cache = os.TempDir()
	}
	return filepath.Join(cache, "locker-live", host), nil
}

// newClaim makes a run's claim and locks it. The lock ends with the file, which must therefore be kept.
func newClaim(dir, run, daemon string) (*os.File, error) {
	const (
		attempts = 50
		pause    = 10 * time.Millisecond // who has the lock may need a processor to be done with it
	)
	path := filepath.Join(dir, run)
	for attempt := 1; ; attempt++ {
		f, err := tryClaim(dir, path, daemon)
		// Another run's end may take the empty folders away, and its sweep the file that has no lock yet.
		passes := errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) || errors.Is(err, errClaimed)
		if err == nil || !passes || attempt == attempts {
			return f, err
		}
		<-time.After(pause)
	}
}

// tryClaim is newClaim, once.
func tryClaim(dir, path, daemon string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err = lockClaim(f, path); err == nil {
		_, err = f.WriteString(daemon)
	}
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, errors.ErrUnsupported) { // nobody could ever prove that the run is dead
		dropClaim(dir, filepath.Base(path))
	}
	return nil, fmt.Errorf("%s: %w", path, err)
}

// lockClaim locks an open claim, if it is still the one at this path.
func lockClaim(f *os.File, path string) error {
	if err := flock(f); err != nil {
		return err
	}
	opened, err := f.Stat()
	if err != nil {
		return err
	}
	if there, err := os.Stat(path); err != nil || !os.SameFile(opened, there) {
		return errClaimed // and removed
	}
	return nil
}

// dropClaim removes a run's claim, and the folders that it leaves empty.
func dropClaim(dir, run string) {
	if os.Remove(filepath.Join(dir, run)) == nil && os.Remove(dir) == nil {
		os.Remove(filepath.Dir(dir))
	}
}

// sweep removes from one Docker what is left of runs that have died together with their reapers. What belongs to live runs,
// to other hosts and to other Dockers stays.
func sweep(docker client.APIClient, dir, daemon string) error {
	ctx, cancel := context.WithTimeout(context.Background(), sweepsWithin)
	defer cancel()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, entry := range entries {
		if !entry.Type().IsRegular() { // to open or to read it might take for ever
			errs = append(errs, fmt.Errorf("%s is not a run's claim", filepath.Join(dir, entry.Name())))
			continue
		}
		errs = append(errs, sweepRun(ctx, docker, dir, entry.Name(), daemon))
	}
	return errors.Join(errs...)
}

// sweepRun removes what is left of one run, if that is dead.
func sweepRun(ctx context.Context, docker client.APIClient, dir, run, daemon string) error {
	path := filepath.Join(dir, run)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it has ended meanwhile
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := lockClaim(f, path); err != nil {
		if errors.Is(err, errClaimed) || errors.Is(err, errors.ErrUnsupported) {
			return nil // it lives, or somebody else sweeps, or nobody can know
		}
		return err
	}
	of, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	switch string(of) {
	case daemon:
		if err := reap(ctx, docker, run, reaperSettles); err != nil {
			return err
		}
	case "": // it had not started anything yet
	default:
		return nil
	}
	dropClaim(dir, run)
	return nil
}
