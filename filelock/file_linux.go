package filelock

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strconv"
	"syscall"
)

// errNoLink: a file without a name cannot be given one here.
var errNoLink = errors.New("a file without a name cannot be linked")

// maxFile bounds what is read of one file: a record is a kilobyte.
const maxFile = 64 << 10

// sketch is a file that is written before it has its name, so that nobody ever sees
// half of it.
type sketch struct {
	sys  system
	fd   int
	temp string // its temporary name, where a file without a name is not possible
}

// sketchIn makes an empty file in a directory.
func (s *store) sketchIn(dir string) (*sketch, error) {
	if !s.named.Load() {
		fd, err := s.sys.open(dir, oTmpfile|syscall.O_RDWR, s.fileMode)
		switch {
		case err == nil:
			return &sketch{sys: s.sys, fd: fd}, nil
		case !errors.Is(err, syscall.EOPNOTSUPP) && !errors.Is(err, syscall.EISDIR) && !errors.Is(err, syscall.EINVAL):
			return nil, err
		}
		s.named.Store(true)
	}
	temp := dir + "/" + tempName()
	fd, err := s.sys.open(temp, syscall.O_RDWR|syscall.O_CREAT|syscall.O_EXCL, s.fileMode)
	if err != nil {
		return nil, err
	}
	return &sketch{sys: s.sys, fd: fd, temp: temp}, nil
}

func tempName() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return tempPrefix + hex.EncodeToString(b[:])
}

// fill writes the content. A short write is an error, never followed by a link.
func (f *sketch) fill(b []byte) error { return writeAll(f.sys, f.fd, b) }

func writeAll(sys system, fd int, b []byte) error {
	n, err := sys.write(fd, b)
	if err == nil && n < len(b) {
		err = syscall.ENOSPC
	}
	return err
}

// link gives the file its name, atomically and only if the name is free.
func (f *sketch) link(s *store, name string) error {
	if f.temp != "" {
		err := f.sys.link(f.temp, name)
		if err == nil {
			f.untemp()
		}
		return err
	}
	proc := "/proc/self/fd/" + strconv.Itoa(f.fd)
	err := f.sys.link(proc, name)
	if err == nil || errors.Is(err, syscall.EEXIST) {
		return err
	}
	if _, broken := f.sys.lstat(proc); broken == nil {
		return err
	}
	err = f.sys.linkEmpty(f.fd, name) // no /proc: this needs a capability
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.EPERM) {
		s.named.Store(true)
		return errNoLink
	}
	return err
}

// untemp removes the temporary name.
func (f *sketch) untemp() {
	if f.temp != "" {
		_ = f.sys.unlink(f.temp)
		f.temp = ""
	}
}

// discard throws the file away.
func (f *sketch) discard() {
	f.untemp()
	_ = f.sys.close(f.fd)
}

// slurp reads a small file. A regular file's read is short at its end only (read(2)).
func slurp(sys system, fd int) ([]byte, error) {
	b := make([]byte, 0, 2048)
	for {
		n, err := sys.read(fd, b[len(b):cap(b)])
		if err != nil {
			return nil, err
		}
		b = b[:len(b)+n]
		if len(b) < cap(b) || len(b) > maxFile {
			return b, nil
		}
		b = append(b, make([]byte, len(b))...)[:len(b)]
	}
}

// syncDir makes the names in a directory durable.
func (s *store) syncDir(dir string) error {
	fd, err := s.sys.open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = s.sys.close(fd) }()
	return s.sys.sync(fd)
}

const (
	listingSize    = 16 << 10
	maxListingSize = 16 << 20
)

// list returns the names in a directory. With atomic it is what one system call
// returned: between two calls a number may be made and another collected, and the
// newest missed.
func (s *store) list(dir string, atomic bool) ([]string, error) {
	fd, err := s.sys.open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.sys.close(fd) }()
	for size := listingSize; ; size *= 4 {
		buf := make([]byte, size)
		var names []string
		for calls := 0; ; calls++ {
			n, err := s.sys.getdents(fd, buf)
			if err != nil {
				return nil, err
			}
			if n == 0 {
				return names, nil
			}
			if atomic && calls > 0 && size < maxListingSize {
				break
			}
			if atomic && calls > 0 {
				return nil, syscall.EFBIG
			}
			_, _, names = syscall.ParseDirent(buf[:n], -1, names)
		}
		if err := s.sys.rewind(fd); err != nil {
			return nil, err
		}
	}
}
