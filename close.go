package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// closers bounds the releases that Close has in flight.
const closers = 64

// Close ends every wait and every lease (ErrClosed, Done), waits for the functions of Do
// and Lead, each at most to its lease's deadline, and then releases what is left, in
// parallel, within Options.ReleaseTimeout; the rest lapses. A lease that was already lost
// by its clock is not released before its deadline. Called from inside such a function,
// Close would wait for itself until that deadline; do not call it from OnEvent either. A
// function that outstays its lease's deadline is left behind. A second Close waits for the first and
// returns what that returned.
func (l *Locker) Close() (err error) {
	c := l.c
	if l.prefix != "" {
		return c.fail("close", "", errors.New("this Locker came from Prefix: close the one it came from"))
	}
	c.lock()
	if c.closed {
		c.unlock()
		<-c.closing
		return c.closeErr
	}
	c.closed = true
	c.disarm()
	c.stopWaits()
	var running []*Lease
	for l := range c.leases {
		if l.cause == nil {
			l.end(ErrClosed)
		}
	}
	for l := range c.running {
		running = append(running, l)
	}
	defer close(c.closing)
	defer func() { // also when OnEvent panics
		c.closeErr = c.finish(running)
		err = c.closeErr
	}()
	c.unlock()
	return nil
}

// finish is Close from where everybody has been told.
func (c *core) finish(running []*Lease) error {
	for _, l := range running {
		c.awaitFn(l)
	}
	c.awaitCalls()
	err := c.releaseAll()
	c.awaitCalls() // releases that began before releaseAll took the rest
	c.stopBackground()
	c.renewers.wait(c.patience())
	c.undoers.wait(c.patience())
	c.forget()
	if c.owned {
		err = errors.Join(err, c.fail("close", "", c.drv.Close()))
	}
	return err
}

// forget drops what lapses by itself.
func (c *core) forget() {
	c.lock()
	defer c.unlock()
	for a, u := range c.undos {
		c.unschedule(&u.entry)
		delete(c.undos, a)
	}
	for l := range c.leases {
		l.gone()
	}
}

// awaitFn waits for the function that runs under a lease, at most to the deadline.
func (c *core) awaitFn(l *Lease) {
	c.lock()
	left := l.span.untilDeadline(c.clock.now())
	c.unlock()
	t := time.NewTimer(left)
	defer t.Stop()
	select {
	case <-l.fn:
	case <-t.C:
	}
}

// awaitCalls waits for the acquisitions under way, whose grants have to be undone, and for
// releases.
func (c *core) awaitCalls() {
	c.lock()
	if c.calls == 0 {
		c.unlock()
		return
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	calls := c.idle
	c.unlock()
	t := time.NewTimer(c.patience())
	defer t.Stop()
	select {
	case <-calls:
	case <-t.C:
	}
}

// patience is how long Close waits for calls that have a deadline of their own: a driver
// that does not keep to it, or a listener that waits for Close, is not waited for.
func (c *core) patience() time.Duration {
	return max(maxCall, c.opts.ReleaseTimeout) + c.info.Slack
}

// releaseAll releases what may still be released.
func (c *core) releaseAll() error {
	until := time.Now().Add(c.opts.ReleaseTimeout)
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	now := c.clock.now()
	var todo []func() error
	c.lock()
	for l := range c.leases {
		if l.released || l.span.untilDeadline(now) <= 0 || !errors.Is(l.cause, ErrClosed) && !errors.Is(l.cause, ErrMaxHold) {
			continue
		}
		l.released = true
		c.dropUndo(l)
		todo = append(todo, func() error { return c.fail("release", l.ks.key, l.release(ctx)) })
	}
	for _, u := range c.leftovers() {
		todo = append(todo, func() error { c.sendUndo(ctx, u); return nil })
	}
	c.unlock()

	var (
		mu   sync.Mutex
		errs []error
		pool = workers{limit: closers}
	)
	for _, f := range todo {
		pool.do(func() {
			if err := f(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	answered := pool.wait(c.patience())
	c.undoers.wait(time.Until(until))
	mu.Lock()
	defer mu.Unlock()
	if !answered {
		errs = append(errs, c.fail("close", "", fmt.Errorf("%w: a release has no answer", ErrAmbiguous)))
	}
	return errors.Join(errs...)
}
