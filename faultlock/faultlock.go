package faultlock

import (
	"context"
	"sync"

	"github.com/fencelock/locker/driver"
)

// Driver is a driver with faults. It implements every optional interface and answers
// [driver.ErrUnsupported] where the inner driver lacks one. It is safe for concurrent
// use.
type Driver struct {
	inner    driver.Driver
	queuer   driver.Queuer
	batch    driver.BatchRenewer
	looker   driver.Inspector
	breaker  driver.Breaker
	pinger   driver.Pinger
	seed     uint64
	inFlight sync.WaitGroup // late deliveries
	closing  chan struct{}
	close    sync.Once
	closeErr error

	mu      sync.Mutex
	plan    *plan
	enabled bool
	closed  bool
}

var (
	_ driver.Driver       = (*Driver)(nil)
	_ driver.Queuer       = (*Driver)(nil)
	_ driver.BatchRenewer = (*Driver)(nil)
	_ driver.Inspector    = (*Driver)(nil)
	_ driver.Breaker      = (*Driver)(nil)
	_ driver.Pinger       = (*Driver)(nil)
)

// New decorates the driver with a schedule, enabled. It owns the driver from then on:
// Close closes it. The schedule is copied.
func New(d driver.Driver, seed uint64, s Schedule) *Driver {
	f := &Driver{inner: d, seed: seed, closing: make(chan struct{}), plan: newPlan(seed, s), enabled: true}
	f.queuer, _ = d.(driver.Queuer)
	f.batch, _ = d.(driver.BatchRenewer)
	f.looker, _ = d.(driver.Inspector)
	f.breaker, _ = d.(driver.Breaker)
	f.pinger, _ = d.(driver.Pinger)
	return f
}

// Set replaces the schedule while the driver is in use. Ordinals, Fired and Log begin
// anew. Faults that are under way run to their end.
func (d *Driver) Set(s Schedule) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.plan = newPlan(d.seed, s)
}

// Enable turns the faults on or off. Calls made while they are off are not counted.
func (d *Driver) Enable(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.enabled = on
}

// Fired returns, for each rule of the schedule in its order, how often it fired. A
// test whose fault never fired has tested nothing.
func (d *Driver) Fired() []Count {
	d.mu.Lock()
	p := d.plan
	d.mu.Unlock()
	return p.counts()
}

// Log returns the faults that fired, in their order; the first 10 000 of them.
func (d *Driver) Log() []Event {
	d.mu.Lock()
	p := d.plan
	d.mu.Unlock()
	return p.events()
}

// enter returns the plan at work, nil if there is none, or ErrClosed. A call whose
// context has ended sends nothing, so nothing can happen to it, and it counts nowhere.
func (d *Driver) enter(ctx context.Context) (*plan, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return nil, driver.ErrClosed
	case !d.enabled || len(d.plan.schedule) == 0 || ctx.Err() != nil:
		return nil, nil
	}
	return d.plan, nil
}

// Info returns the inner driver's, unchanged.
func (d *Driver) Info() driver.Info { return d.inner.Info() }

// TryAcquire is the operation try.
func (d *Driver) TryAcquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	return run(ctx, d, Try, r.Key, func(ctx context.Context) (driver.Grant, error) {
		return d.inner.TryAcquire(ctx, r)
	})
}

// Renew is the operation renew.
func (d *Driver) Renew(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	return run(ctx, d, Renew, g.Key, func(ctx context.Context) (driver.Grant, error) {
		return d.inner.Renew(ctx, g)
	})
}

// Release is the operation release.
func (d *Driver) Release(ctx context.Context, g driver.Grant) error {
	return runError(ctx, d, Release, g.Key, func(ctx context.Context) error {
		return d.inner.Release(ctx, g)
	})
}

// Close ends what waits for a fault, waits for every late delivery to be made and
// answered, and closes the inner driver. It lasts as long as the longest delay that is
// under way; a request that shall never arrive is a hang, not a long delay.
func (d *Driver) Close() error {
	d.close.Do(func() {
		d.mu.Lock()
		d.closed = true
		close(d.closing)
		d.mu.Unlock()
		d.inFlight.Wait()
		d.closeErr = d.inner.Close()
	})
	return d.closeErr
}
