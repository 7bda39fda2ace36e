package filelock

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/epoch"
)

// store is a directory as the epoch algorithm sees it.
type store struct {
	sys  system
	host host
	dir  string // the namespace's, absolute

	margin   time.Duration // how coarsely the file system keeps times
	sync     bool
	shared   bool // others may write here: files and directories take its mode
	fileMode uint32
	dirMode  uint32
	named    atomic.Bool // files without a name are not possible here

	held leases

	mu     sync.Mutex
	known  map[string]parents
	closed bool
	calls  sync.WaitGroup
}

// body is what a record's file holds.
type body struct {
	epoch.Record
	Boot    string `json:"boot,omitempty"`
	Machine string `json:"machine,omitempty"`
	// GrantedMS is the boot clock at the grant, for people who ask since when.
	GrantedMS int64 `json:"granted_ms,omitempty"`
}

func (s *store) keyDir(key string) string { return s.dir + "/" + escape(key) }

func (s *store) recordPath(key string, n uint64) string { return s.keyDir(key) + "/" + recordName(n) }

// now is the boot clock as processes outside any time namespace read it.
func (s *store) now() (time.Duration, error) {
	t, err := s.sys.clock()
	return t - s.host.offset, err
}

// Newest lists the key's directory.
func (s *store) Newest(ctx context.Context, key string) (uint64, error) {
	return s.Below(ctx, key, math.MaxUint64)
}

// Below lists the key's directory, too.
func (s *store) Below(ctx context.Context, key string, limit uint64) (uint64, error) {
	return do(ctx, s, func() (uint64, error) {
		names, err := s.list(s.keyDir(key), true)
		if errors.Is(err, syscall.ENOENT) {
			return 0, nil
		}
		if err != nil {
			return 0, refused("list", s.keyDir(key), err)
		}
		var newest uint64
		for _, name := range names {
			if n, suffix, ok := number(name); ok && suffix == "" && n < limit {
				newest = max(newest, n)
			}
		}
		return newest, nil
	})
}

