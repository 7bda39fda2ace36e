package locker

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/locker/driver"
)

// Do acquires the key, runs fn while it is held, and releases it on every path out of fn,
// a panic and runtime.Goexit included. fn's context ends with ctx or with the lease. Do
// waits for fn, and returns fn's error, joined with the lease's if the lease ended first:
// so a nil from Do means that fn ran under the lock from beginning to end, or until it
// released the lease itself. A failed
// release is no error here, since the work is done; OnEvent and the Logger tell.
func (l *Locker) Do(ctx context.Context, key string, fn func(context.Context, *Lease) error, opts ...AcquireOption) error {
	o := l.do(ctx, key, fn, opts)
	return join(o.fn, o.lease)
}

// outcome is what came of running a function under a lease.
type outcome struct {
	ran   bool
	fn    error // the function's
	lease error // why there was no lease, or why it was over before the function was
}

func (l *Locker) do(ctx context.Context, key string, fn func(context.Context, *Lease) error, opts []AcquireOption) outcome {
	lease, err := l.Acquire(ctx, key, append(opts[:len(opts):len(opts)], withFunction)...)
	if err != nil {
		return outcome{lease: err}
	}
	fnCtx, cancel := lease.Context(ctx)
	defer func() {
		defer lease.left()
		cancel()
		_ = lease.Release(ctx) // a failure is told to OnEvent and the Logger
	}()
	o := outcome{ran: true, fn: fn(fnCtx, lease)}
	if over := lease.Err(); !errors.Is(over, ErrReleased) {
		o.lease = over
	}
	return o
}

// left says that the function has returned.
func (l *Lease) left() {
	l.c.lock()
	defer l.c.unlock()
	delete(l.c.running, l)
	close(l.fn)
}

// withFunction says that a function runs under the lease: Close waits for it.
func withFunction(a *acquireConfig) { a.function = true }

// Lead runs fn whenever this process leads key: whenever it has the key's lease. When the
// lease is lost it waits for fn, whose context has ended, and then competes again, backing
// off while the backend fails. It returns when fn returns by itself, with what fn
// returned, when ctx ends, or with ErrClosed, ErrInvalidKey, ErrInvalidTTL,
// ErrUnsupported, ErrTokenRegression or a bad option.
func (l *Locker) Lead(ctx context.Context, key string, fn func(context.Context, *Lease) error, opts ...AcquireOption) error {
	var cfg acquireConfig
	if err := l.c.configure(&cfg, opts); err != nil {
		return l.c.fail("lead", l.full(key), err)
	}
	for failures := 0; ; failures++ {
		o := l.do(ctx, key, fn, opts)
		switch {
		case o.ran && o.lease == nil:
			return o.fn
		case endsLead(o.lease):
			return join(o.fn, o.lease)
		case ctx.Err() != nil:
			return join(o.fn, ctx.Err())
		case o.ran:
			failures = 0
		}
		pause := jitter(doubled(firstRetry, failures, max(driver.PollInterval(cfg.ttl), firstRetry)))
		if l.c.pause(ctx, pause) != nil && l.c.ctx.Err() == nil {
			return ctx.Err()
		}
	}
}

// join is errors.Join, but one error stays what it is.
func join(a, b error) error {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return errors.Join(a, b)
}

// endsLead reports whether an error will not go away by itself.
func endsLead(err error) bool {
	for _, final := range []error{ErrClosed, ErrInvalidKey, ErrInvalidTTL, ErrUnsupported, ErrTokenRegression} {
		if errors.Is(err, final) {
			return true
		}
	}
	return false
}

// pause sleeps until ctx ends or the Locker is closed.
func (c *core) pause(ctx context.Context, d time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	return sleep(ctx, d)
}
