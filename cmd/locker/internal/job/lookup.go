package job

import (
	"errors"
	"io/fs"
	"os/exec"
	"syscall"
)

// Find looks a command up as a shell does. Err then says whether it is missing.
func Find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrDot) { // a PATH that has the current directory means it
		err = nil
	}
	return path, err
}

// IsMissing tells a command that does not exist (exit code 127 of every shell) from one
// that cannot be executed (126).
func IsMissing(err error) bool {
	return errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// IsExec reports whether an error is about executing the command, and not about anything
// that locker needs for it.
func IsExec(err error) bool {
	var looked *exec.Error
	var path *fs.PathError
	return errors.As(err, &looked) || errors.As(err, &path) && path.Op == "exec"
}
