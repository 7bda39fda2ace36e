package redislock

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/locker"
)

// New makes a driver, as NewDriver does, and a Locker over it whose Close closes both. The
// client stays the caller's. o and lo may be nil.
func New(ctx context.Context, client redis.UniversalClient, o *Options, lo *locker.Options) (*locker.Locker, error) {
	d, err := NewDriver(ctx, client, o)
	if err != nil {
		return nil, err
	}
	return locker.Own(d, lo)
}
