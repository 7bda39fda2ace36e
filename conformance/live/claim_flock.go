//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package live

import (
	"errors"
	"os"
	"syscall"
)

// flock locks an open file for as long as it is open, without waiting.
func flock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return errClaimed
		default:
			return err
		}
	}
}
