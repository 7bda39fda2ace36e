package locker

import (
	"context"
	"errors"
	"sync"
	"time"
)

// closers bounds the releases that Close has in flight.
const closers = 64

// Close ends every wait and every lease (ErrClosed, Done), waits for the functions of Do
// and Lead, each at most to its lease's deadline, and then releases what is left, in
// parallel, within Options.ReleaseTimeout; the rest lapses. A lease that was already lost
// by its clock is not released before its deadline. Called from inside such a function,
// Close would wait for itself until that deadline. A second Close waits for the first and
// returns what that returned.
func (l *Locker) Close() error {
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
		if l.fn != nil {
			running = append(running, l)
		}
	}
	calls := make(chan struct{})
	if c.calls == 0 {
		close(calls)
	} else {
		c.idle = calls
	}
	c.unlock()

	for _, l := range running {
		c.awaitFn(l)
	}
	c.awaitCalls(calls)
	c.closeErr = c.releaseAll()
	c.stopBackground()
	c.renewers.all.Wait()
	c.undoers.all.Wait()
	if c.owned {
		c.closeErr = errors.Join(c.closeErr, c.fail("close", "", c.drv.Close()))
	}
	close(c.closing)
	return c.closeErr
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

// awaitCalls waits for the acquisitions under way: what they are granted now has to be
// undone. Each has a deadline of its own; a driver that does not keep to it is not waited
// for.
func (c *core) awaitCalls(calls <-chan struct{}) {
	t := time.NewTimer(maxCall + c.info.Slack)
	defer t.Stop()
	select {
	case <-calls:
	case <-t.C:
	}
}

// releaseAll releases what may still be released.
func (c *core) releaseAll() error {
	ctx, cancel := context.WithTimeout(context.Background(), c.opts.ReleaseTimeout)
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
	pool.all.Wait()
	return errors.Join(errs...)
}
