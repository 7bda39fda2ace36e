package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/epoch"
)

// Driver keeps locks in a directory. Several Lockers may share one.
type Driver struct {
	*epoch.Driver
	store *store
}

const (
	// minTTL leaves room for a renewal every third of it on a busy disk.
	minTTL = 200 * time.Millisecond
	// slack is how late an answer may come: what a call is waited for after its
	// deadline, and what a loaded machine needs to schedule the answer.
	slack              = 200 * time.Millisecond
	pollMin, pollMax   = 10 * time.Millisecond, 250 * time.Millisecond
	granularityPerTTL  = 20 // a coarse clock's error is at most this part of a ttl
	dirModeByDefault   = 0o755
	permissions        = 0o7777
	othersMayWrite     = 0o022
	filePermissions    = 0o666
	filesOfOneUserMode = 0o644
)

// NewDriver opens the directory dir, making it and the namespace in it if need be. It
// fails with driver.ErrUnsupported where locks would mean nothing (a network file
// system, no flock, no boot id), with driver.ErrLayout where the namespace was made
// with other options, and with driver.ErrUnavailable and the *fs.PathError where the
// file system refuses. The caller closes the driver.
func NewDriver(ctx context.Context, dir string, o *Options) (*Driver, error) {
	h, err := thisHost()
	if err != nil {
		return nil, err
	}
	return open(ctx, dir, o, kernel{}, h)
}

func open(ctx context.Context, dir string, o *Options, sys system, h host) (*Driver, error) {
	if o == nil {
		o = &Options{}
	}
	ns := o.Namespace
	if ns == "" {
		ns = defaultNamespace
	}
	if strings.ContainsAny(ns, "/\x00") || ns[0] == '.' || len(ns) > maxName {
		return nil, driver.Wrap(driver.ErrLayout, fmt.Errorf("namespace %q: want a plain name of one directory", ns))
	}
	if o.TokenBase > driver.MaxToken/2 {
		return nil, driver.Wrap(driver.ErrLayout, fmt.Errorf("token base %v leaves no tokens", o.TokenBase))
	}
	abs, err := filepath.Abs(dir)
	if dir == "" {
		err = os.ErrNotExist
	}
	if err != nil {
		return nil, driver.Wrap(driver.ErrUnavailable, fmt.Errorf("directory %q: %w", dir, err))
	}
	s := &store{sys: sys, host: h, dir: filepath.Join(abs, ns), sync: !o.NoSync, known: map[string]parents{}}
	s.held.byID = map[leaseID]*lease{}
	if err := s.makeNamespace(abs); err != nil {
		return nil, err
	}
	magic, err := sys.statfs(s.dir)
	if err != nil {
		return nil, refused("statfs", s.dir, err)
	}
	fs, err := accept(magic)
	if err != nil {
		return nil, err
	}
	if err := s.probe(); err != nil {
		return nil, err
	}
	if err := s.agree(ctx, o); err != nil {
		return nil, err
	}
	return &Driver{store: s, Driver: epoch.New(s, epoch.Options{Info: s.info(fs), TokenBase: o.TokenBase, Keep: o.Keep})}, nil
}

// Close ends no grant: what is held stays held for its ttl, as long as the process
// lives. It waits for clean-ups and for system calls in flight.
func (d *Driver) Close() error {
	err := d.Driver.Close()
	d.store.close()
	return err
}

// File returns a duplicate of the descriptor that holds the grant, for a child process
// to inherit: the key then stays held, though at most for its ttl, until every process
// that kept the descriptor is gone. Nobody may unlock it or flock it again. The caller
// closes the file. The grant must be a live one of this package (Lease.Grant):
// another's is driver.ErrUnsupported, one that is over driver.ErrLost.
func File(g driver.Grant) (*os.File, error) {
	d, ok := epoch.HolderOf(g)
	if !ok {
		return nil, driver.Wrap(driver.ErrUnsupported, errors.New("the grant is not filelock's"))
	}
	v, live := d.Held(g)
	l, ok := v.(*lease)
	switch {
	case !live:
		return nil, driver.ErrLost
	case !ok:
		return nil, driver.Wrap(driver.ErrUnsupported, errors.New("the grant is not filelock's"))
	}
	fd, done, ok := l.use(kernel{})
	if !ok {
		return nil, driver.ErrLost
	}
	defer done()
	dup, err := kernel{}.dup(fd)
	if err != nil {
		return nil, refused("dup", l.path, err)
	}
	return os.NewFile(uintptr(dup), l.path), nil
}

func (s *store) info(fs fileSystem) driver.Info {
	i := driver.Info{
		Name:        name,
		Tokens:      driver.Durable,
		ExpiryClock: "the boot clock of the host, read by whoever wants the key",
		Waiting:     driver.WaitPoll,
		MinTTL:      max(minTTL, granularityPerTTL*s.margin),
		Slack:       slack + s.margin,
		Features:    []driver.Feature{driver.FeatureProcesses, driver.FeatureFreeOnExit},
		Poll:        driver.Backoff{Min: pollMin, Max: pollMax},

		RenewChangesState: true,
	}
	switch {
	case !s.sync:
		i.Tokens, i.FailoverLoses = driver.BestEffort, "a power loss can lose the last tokens (sync=off)"
	case !fs.keeps:
		i.Tokens, i.FailoverLoses = driver.BestEffort, "a restart can lose all tokens ("+fs.name+")"
	}
	return i
}

