package filelock

import (
	"context"
	"errors"
	"syscall"

	"github.com/fencelock/locker/epoch"
)

// End makes lock-N.end. That it exists takes the right to renew; what it says is
// written afterwards, because even a full disk takes an empty file. Over an end that
// only broke the grant, or that its writer never finished, a complete file is renamed:
// the name never goes away, and content goes only from broken to ended.
func (s *store) End(ctx context.Context, key string, n uint64, v epoch.Version, r epoch.Record) error {
	_, err := do(ctx, s, func() (struct{}, error) { return struct{}{}, s.end(key, n, v, r) })
	return err
}

func (s *store) end(key string, n uint64, v epoch.Version, r epoch.Record) error {
	l, own := v.(*lease)
	var file identity
	if own {
		file = l.file
	} else {
		file, _ = v.(identity)
	}
	path := s.recordPath(key, n)
	name := recordName(n)
	// The end is made in the directory in which the record was found, whatever that is
	// called meanwhile: nothing is ever made beside a stranger's record.
	dir, err := s.sys.open(s.keyDir(key), oPath|syscall.O_DIRECTORY, 0)
	switch {
	case errors.Is(err, syscall.ENOENT):
		return epoch.ErrNotExist
	case err != nil:
		return refused("open", s.keyDir(key), err)
	}
	defer func() { _ = s.sys.close(dir) }()
	st, err := s.sys.lstat(procPath(dir, name))
	switch {
	case errors.Is(err, syscall.ENOENT):
		return epoch.ErrNotExist
	case err != nil:
		return refused("stat", path, err)
	case st.id != file:
		return epoch.ErrChanged
	}
	content, err := epoch.Encode(body{Record: r, Boot: s.host.boot, Machine: s.host.machine})
	if err != nil {
		return refused("encode", path, err)
	}
	durable := s.sync && s.host.machine == "" // else another boot makes the record dead
	fd, err := s.sys.openat(dir, name+endSuffix, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL, s.fileMode)
	switch {
	case errors.Is(err, syscall.EEXIST):
		return s.endBroken(dir, path, content, r.Ending.Kind, own, durable)
	case err != nil:
		return refused("create", path+endSuffix, err)
	}
	err = writeAll(s.sys, fd, content)
	if s.shared {
		err = errors.Join(err, s.sys.chmod(fd, s.fileMode))
	}
	if err == nil && durable {
		err = s.sys.sync(fd)
	}
	_ = s.sys.close(fd)
	if err != nil && r.Ending.Kind == epoch.BrokenNow {
		return unclear("write", path+endSuffix, err) // broken, but not at once
	}
	// A holder's own end frees the key when its descriptor is closed, a seal's holder
	// has lapsed, and a broken record need not say more than that.
	return nil
}

// endBroken is End where an end exists.
func (s *store) endBroken(dir int, path string, content []byte, kind epoch.Kind, own, durable bool) error {
	state, was, err := s.readEnd(procPath(dir, lastName(path)+endSuffix))
	switch {
	case err != nil:
		return err
	case state == ended, !kind.Ends(), kind == epoch.Sealed, !own && kind != epoch.BrokenNow:
		return epoch.ErrChanged
	}
	err = s.replace(dir, lastName(path)+endSuffix, content, durable)
	switch {
	case own && kind != epoch.BrokenNow && was.Ending.Kind == epoch.Broken:
		return epoch.ErrChanged // somebody has broken it before: the holder is told that
	case own && kind != epoch.BrokenNow:
		return nil // its descriptor is closed next
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES): // another user's, in a sticky directory
		return refused("replace", path+endSuffix, err)
	case err != nil:
		return unclear("replace", path+endSuffix, err)
	}
	return nil
}
