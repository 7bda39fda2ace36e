//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package live

import (
	"errors"
	"os"
)

// flock is not there: what a run leaves that dies together with its reaper is left.
func flock(*os.File) error { return errors.ErrUnsupported }
