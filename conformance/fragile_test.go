package conformance_test

import (
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/memlock"
)

// fragile is a server in memory that can stand still, and die with all that it knows.
type fragile struct {
	mu     sync.Mutex
	server *memlock.Server
	life   int
	gate   chan struct{} // nil: running
}

// fragileMemory is memory over a fragile server.
func fragileMemory() conformance.Harness {
	f := &fragile{server: memlock.NewServer()}
	h := memory(f.server)
	h.Driver = func(context.Context) (driver.Driver, error) { return &fragileClient{f: f}, nil }
	h.Control = (&fragileClient{f: f}).Ping
	h.Faults.Client = func(ctx context.Context) (driver.Driver, conformance.Network, error) { return networked(h.Driver(ctx)) }
	h.Faults.Stop = func(context.Context) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.gate = make(chan struct{})
		return nil
	}
	h.Faults.Continue = func(context.Context) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		close(f.gate)
		f.gate = nil
		return nil
	}
	h.Faults.Restart = func(context.Context) error { // an orderly one keeps what it knows
		f.mu.Lock()
		defer f.mu.Unlock()
		f.life++
		return nil
	}
	h.Faults.Kill = func(context.Context) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.server = memlock.NewServer()
		f.life++
		return nil
	}
	return h
}

func (f *fragile) stands() chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gate
}

// fragileClient is a client that finds the server again.
type fragileClient struct {
	f    *fragile
	late sync.WaitGroup // requests that the server reads when it goes on

	mu     sync.Mutex
	life   int
	inner  *memlock.Driver
	closed bool
}

// driver is a client of the server that lives now.
func (c *fragileClient) driver() *memlock.Driver {
	c.f.mu.Lock()
	server, life := c.f.server, c.f.life
	c.f.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner == nil || c.life != life {
		if c.inner != nil {
			_ = c.inner.Close()
		}
		c.inner, c.life = server.Driver(), life
		if c.closed {
			_ = c.inner.Close()
		}
	}
	return c.inner
}

// ask sends a request. A server that stands still reads it when it goes on, whether or
// not somebody still waits for the answer.
func ask[T any](ctx context.Context, c *fragileClient, send func(context.Context, *memlock.Driver) (T, error)) (T, error) {
	if gate := c.f.stands(); gate != nil && ctx.Err() == nil {
		select {
		case <-gate:
		case <-ctx.Done():
			c.late.Go(func() {
				<-gate
				_, _ = send(context.WithoutCancel(ctx), c.driver())
			})
			var none T
			return none, driver.Wrap(driver.ErrAmbiguous, ctx.Err())
		}
	}
	return send(ctx, c.driver())
}

func askErr(ctx context.Context, c *fragileClient, send func(context.Context, *memlock.Driver) error) error {
	_, err := ask(ctx, c, func(ctx context.Context, d *memlock.Driver) (struct{}, error) { return struct{}{}, send(ctx, d) })
	return err
}

func (c *fragileClient) Info() driver.Info { return c.driver().Info() }

func (c *fragileClient) TryAcquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	return ask(ctx, c, func(ctx context.Context, d *memlock.Driver) (driver.Grant, error) { return d.TryAcquire(ctx, r) })
}

func (c *fragileClient) Enqueue(ctx context.Context, r driver.Request) (driver.Grant, error) {
	return ask(ctx, c, func(ctx context.Context, d *memlock.Driver) (driver.Grant, error) { return d.Enqueue(ctx, r) })
}

func (c *fragileClient) Poll(ctx context.Context, r driver.Request) (driver.Grant, error) {
	return ask(ctx, c, func(ctx context.Context, d *memlock.Driver) (driver.Grant, error) { return d.Poll(ctx, r) })
}

func (c *fragileClient) Renew(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	return ask(ctx, c, func(ctx context.Context, d *memlock.Driver) (driver.Grant, error) { return d.Renew(ctx, g) })
}

func (c *fragileClient) RenewBatch(ctx context.Context, gs []driver.Grant, each func(int, driver.Grant, error)) error {
	for i, g := range gs {
		renewed, err := c.Renew(ctx, g)
		each(i, renewed, err)
	}
	return nil
}

func (c *fragileClient) Release(ctx context.Context, g driver.Grant) error {
	return askErr(ctx, c, func(ctx context.Context, d *memlock.Driver) error { return d.Release(ctx, g) })
}

func (c *fragileClient) Break(ctx context.Context, key string, t driver.Token, b driver.Break) error {
	return askErr(ctx, c, func(ctx context.Context, d *memlock.Driver) error { return d.Break(ctx, key, t, b) })
}

func (c *fragileClient) Ping(ctx context.Context) error {
	return askErr(ctx, c, func(ctx context.Context, d *memlock.Driver) error { return d.Ping(ctx) })
}

func (c *fragileClient) Inspect(ctx context.Context, key string) (driver.State, error) {
	return ask(ctx, c, func(ctx context.Context, d *memlock.Driver) (driver.State, error) { return d.Inspect(ctx, key) })
}

func (c *fragileClient) List(ctx context.Context, prefix string) iter.Seq2[driver.State, error] {
	return c.driver().List(ctx, prefix)
}

func (c *fragileClient) Listen(ctx context.Context, r driver.Request) (driver.Ticket, error) {
	t, err := ask(ctx, c, func(ctx context.Context, d *memlock.Driver) (driver.Ticket, error) { return d.Listen(ctx, r) })
	return fragileTicket{t, c}, err
}

// fragileTicket is deaf when its server has died.
type fragileTicket struct {
	driver.Ticket
	c *fragileClient
}

func (t fragileTicket) Wait(ctx context.Context) (driver.Grant, error) {
	g, err := t.Ticket.Wait(ctx)
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	if errors.Is(err, driver.ErrClosed) && !t.c.closed {
		err = driver.ErrUnavailable
	}
	return g, err
}

func (c *fragileClient) Close() error {
	d := c.driver()
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.late.Wait()
	return d.Close()
}
