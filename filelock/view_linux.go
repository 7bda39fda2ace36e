package filelock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/epoch"
)

// Read shows one record. The order of its steps is what makes a takeover safe: the
// clock is read before the record is opened. A renewal that the record does not show
// yet is then answered after its deadline, and its holder drops the answer.
func (s *store) Read(ctx context.Context, key string, n uint64, _ epoch.Version) (epoch.View, error) {
	type answer struct {
		v   epoch.View
		err error
	}
	a, err := do(ctx, s, func() (answer, error) {
		v, err := s.read(key, n)
		return answer{v, err}, nil
	})
	if err != nil {
		return epoch.View{}, err
	}
	return a.v, a.err
}

func (s *store) read(key string, n uint64) (epoch.View, error) {
	path := s.recordPath(key, n)
	before, err := s.now()
	if err != nil {
		return epoch.View{}, refused("clock", path, err)
	}
	var content []byte
	var st stat
	fd, err := s.sys.open(path, syscall.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, syscall.ENOENT):
		return epoch.View{}, epoch.ErrNotExist
	case errors.Is(err, syscall.ELOOP): // a symbolic link: not ours, but it can be ended
		if st, err = s.sys.lstat(path); err != nil {
			return epoch.View{}, refused("stat", path, err)
		}
	case err != nil:
		return epoch.View{}, refused("open", path, err)
	default:
		defer func() { _ = s.sys.close(fd) }()
		if content, st, err = s.examine(fd); err != nil {
			return epoch.View{}, refused("read", path, err)
		}
	}
	v := epoch.View{Version: st.id, Margin: s.margin, ID: fmt.Sprintf("%d.%d.%d", st.id.dev, st.id.ino, st.mtime)}
	end, ending, err := s.readEnd(path + endSuffix)
	if err != nil {
		return epoch.View{}, err
	}

	var r body
	bad := errNotRegular
	if st.regular {
		bad = json.Unmarshal(content, &r)
	}
	if bad == nil {
		bad = r.Check(key, n)
	}
	switch {
	case bad != nil && end == ended:
		v.Record, v.Ended = ending, true
		return v, nil
	case bad != nil:
		v.Shift = epoch.ShiftOf(content)
		return v, corrupt(path, bad)
	}
	v.Record = r.Record
	switch {
	case end == ended:
		v.Ending, v.Ended = ending.Ending, true
	case r.Ending.Kind.Ends(): // a tombstone
		v.Ended = true
	case end == broken:
		v.Ending, v.Broken = ending.Ending, true
	}
	s.remember(key, n, v)
	if v.Ended {
		return v, nil
	}
	if l := s.held.get(leaseID{r.Holder, key, n}); l != nil && l.file == st.id {
		v.Version = l
	} else {
		v.Unheld = true
	}
	// Whoever gets the lock knows that the holder has gone.
	gone := s.sys.flock(fd, syscall.LOCK_SH|syscall.LOCK_NB) == nil
	err = s.age(&v, &r, path, st, before, gone)
	return v, err
}

// examine reads an open record.
func (s *store) examine(fd int) (content []byte, st stat, err error) {
	if st, err = s.sys.fstat(fd); err != nil || !st.regular {
		return nil, st, err
	}
	content, err = slurp(s.sys, fd)
	return content, st, err
}

// age says how long ago the record was last renewed, and whether its holder is gone.
func (s *store) age(v *epoch.View, r *body, path string, st stat, before time.Duration, gone bool) error {
	if r.Boot != s.host.boot {
		// Another boot of the same machine, or another machine, or a container that
		// made up its boot id. Only the machine id tells the first from the others.
		v.Dead = gone && s.host.machine != "" && r.Machine == s.host.machine
		if !v.Dead {
			v.Idle, v.Known = s.observed(path, st, before)
		}
		return nil
	}
	v.Dead = gone
	v.Known = true
	v.Since = max(before-time.Duration(r.GrantedMS)*time.Millisecond, 1)
	if gone {
		return nil // and so is whatever somebody did to its modification time
	}
	if st.mtime <= before {
		v.Idle = before - st.mtime
		return nil
	}
	// Renewed between the two: Idle stays 0. But nobody renews in the future.
	after, err := s.now()
	if err != nil {
		return refused("clock", path, err)
	}
	if st.mtime > after {
		return corrupt(path, fmt.Errorf("its modification time is %v after boot and it is %v: somebody has touched it", st.mtime, after))
	}
	return nil
}

