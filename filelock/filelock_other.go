//go:build !linux

package filelock

import (
	"context"
	"errors"
	"os"

	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/epoch"
)

// Driver keeps locks in a directory. There is none on this platform.
type Driver struct{ *epoch.Driver }

var errPlatform = errors.New("a directory of locks needs Linux: a boot clock and a boot id that all processes share")

// NewDriver answers driver.ErrUnsupported on this platform.
func NewDriver(context.Context, string, *Options) (*Driver, error) {
	return nil, driver.Wrap(driver.ErrUnsupported, errPlatform)
}

// File answers driver.ErrUnsupported on this platform.
func File(driver.Grant) (*os.File, error) {
	return nil, driver.Wrap(driver.ErrUnsupported, errPlatform)
}
