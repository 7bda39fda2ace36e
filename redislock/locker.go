package redislock

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/locker"
)

// Locker is a locker.Locker with a driver of its own.
type Locker struct {
	*locker.Locker
	driver *Driver
}

// New makes a driver, as NewDriver does, and a Locker over it whose Close closes both. The
// client stays the caller's. o and lo may be nil.
func New(ctx context.Context, client redis.UniversalClient, o *Options, lo *locker.Options) (*Locker, error) {
	d, err := NewDriver(ctx, client, o)
	if err != nil {
		return nil, err
	}
	l, err := locker.New(d, lo)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return &Locker{Locker: l, driver: d}, nil
}

// Close ends every lease, as that of a locker.Locker does, and then the driver.
func (l *Locker) Close() error { return errors.Join(l.Locker.Close(), l.driver.Close()) }