// What there is of an end.
type endState int

const (
	none endState = iota
	broken
	ended
)

// readEnd reads how a grant ended. A file that cannot be understood counts as broken:
// its writer may be between making and writing it, or it may have found no room.
func (s *store) readEnd(path string) (endState, epoch.Record, error) {
	fd, err := s.sys.open(path, syscall.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, syscall.ENOENT):
		return none, epoch.Record{}, nil
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.ELOOP):
		return broken, epoch.Record{}, nil
	case err != nil:
		return none, epoch.Record{}, refused("open", path, err)
	}
	defer func() { _ = s.sys.close(fd) }()
	content, err := slurp(s.sys, fd)
	if err != nil {
		return broken, epoch.Record{}, nil // a directory, a bad block: it is there, that is all
	}
	var r body
	if json.Unmarshal(content, &r) != nil || r.Layout < 1 {
		return broken, epoch.Record{}, nil
	}
	if r.Ending.Kind.Ends() {
		return ended, r.Record, nil
	}
	return broken, r.Record, nil
}

// seen is an observation of a record whose age nobody knows, written down so that a
// later process can go on with it.
type seen struct {
	MTime time.Duration `json:"mtime"`
	Inode uint64        `json:"inode"`
	Boot  string        `json:"boot"`
	Clock time.Duration `json:"clock"`
}

// observed returns for how long this boot has seen the record unchanged: from the clock
// that was read after it then to the one that was read before it now. Another machine's
// clock may run faster than this one's: one in a hundred is taken off.
func (s *store) observed(path string, st stat, before time.Duration) (idle time.Duration, known bool) {
	if fd, err := s.sys.open(path+seenSuffix, syscall.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0); err == nil {
		content, err := slurp(s.sys, fd)
		_ = s.sys.close(fd)
		var o seen
		if err == nil && json.Unmarshal(content, &o) == nil && o.Boot == s.host.boot && o.MTime == st.mtime &&
			o.Inode == st.id.ino && o.Clock > 0 && o.Clock <= before {
			quiet := before - o.Clock
			return quiet - quiet/clockError - 1, true
		}
	}
	s.note(path, st)
	return 0, false
}

// clockError is how far two clocks' rates may differ: one in a hundred.
const clockError = 100

// note writes an observation down. Where that is not possible, only processes that
// live long enough take the key over.
func (s *store) note(path string, st stat) {
	after, err := s.now()
	if err != nil {
		return
	}
	content, err := epoch.Encode(seen{MTime: st.mtime, Inode: st.id.ino, Boot: s.host.boot, Clock: after})
	if err != nil {
		return
	}
	dir, err := s.sys.open(path[:len(path)-len(lastName(path))], syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return
	}
	defer func() { _ = s.sys.close(dir) }()
	_ = s.replace(dir, lastName(path)+seenSuffix, content, false)
}

func lastName(path string) string {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '/' {
			return path[i+1:]
		}
	}
	return path
}

// replace puts a complete file in the place of another. A sweep may take its temporary file
// for that of a dead writer.
func (s *store) replace(dir int, name string, content []byte, durable bool) error {
	err := s.replaceOnce(dir, name, content, durable)
	if errors.Is(err, syscall.ENOENT) {
		err = s.replaceOnce(dir, name, content, durable)
	}
	return err
}

func (s *store) replaceOnce(dir int, name string, content []byte, durable bool) error {
	temp := tempName()
	fd, err := s.sys.openat(dir, temp, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL, s.fileMode)
	if err != nil {
		return err
	}
	err = s.sys.flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) // against sweeps
	if err == nil {
		err = writeAll(s.sys, fd, content)
	}
	if err == nil && s.shared {
		err = s.sys.chmod(fd, s.fileMode)
	}
	if err == nil && durable {
		err = s.sys.sync(fd)
	}
	if err == nil {
		err = s.sys.renameat(dir, temp, name)
	}
	_ = s.sys.close(fd)
	if err != nil {
		_ = s.sys.unlinkat(dir, temp)
	}
	return err
}

var _ driver.Pinger = (*store)(nil)
