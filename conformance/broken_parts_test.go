package conformance_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/fence"
)

// withTTL asks the server for another ttl than the caller is told.
func withTTL(ttl time.Duration, r driver.Request, send func(driver.Request) (driver.Grant, error)) (driver.Grant, error) {
	wanted := r.TTL
	r.TTL = ttl
	g, err := send(r)
	if err == nil {
		g.TTL, g.Left = wanted, wanted
	}
	return g, err
}

// ttlTimes keeps tried grants for more/of of their ttl.
func ttlTimes(more, of int64) defect {
	return defect{
		info: noQueue,
		try: func(c *client, ctx context.Context, r driver.Request) (driver.Grant, error) {
			return withTTL(time.Duration(int64(r.TTL)*more/of), r, func(r driver.Request) (driver.Grant, error) { return c.Driver.TryAcquire(ctx, r) })
		},
		renew: func(c *client, ctx context.Context, g driver.Grant) (driver.Grant, error) {
			renewed, err := c.Driver.Renew(ctx, g)
			if err == nil {
				renewed.TTL, renewed.Left = g.TTL, g.TTL
			}
			return renewed, err
		},
	}
}

// unanswered makes a definite refusal one that says nothing.
func unanswered(err error) error {
	if errors.Is(err, driver.ErrLost) || errors.Is(err, driver.ErrHeld) {
		return driver.ErrUnavailable
	}
	return err
}

// deadNetwork lets nothing pass, whatever the fault.
type deadNetwork struct{ conformance.Network }

func (n deadNetwork) Set(f conformance.NetworkFault, d time.Duration) {
	if f != conformance.Sound {
		f = conformance.LoseRequests
	}
	n.Network.Set(f, d)
}

// retokenedRenewal draws a token with each renewal.
func retokenedRenewal() defect {
	d := retokened(func(_ *world, _ driver.Request, inner driver.Token) driver.Token { return inner * 100 })
	renew := d.renew
	d.renew = func(c *client, ctx context.Context, g driver.Grant) (driver.Grant, error) {
		renewed, err := renew(c, ctx, g)
		if err == nil {
			c.w.mu.Lock()
			defer c.w.mu.Unlock()
			c.w.tokens[g.Attempt]++
			renewed.Token = c.w.tokens[g.Attempt]
		}
		return renewed, err
	}
	return d
}

// tokenDrawnEarly draws the token, and a moment later asks for the key.
func tokenDrawnEarly() defect {
	d := retokened(func(_ *world, _ driver.Request, inner driver.Token) driver.Token { return inner })
	try := d.try
	d.try = func(c *client, ctx context.Context, r driver.Request) (driver.Grant, error) {
		c.w.mu.Lock()
		if c.w.tokens[r.Attempt] == 0 {
			c.w.inner[driver.Attempt{}]++ // the counter
			c.w.tokens[r.Attempt] = c.w.inner[driver.Attempt{}]
		}
		n := c.w.tokens[r.Attempt]
		c.w.mu.Unlock()
		pause(ctx, time.Duration(n%5)*time.Millisecond)
		return try(c, ctx, r)
	}
	return d
}

// keepAlive polls for a waiter that may be dead, until it has the key.
func (c *client) keepAlive(r driver.Request) {
	go func() {
		for range 50 { // longer than any case looks
			<-time.After(driver.PollInterval(r.TTL))
			if _, err := c.Driver.Poll(context.Background(), r); !errors.Is(err, driver.ErrHeld) {
				return
			}
		}
	}()
}

// freshTicket says that all of its grants have just been made.
type freshTicket struct{ driver.Ticket }

func (t freshTicket) Wait(ctx context.Context) (driver.Grant, error) {
	g, err := t.Ticket.Wait(ctx)
	if err == nil {
		g.Sent = driver.PackageNow()
	}
	return g, err
}

// deafTicket hears nothing.
type deafTicket struct{ driver.Ticket }

func (deafTicket) Wait(ctx context.Context) (driver.Grant, error) {
	<-ctx.Done()
	return driver.Grant{}, ctx.Err()
}

// fences makes a harness with broken fences.
func fences(broken func() conformance.Fence) func(conformance.Harness) conformance.Harness {
	return func(h conformance.Harness) conformance.Harness {
		own := defect{}.harness(h)
		own.Fence = func(context.Context, string) (conformance.Fence, error) { return broken(), nil }
		return own
	}
}

func sharedFence(h conformance.Harness) conformance.Harness {
	own := defect{}.harness(h)
	one := &fence.Register[string]{}
	own.Fence = func(context.Context, string) (conformance.Fence, error) { return one, nil }
	return own
}

// openFence lets everything pass.
type openFence struct {
	mu sync.Mutex
	v  string
}

func (*openFence) Raise(context.Context, driver.Token) error { return nil }
func (f *openFence) Read(context.Context, driver.Token) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.v, nil
}
func (f *openFence) Write(_ context.Context, _ driver.Token, v string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.v = v
	return nil
}

// lazyFence is raised by writes alone.
type lazyFence struct{ fence.Register[string] }

func (f *lazyFence) Raise(context.Context, driver.Token) error { return nil }

// eagerFence is raised by reads, too.
type eagerFence struct{ fence.Register[string] }

func (f *eagerFence) Read(ctx context.Context, t driver.Token) (string, error) {
	if err := f.Raise(ctx, t); err != nil {
		return "", err
	}
	return f.Register.Read(ctx, t)
}

// strictFence wants each write's token to be greater.
type strictFence struct {
	fence.Register[string]
	mu   sync.Mutex
	last driver.Token
}

func (f *strictFence) Write(ctx context.Context, t driver.Token, v string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t <= f.last {
		return driver.ErrStale
	}
	f.last = t
	return f.Register.Write(ctx, t, v)
}

// tidyTicket hears late, and releases a grant that it hears of when it has been closed: it
// may be the live one.
type tidyTicket struct {
	driver.Ticket
	c      *client
	once   sync.Once
	pushes chan driver.Grant
	closed chan struct{}
}

func (t *tidyTicket) Wait(ctx context.Context) (driver.Grant, error) {
	t.once.Do(func() { go t.hear() })
	select {
	case g := <-t.pushes:
		return g, nil
	case <-ctx.Done():
		return driver.Grant{}, ctx.Err()
	}
}

func (t *tidyTicket) hear() {
	for {
		g, err := t.Ticket.Wait(context.Background())
		if err != nil {
			return
		}
		if g.Token == 0 {
			continue
		}
		<-time.After(g.TTL * 6 / 10)
		select {
		case <-t.closed:
			_ = t.c.Driver.Release(context.Background(), g)
		default:
			t.pushes <- g
		}
	}
}

func (t *tidyTicket) Close() {
	close(t.closed)
	t.Ticket.Close()
}
