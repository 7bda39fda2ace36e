//go:build unix

package run

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// inherited opens the descriptor that a name such as /dev/fd/3 stands for; nil if the
// name is not of that kind. Opened by its name, a file would be written from its start,
// over what others have written through the descriptor.
func inherited(name string) (*os.File, error) {
	fd, ok := descriptor(name)
	if !ok {
		return nil, nil
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err == nil && flags&unix.FD_CLOEXEC != 0 {
		err = unix.EBADF // exec would have closed it: it is this program's own
	}
	if err == nil {
		flags, err = unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	}
	if err == nil && flags&unix.O_ACCMODE == unix.O_RDONLY {
		err = unix.EBADF
	}
	if err == nil {
		fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// descriptor is the number of the descriptor that a name stands for.
func descriptor(name string) (int, bool) {
	name = filepath.Clean(name)
	switch name {
	case "/dev/stdin":
		return 0, true
	case "/dev/stdout":
		return 1, true
	case "/dev/stderr":
		return 2, true
	}
	for _, dir := range []string{"/dev/fd/", "/proc/self/fd/"} {
		if digits, ok := strings.CutPrefix(name, dir); ok {
			fd, err := strconv.ParseUint(digits, 10, 31)
			return int(fd), err == nil
		}
	}
	return 0, false
}