// makeNamespace makes the directory and the namespace's in it. The namespace takes the
// directory's mode, and everything in it the namespace's: a directory that several
// users share works if it was made for that.
func (s *store) makeNamespace(dir string) error {
	if err := os.MkdirAll(dir, dirModeByDefault); err != nil {
		return driver.Wrap(driver.ErrUnavailable, err)
	}
	st, err := s.sys.lstat(s.dir)
	if errors.Is(err, syscall.ENOENT) {
		base, err := os.Stat(dir)
		if err != nil {
			return driver.Wrap(driver.ErrUnavailable, err)
		}
		s.modes(modeOf(base))
		if err := s.mkdir(s.dir); err != nil {
			return refused("mkdir", s.dir, err)
		}
		st, err = s.sys.lstat(s.dir)
		if err != nil {
			return refused("stat", s.dir, err)
		}
	} else if err != nil {
		return refused("stat", s.dir, err)
	}
	if st.mode&syscall.S_IFMT != syscall.S_IFDIR {
		return refused("open", s.dir, syscall.ENOTDIR)
	}
	s.modes(st.mode & permissions)
	return nil
}

func modeOf(i os.FileInfo) uint32 {
	if st, ok := i.Sys().(*syscall.Stat_t); ok {
		return st.Mode & permissions
	}
	return uint32(i.Mode().Perm())
}

func (s *store) modes(dir uint32) {
	s.dirMode, s.shared = dir, dir&othersMayWrite != 0
	s.fileMode = filesOfOneUserMode
	if s.shared {
		s.fileMode = dir & filePermissions
	}
}

// probe finds out, on a file that never gets a name, what the file system can do.
func (s *store) probe() error {
	f, err := s.sketchIn(s.dir)
	if err != nil {
		return refused("create", s.dir, err)
	}
	defer f.discard()
	// A time whose every digit matters, in the past of any boot clock that is worth
	// asking.
	const odd = 1234567*time.Second + 123456789*time.Nanosecond
	if err := s.sys.touch(f.fd, odd); err != nil {
		return driver.Wrap(driver.ErrUnsupported, fmt.Errorf("set a modification time in %s: %w", s.dir, err))
	}
	st, err := s.sys.fstat(f.fd)
	if err != nil {
		return refused("stat", s.dir, err)
	}
	if s.margin, err = granularity(odd, st.mtime); err != nil {
		return err
	}
	return s.lock(f)
}

// lock locks a file as a grant does.
func (s *store) lock(f *sketch) error {
	if err := s.sys.flock(f.fd, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return driver.Wrap(driver.ErrUnsupported, fmt.Errorf("flock in %s: %w", s.dir, err))
	}
	return nil
}

// excludes finds out, on a locked file, whether flock means anything here. Whoever makes
// the namespace does that once for all.
func (s *store) excludes(f *sketch) error {
	other, err := s.sys.open("/proc/self/fd/"+strconv.Itoa(f.fd), syscall.O_RDONLY, 0)
	if err != nil {
		return driver.Wrap(driver.ErrUnsupported, fmt.Errorf("open a file again through /proc: %w", err))
	}
	defer func() { _ = s.sys.close(other) }()
	switch err := s.sys.flock(other, syscall.LOCK_SH|syscall.LOCK_NB); {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return nil
	case err == nil:
		return driver.Wrap(driver.ErrUnsupported, fmt.Errorf("flock in %s does not exclude", s.dir))
	default:
		return driver.Wrap(driver.ErrUnsupported, fmt.Errorf("flock in %s: %w", s.dir, err))
	}
}

// agree reads or makes the namespace record.
func (s *store) agree(ctx context.Context, o *Options) error {
	layout := driver.Layout{Backend: name, TokenBase: o.TokenBase, Settings: map[string]string{"escape": "1"}}
	if o.NoSync {
		layout.Settings["sync"] = "off"
	}
	path := s.dir + "/" + layoutName
	return layout.Agree(ctx, driver.LayoutStore{
		Read: func(context.Context) ([]byte, error) {
			fd, err := s.sys.open(path, syscall.O_RDONLY|syscall.O_NOFOLLOW, 0)
			if errors.Is(err, syscall.ENOENT) {
				return nil, nil
			}
			if err != nil {
				return nil, refused("open", path, err)
			}
			defer func() { _ = s.sys.close(fd) }()
			b, err := slurp(s.sys, fd)
			if err != nil {
				return nil, refused("read", path, err)
			}
			if b == nil {
				b = []byte{}
			}
			return b, nil
		},
		Create: func(_ context.Context, record []byte) (bool, error) { return s.createLayout(path, record) },
	})
}

func (s *store) createLayout(path string, record []byte) (bool, error) {
	if err := s.settleAncestors(); err != nil {
		return false, refused("sync", s.dir, err)
	}
	f, err := s.sketchIn(s.dir)
	if err != nil {
		return false, refused("create", path, err)
	}
	defer func() { f.discard() }()
	if err := s.lock(f); err != nil {
		return false, err
	}
	if err := s.excludes(f); err != nil {
		return false, err
	}
	err = f.fill(record)
	if err == nil && s.shared {
		err = s.sys.chmod(f.fd, s.fileMode)
	}
	if err == nil && s.sync {
		err = s.sys.sync(f.fd)
	}
	if err != nil {
		return false, refused("write", path, err)
	}
	err = f.link(s, path)
	switch {
	case errors.Is(err, errNoLink):
		return s.createLayout(path, record)
	case errors.Is(err, syscall.EEXIST):
		return false, nil
	case err != nil:
		return false, refused("link", path, err)
	}
	if s.sync {
		if err := s.syncDir(s.dir); err != nil {
			return false, refused("sync", s.dir, err)
		}
	}
	return true, nil
}
