package filelock

import (
	"errors"
	"syscall"
	"time"
	"unsafe"

	"github.com/fencelock/locker/internal/boot"
)

// system is every question that the store asks the kernel, one method per system call.
// It is the seam at which tests count, record, delay, fail and lose calls.
type system interface {
	open(path string, flags int, mode uint32) (int, error)
	openat(dir int, name string, flags int, mode uint32) (int, error)
	mkdir(path string, mode uint32) error
	read(fd int, b []byte) (int, error)
	write(fd int, b []byte) (int, error)
	fstat(fd int) (stat, error)
	lstat(path string) (stat, error)
	statfs(path string) (magic int64, err error)
	touch(fd int, at time.Duration) error
	chmod(fd int, mode uint32) error
	sync(fd int) error
	flock(fd int, how int) error
	link(old, name string) error // old may be a /proc/self/fd link
	linkEmpty(fd int, name string) error
	unlink(path string) error
	renameat(dir int, old, name string) error
	unlinkat(dir int, name string) error
	rmdir(path string) error
	getdents(fd int, b []byte) (int, error)
	rewind(fd int) error
	dup(fd int) (int, error)
	close(fd int) error
	clock() (time.Duration, error)
}

// stat is what the store wants to know of a file.
type stat struct {
	id      identity
	mode    uint32
	mtime   time.Duration // since 1970, which here means: on the boot clock
	regular bool
}

// identity is one file, whatever it is called.
type identity struct{ dev, ino uint64 }

const (
	oPath          = 0x200000
	oTmpfile       = 0x400000 | syscall.O_DIRECTORY
	atFDCWD        = -100
	atFollow       = 0x400
	atEmptyPath    = 0x1000
	dupCloseOnExec = 1030
)

// kernel is the real system.
type kernel struct{}

// again repeats a call that a signal has interrupted.
func again[T any](f func() (T, error)) (T, error) {
	for {
		v, err := f()
		if !errors.Is(err, syscall.EINTR) {
			return v, err
		}
	}
}

func again0(f func() error) error {
	_, err := again(func() (struct{}, error) { return struct{}{}, f() })
	return err
}

func (kernel) open(path string, flags int, mode uint32) (int, error) {
	return again(func() (int, error) { return syscall.Open(path, flags|syscall.O_CLOEXEC, mode) })
}

func (kernel) openat(dir int, name string, flags int, mode uint32) (int, error) {
	return again(func() (int, error) { return syscall.Openat(dir, name, flags|syscall.O_CLOEXEC, mode) })
}

func (kernel) mkdir(path string, mode uint32) error {
	return again0(func() error { return syscall.Mkdir(path, mode) })
}

func (kernel) read(fd int, b []byte) (int, error) {
	return again(func() (int, error) { return syscall.Read(fd, b) })
}

func (kernel) write(fd int, b []byte) (int, error) {
	return again(func() (int, error) { return syscall.Write(fd, b) })
}

func (kernel) fstat(fd int) (stat, error) {
	var st syscall.Stat_t
	err := again0(func() error { return syscall.Fstat(fd, &st) })
	return statOf(&st), err
}

func (kernel) lstat(path string) (stat, error) {
	var st syscall.Stat_t
	err := again0(func() error { return syscall.Lstat(path, &st) })
	return statOf(&st), err
}

func statOf(st *syscall.Stat_t) stat {
	return stat{
		id:      identity{uint64(st.Dev), st.Ino}, //nolint:unconvert // another type on other architectures
		mode:    st.Mode,
		mtime:   time.Duration(st.Mtim.Nano()),
		regular: st.Mode&syscall.S_IFMT == syscall.S_IFREG,
	}
}

func (kernel) statfs(path string) (int64, error) {
	var st syscall.Statfs_t
	err := again0(func() error { return syscall.Statfs(path, &st) })
	return int64(st.Type), err //nolint:unconvert // another type on other architectures
}

// touch sets the modification time and leaves the access time alone.
func (kernel) touch(fd int, at time.Duration) error {
	const omit = 1<<30 - 2 // UTIME_OMIT
	ts := [2]syscall.Timespec{{}, syscall.NsecToTimespec(int64(at))}
	ts[0].Nsec = omit
	return again0(func() error {
		// utimensat with no path is futimens.
		_, _, errno := syscall.Syscall6(syscall.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
		return failed(errno)
	})
}

func (kernel) chmod(fd int, mode uint32) error {
	return again0(func() error { return syscall.Fchmod(fd, mode) })
}

func (kernel) sync(fd int) error { return again0(func() error { return syscall.Fsync(fd) }) }

func (kernel) flock(fd int, how int) error {
	return again0(func() error { return syscall.Flock(fd, how) })
}

func (kernel) link(old, name string) error {
	o, err := syscall.BytePtrFromString(old)
	if err != nil {
		return err
	}
	return linkat(atFDCWD, o, name, atFollow)
}

func (kernel) linkEmpty(fd int, name string) error {
	return linkat(fd, new(byte), name, atEmptyPath)
}

func linkat(dir int, old *byte, name string, flags int) error {
	n, err := syscall.BytePtrFromString(name)
	if err != nil {
		return err
	}
	cwd := atFDCWD
	return again0(func() error {
		_, _, errno := syscall.Syscall6(syscall.SYS_LINKAT, uintptr(dir), uintptr(unsafe.Pointer(old)),
			uintptr(cwd), uintptr(unsafe.Pointer(n)), uintptr(flags), 0)
		return failed(errno)
	})
}

func failed(errno syscall.Errno) error {
	if errno != 0 {
		return errno
	}
	return nil
}

func (kernel) unlink(path string) error {
	return again0(func() error { return syscall.Unlink(path) })
}

func (kernel) rmdir(path string) error {
	return again0(func() error { return syscall.Rmdir(path) })
}

func (kernel) unlinkat(dir int, name string) error {
	return again0(func() error { return syscall.Unlinkat(dir, name) })
}

func (kernel) renameat(dir int, old, name string) error {
	return again0(func() error { return syscall.Renameat(dir, old, dir, name) })
}

func (kernel) getdents(fd int, b []byte) (int, error) {
	return again(func() (int, error) { return syscall.ReadDirent(fd, b) })
}

func (kernel) rewind(fd int) error {
	_, err := syscall.Seek(fd, 0, 0)
	return err
}

func (kernel) dup(fd int) (int, error) {
	n, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), dupCloseOnExec, 0)
	return int(n), failed(errno)
}

// close is never repeated: Linux frees the descriptor even when it reports EINTR.
func (kernel) close(fd int) error { return syscall.Close(fd) }

func (kernel) clock() (time.Duration, error) {
	d, ok := boot.Now()
	if !ok {
		return 0, errors.New("the boot clock cannot be read")
	}
	return d, nil
}