// Create writes the record to a file without a name, locks it, makes it durable and
// only then gives it its name.
func (s *store) Create(ctx context.Context, key string, n uint64, r epoch.Record) (epoch.Version, error) {
	l, err := do(ctx, s, func() (*lease, error) { return s.create(ctx, key, n, r) })
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (s *store) create(ctx context.Context, key string, n uint64, r epoch.Record) (*lease, error) {
	dir, path := s.keyDir(key), s.recordPath(key, n)
	tombstone := r.Ending.Kind.Ends() // ended from birth: there is nothing to hold
	if !tombstone {
		if follows, err := s.follows(key, n); err != nil || !follows {
			return nil, usedUp(err)
		}
	}
	now, err := s.now()
	if err != nil {
		return nil, refused("clock", path, err)
	}
	content, err := epoch.Encode(body{Record: r, Boot: s.host.boot, Machine: s.host.machine, GrantedMS: now.Milliseconds()})
	if err != nil {
		return nil, refused("encode", path, err)
	}
	f, fresh, err := s.sketchKey(dir)
	if err != nil {
		return nil, refused("create", path, err)
	}
	l := &lease{id: leaseID{r.Holder, key, n}, path: path, fd: f.fd, turn: make(chan struct{}, 1)}
	if err := s.prepare(f, l, content, now); err != nil {
		f.discard()
		return nil, refused("write", path, err)
	}
	if err := ctx.Err(); err != nil {
		f.discard()
		return nil, refused("link", path, err)
	}
	if !tombstone && !s.held.put(l) {
		f.discard()
		return nil, unclear("link", path, errInFlight)
	}
	// The link goes by the descriptor's number: it must not be closed under it.
	_, done, _ := l.use(s.sys)
	defer done()
	switch err := f.link(s, path); {
	case err == nil:
	case errors.Is(err, errNoLink), f.temp != "" && errors.Is(err, syscall.ENOENT):
		// Under a temporary name from now on; or that name was swept before it was locked.
		s.Drop(l)
		return s.create(ctx, key, n, r)
	case errors.Is(err, syscall.EIO):
		return nil, unclear("link", path, err) // and the lease stays registered
	default:
		f.untemp()
		s.Drop(l)
		if errors.Is(err, syscall.EEXIST) {
			return nil, epoch.ErrExist
		}
		return nil, refused("link", path, err)
	}
	if tombstone {
		if undone := s.held.get(l.id); undone != nil {
			s.Drop(undone) // its link, still on its way, finds the number taken
		}
	}
	// An end that is already there belongs to an earlier use of the number.
	if _, err := s.sys.lstat(path + endSuffix); !errors.Is(err, syscall.ENOENT) {
		if err == nil {
			s.Drop(l)
			return nil, epoch.ErrExist
		}
		return nil, s.giveBack(l, r, "stat", err)
	}
	if !tombstone {
		if follows, err := s.follows(key, n); err != nil || !follows {
			return nil, s.takeBack(l, r, err)
		}
	}
	if err := s.settle(key, n, fresh); err != nil {
		return nil, s.giveBack(l, r, "sync", err)
	}
	return l, nil
}

// sketchKey makes an empty file in the key's directory, and the directory if need be.
func (s *store) sketchKey(dir string) (f *sketch, fresh bool, err error) {
	f, err = s.sketchIn(dir)
	if !errors.Is(err, syscall.ENOENT) {
		return f, false, err
	}
	if err := s.mkdir(dir); err != nil {
		return nil, false, err
	}
	f, err = s.sketchIn(dir)
	return f, true, err
}

// mkdir makes a directory with the namespace's mode. Where others must be able to write in
// it, it has that mode before it has its name: the umask takes it away at first, and who
// is killed behind the mkdir would leave a key that only its own user can have.
func (s *store) mkdir(dir string) error {
	if !s.shared {
		if err := s.sys.mkdir(dir, s.dirMode); !errors.Is(err, syscall.EEXIST) {
			return err
		}
		return nil
	}
	parent := filepath.Dir(dir)
	temp := parent + "/" + tempName()
	if err := s.sys.mkdir(temp, s.dirMode); err != nil {
		return err
	}
	err := s.nameDir(parent, temp, dir)
	if err == nil {
		return nil
	}
	_ = s.sys.rmdir(temp)
	if st, serr := s.sys.lstat(dir); serr == nil && st.mode&syscall.S_IFMT == syscall.S_IFDIR {
		return nil // somebody else's, and not empty, or not ours to replace
	}
	return err
}

// nameDir gives a directory its mode and then its name. Nothing is lost if that is the
// name of an empty one.
func (s *store) nameDir(parent, temp, dir string) error {
	fd, err := s.sys.open(temp, syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = s.sys.close(fd) }()
	if err := s.sys.chmod(fd, s.dirMode); err != nil {
		return err
	}
	in, err := s.sys.open(parent, oPath|syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = s.sys.close(in) }()
	return s.sys.renameat(in, lastName(temp), lastName(dir))
}

// prepare makes the file what it will be from the moment it has a name: complete, its
// beat set to the boot clock as it was when its holder began, locked by this process,
// and durable.
func (s *store) prepare(f *sketch, l *lease, content []byte, beat time.Duration) error {
	if err := f.fill(content); err != nil {
		return err
	}
	if s.shared {
		if err := s.sys.chmod(f.fd, s.fileMode); err != nil {
			return err
		}
	}
	st, err := s.sys.fstat(f.fd)
	if err != nil {
		return err
	}
	l.file = st.id
	if err := s.sys.flock(f.fd, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return err
	}
	if err := s.sys.touch(f.fd, beat); err != nil {
		return err
	}
	if s.sync {
		return s.sys.sync(f.fd)
	}
	return nil
}

// giveBack ends a record that was linked but may not be granted. If it cannot be ended
// nobody knows who will get it.
func (s *store) giveBack(l *lease, r epoch.Record, op string, cause error) error {
	r.Ending = epoch.Ending{Kind: epoch.Discarded, By: r.Owner}
	if err := s.end(l.id.key, l.id.n, l, r); err != nil && !errors.Is(err, epoch.ErrChanged) && !errors.Is(err, epoch.ErrNotExist) {
		return unclear(op, l.path, errors.Join(cause, err))
	}
	s.Drop(l)
	return refused(op, l.path, cause)
}

// follows reports whether the number before n has ended, as it has behind every grant. It
// has not where somebody removed the key's directory: then the numbers began again, and n
// comes from a memory of the old ones, while a holder of a new one may be alive.
func (s *store) follows(key string, n uint64) (bool, error) {
	if n == 1 {
		return true, nil
	}
	before := s.recordPath(key, n-1)
	_, err := s.sys.lstat(before + endSuffix)
	switch {
	case err == nil:
		return true, nil
	case !errors.Is(err, syscall.ENOENT):
		return false, refused("stat", before+endSuffix, err)
	}
	fd, err := s.sys.open(before, syscall.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ELOOP):
		return false, nil
	case err != nil:
		return false, refused("open", before, err)
	}
	defer func() { _ = s.sys.close(fd) }()
	content, err := slurp(s.sys, fd)
	if err != nil {
		return false, refused("read", before, err)
	}
	var r body
	return json.Unmarshal(content, &r) == nil && r.Ending.Kind.Ends(), nil // a tombstone
}

