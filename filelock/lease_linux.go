package filelock

import (
	"context"
	"fmt"
	"io/fs"
	"sync"

	"github.com/fencelock/locker/driver"
)

// lease is a record that this process holds: its locked descriptor. One per held key,
// registered before the record is linked, so that no link exists whose descriptor is
// not known.
type lease struct {
	id   leaseID
	file identity
	path string

	// turn is the lease's own mutex. Whoever has it keeps it until the system call has
	// really returned: a renewal that wakes late would set the beat back.
	turn chan struct{}

	mu      sync.Mutex
	fd      int
	users   int
	dropped bool
}

type leaseID struct {
	attempt driver.Attempt
	key     string
	n       uint64
}

// take waits for the lease's turn.
func (l *lease) take(ctx context.Context) bool {
	select {
	case l.turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (l *lease) give() { <-l.turn }

// use returns the descriptor and keeps it open until done is called.
func (l *lease) use(sys system) (fd int, done func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dropped {
		return -1, nil, false
	}
	l.users++
	return l.fd, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.users--; l.users == 0 && l.dropped {
			_ = sys.close(l.fd)
		}
	}, true
}

// drop closes the descriptor, now or when its last user is done.
func (l *lease) drop(sys system) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dropped {
		return
	}
	l.dropped = true
	if l.users == 0 {
		_ = sys.close(l.fd)
	}
}

// leases are the records this store holds, by attempt.
type leases struct {
	mu   sync.Mutex
	byID map[leaseID]*lease
}

// put registers a lease. It reports false if an earlier create of the same number by
// the same attempt has not returned: that one may still be linked.
func (ls *leases) put(l *lease) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.byID[l.id] != nil {
		return false
	}
	ls.byID[l.id] = l
	return true
}

func (ls *leases) get(id leaseID) *lease {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.byID[id]
}

func (ls *leases) remove(l *lease) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.byID[l.id] == l {
		delete(ls.byID, l.id)
	}
}

// refused is what the file system did not do: definite, and worth trying again once
// the cause is gone.
func refused(op, path string, err error) error {
	return driver.Wrap(driver.ErrUnavailable, &fs.PathError{Op: op, Path: path, Err: err})
}

// unclear is what the file system may have done.
func unclear(op, path string, err error) error {
	return driver.Wrap(driver.ErrAmbiguous, &fs.PathError{Op: op, Path: path, Err: err})
}

func corrupt(path string, err error) error {
	return driver.Wrap(driver.ErrCorrupt, fmt.Errorf("%s: %w", path, err))
}
