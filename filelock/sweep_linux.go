package filelock

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"syscall"
)

// Delete removes a record, and then its end: without one it would look live.
func (s *store) Delete(ctx context.Context, key string, n uint64) error {
	_, err := do(ctx, s, func() (struct{}, error) {
		path := s.recordPath(key, n)
		for _, name := range []string{path, path + endSuffix} {
			if err := s.sys.unlink(name); err != nil && !errors.Is(err, syscall.ENOENT) {
				return struct{}{}, refused("remove", name, err)
			}
		}
		return struct{}{}, nil
	})
	return err
}

// Sweep removes everything up to a number, and the temporary files of dead writers.
// What belongs to another user and may not be removed is left alone.
func (s *store) Sweep(ctx context.Context, key string, n uint64) error {
	_, err := do(ctx, s, func() (struct{}, error) {
		dir := s.keyDir(key)
		names, err := s.list(dir, false)
		if err != nil {
			return struct{}{}, refused("list", dir, err)
		}
		for pass := range 2 { // the records first
			for _, name := range names {
				old, suffix, ok := number(name)
				if ok && old <= n && (suffix == "") == (pass == 0) {
					_ = s.sys.unlink(dir + "/" + name)
				}
				if pass == 1 && strings.HasPrefix(name, tempPrefix) {
					s.sweepTemp(dir + "/" + name)
				}
			}
		}
		return struct{}{}, nil
	})
	return err
}

// sweepTemp removes a temporary file unless its writer lives.
func (s *store) sweepTemp(path string) {
	fd, err := s.sys.open(path, syscall.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer func() { _ = s.sys.close(fd) }()
	if s.sys.flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) == nil {
		_ = s.sys.unlink(path)
	}
}

// Keys lists the namespace. A name that is a hash is looked up in its records.
func (s *store) Keys(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		names, err := do(ctx, s, func() ([]string, error) { return s.list(s.dir, false) })
		if err != nil {
			yield("", refused("list", s.dir, err))
			return
		}
		for _, name := range names {
			if name == "" || name[0] == '.' {
				continue
			}
			key, ok := unescape(name)
			if !ok {
				if key, ok = s.hashedKey(ctx, name); !ok {
					continue // not one of ours
				}
			}
			if strings.HasPrefix(key, prefix) && !yield(key, nil) {
				return
			}
		}
	}
}

func (s *store) hashedKey(ctx context.Context, name string) (string, bool) {
	key, _ := do(ctx, s, func() (string, error) {
		names, err := s.list(s.dir+"/"+name, false)
		if err != nil {
			return "", err
		}
		for _, record := range names {
			if _, suffix, ok := number(record); !ok || suffix != "" {
				continue
			}
			fd, err := s.sys.open(s.dir+"/"+name+"/"+record, syscall.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
			if err != nil {
				continue
			}
			b, err := slurp(s.sys, fd)
			_ = s.sys.close(fd)
			var r body
			if err == nil && json.Unmarshal(b, &r) == nil && escape(r.Key) == name {
				return r.Key, nil
			}
		}
		return "", nil
	})
	return key, key != ""
}