// usedUp says that a number cannot be had: look again.
func usedUp(err error) error {
	if err != nil {
		return err
	}
	return epoch.ErrExist
}

// takeBack removes a record of mine that should not have been made. Nobody can have built
// on it: it has not ended. Whoever collects old numbers may have been faster.
func (s *store) takeBack(l *lease, r epoch.Record, cause error) error {
	if st, err := s.sys.lstat(l.path); err == nil && st.id == l.file {
		if err := s.sys.unlink(l.path); err != nil && !errors.Is(err, syscall.ENOENT) {
			return s.giveBack(l, r, "unlink", err)
		}
	}
	s.Drop(l)
	return usedUp(cause)
}

// Beat sets the record's modification time, and looks afterwards whether the record is
// still in its place and has no end. It is epoch that compares the time.
func (s *store) Beat(ctx context.Context, key string, n uint64, v epoch.Version, _ epoch.Record) (epoch.Version, error) {
	l, ok := v.(*lease)
	if !ok {
		return nil, driver.ErrLost
	}
	return do(ctx, s, func() (epoch.Version, error) {
		if !l.take(ctx) {
			return nil, unclear("renew", l.path, ctx.Err())
		}
		defer l.give()
		fd, done, ok := l.use(s.sys)
		if !ok {
			return nil, driver.ErrLost
		}
		defer done()
		now, err := s.now()
		if err != nil {
			return nil, refused("clock", l.path, err)
		}
		if err := ctx.Err(); err != nil {
			return nil, refused("renew", l.path, err)
		}
		if err := s.sys.touch(fd, now); err != nil {
			return nil, unclear("renew", l.path, err)
		}
		switch st, err := s.sys.lstat(s.recordPath(key, n)); {
		case errors.Is(err, syscall.ENOENT):
			return nil, epoch.ErrNotExist
		case err != nil:
			return nil, unclear("stat", l.path, err)
		case st.id != l.file:
			return nil, epoch.ErrChanged
		}
		switch _, err := s.sys.lstat(l.path + endSuffix); {
		case err == nil:
			return nil, epoch.ErrChanged
		case !errors.Is(err, syscall.ENOENT):
			return nil, unclear("stat", l.path+endSuffix, err)
		}
		return l, nil
	})
}

// Drop closes the descriptor of a lease.
func (s *store) Drop(v epoch.Version) {
	if l, ok := v.(*lease); ok {
		s.held.remove(l)
		l.drop(s.sys)
	}
}

// Ping asks whether the namespace is there and can be read.
func (s *store) Ping(ctx context.Context) error {
	_, err := do(ctx, s, func() (struct{}, error) {
		fd, err := s.sys.open(s.dir+"/"+layoutName, syscall.O_RDONLY, 0)
		if err != nil {
			return struct{}{}, refused("open", s.dir+"/"+layoutName, err)
		}
		_ = s.sys.close(fd)
		return struct{}{}, nil
	})
	return err
}

// callGrace is how long an answer is waited for after its deadline. A system call on a
// local disk cannot be interrupted; one that takes longer goes on by itself and
// whatever it answers is dropped.
const callGrace = 50 * time.Millisecond

// do makes one step on a goroutine of its own, so that a disk that hangs does not hold
// the caller beyond its deadline. Close waits for it.
func do[T any](ctx context.Context, s *store, f func() (T, error)) (T, error) {
	var zero T
	if err := ctx.Err(); err != nil {
		return zero, driver.Wrap(driver.ErrUnavailable, err)
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return zero, driver.ErrClosed
	}
	s.calls.Add(1)
	s.mu.Unlock()
	type answer struct {
		v   T
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		defer s.calls.Done()
		v, err := f()
		answers <- answer{v, err}
	}()
	select {
	case a := <-answers:
		return a.v, a.err
	case <-ctx.Done():
	}
	grace := time.NewTimer(callGrace)
	defer grace.Stop()
	select {
	case a := <-answers:
		return a.v, a.err
	case <-grace.C:
		return zero, driver.Wrap(driver.ErrAmbiguous, ctx.Err())
	}
}

func (s *store) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.calls.Wait()
}

func procPath(fd int, name string) string { return "/proc/self/fd/" + strconv.Itoa(fd) + "/" + name }

var (
	errNotRegular = errors.New("not a regular file")
	errInFlight   = errors.New("an earlier create of the same attempt has not returned yet")
)
