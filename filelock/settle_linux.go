package filelock

import (
	"errors"
	"path/filepath"
	"syscall"

	"github.com/fencelock/locker/epoch"
)

// parents is what is known of the durability of a key's directory.
type parents struct {
	// synced: this driver has made the directory's own name durable. releasedAt: a
	// holder that did so has released that number.
	synced     bool
	releasedAt uint64
}

const maxKnown = 16 << 10

// remember notes a number that its holder has released: it had made all names durable
// before its grant was returned.
func (s *store) remember(key string, n uint64, v epoch.View) {
	if v.Ended && v.Ending.Kind == epoch.Released {
		s.mu.Lock()
		defer s.mu.Unlock()
		p := s.known[key]
		p.releasedAt = n
		s.put(key, p)
	}
}

func (s *store) put(key string, p parents) {
	for other := range s.known {
		if len(s.known) < maxKnown {
			break
		}
		delete(s.known, other)
	}
	s.known[key] = p
}

// settle makes the record's name durable: the directory it is in and, before this
// driver's first grant of the key, the namespace, whoever made the directory. Without
// it a power loss would take the token back after it was given out.
func (s *store) settle(key string, n uint64, fresh bool) error {
	if !s.sync {
		return nil
	}
	if err := s.syncDir(s.keyDir(key)); err != nil {
		return err
	}
	s.mu.Lock()
	p := s.known[key]
	s.mu.Unlock()
	done := !fresh && (p.synced || n > 1 && p.releasedAt == n-1)
	if !done {
		if err := s.syncDir(s.dir); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p = s.known[key]
	p.synced = true
	s.put(key, p)
	return nil
}

// settleAncestors makes the namespace's own name durable, and the names of the
// directories above it up to the file system's root: any of them may just have been
// made. It runs before the namespace record is, so that the record's existence says
// that it was done.
func (s *store) settleAncestors() error {
	if !s.sync {
		return nil
	}
	here, err := s.sys.lstat(s.dir)
	if err != nil {
		return err
	}
	for dir := filepath.Dir(s.dir); ; dir = filepath.Dir(dir) {
		st, err := s.sys.lstat(dir)
		if err != nil || st.id.dev != here.id.dev {
			return nil // beyond what this process could have made
		}
		if err := s.syncDir(dir); err != nil && !errors.Is(err, syscall.EACCES) {
			return err
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}
