package conformance_test

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/memlock"
)

// world is one server and what its broken clients share.
type world struct {
	*memlock.Server
	mu      sync.Mutex
	clients []*client
	tokens  map[driver.Attempt]driver.Token // as shown outside
	inner   map[driver.Attempt]driver.Token // as the server knows them
	last    map[string]driver.Token
	places  map[string][]driver.Request
	ended   map[driver.Attempt]bool
	grants  map[driver.Attempt]driver.Grant
}

func newWorld() *world {
	return &world{
		Server: memlock.NewServer(), tokens: map[driver.Attempt]driver.Token{}, inner: map[driver.Attempt]driver.Token{},
		last: map[string]driver.Token{}, places: map[string][]driver.Request{}, ended: map[driver.Attempt]bool{},
		grants: map[driver.Attempt]driver.Grant{},
	}
}

// client is a client of memlock with one defect: whatever is set replaces the method.
type client struct {
	*memlock.Driver
	w *world
	defect
}

// defect is what is wrong.
type defect struct {
	info    func(driver.Info) driver.Info
	try     func(c *client, ctx context.Context, r driver.Request) (driver.Grant, error)
	renew   func(c *client, ctx context.Context, g driver.Grant) (driver.Grant, error)
	release func(c *client, ctx context.Context, g driver.Grant) error
	listen  func(c *client, ctx context.Context, r driver.Request) (driver.Ticket, error)
	enqueue func(c *client, ctx context.Context, r driver.Request) (driver.Grant, error)
	poll    func(c *client, ctx context.Context, r driver.Request) (driver.Grant, error)
	brk     func(c *client, ctx context.Context, key string, t driver.Token, b driver.Break) error
	inspect func(c *client, ctx context.Context, key string) (driver.State, error)
	list    func(c *client, ctx context.Context, prefix string) iter.Seq2[driver.State, error]
	ping    func(c *client, ctx context.Context) error
	close   func(c *client) error
}

// lacks reports whether the client hides what memlock can do.
func (c *client) lacks(f driver.Feature) bool { return !c.Info().Has(f) }

func (c *client) Info() driver.Info {
	if c.info != nil {
		return c.info(c.Driver.Info())
	}
	return c.Driver.Info()
}

func (c *client) TryAcquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if c.try != nil {
		return c.try(c, ctx, r)
	}
	return c.Driver.TryAcquire(ctx, r)
}

func (c *client) Renew(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	if c.renew != nil {
		return c.renew(c, ctx, g)
	}
	return c.Driver.Renew(ctx, g)
}

func (c *client) RenewBatch(ctx context.Context, gs []driver.Grant, each func(int, driver.Grant, error)) error {
	if c.lacks(driver.FeatureBatch) {
		return driver.ErrUnsupported
	}
	for i, g := range gs {
		renewed, err := c.Renew(ctx, g)
		each(i, renewed, err)
	}
	return nil
}

func (c *client) Release(ctx context.Context, g driver.Grant) error {
	if c.release != nil {
		return c.release(c, ctx, g)
	}
	return c.Driver.Release(ctx, g)
}

func (c *client) Listen(ctx context.Context, r driver.Request) (driver.Ticket, error) {
	if c.lacks(driver.FeatureQueue) {
		return nil, driver.ErrUnsupported
	}
	if c.listen != nil {
		return c.listen(c, ctx, r)
	}
	return c.Driver.Listen(ctx, r)
}

func (c *client) Enqueue(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if c.lacks(driver.FeatureQueue) {
		return driver.Grant{}, driver.ErrUnsupported
	}
	if c.enqueue != nil {
		return c.enqueue(c, ctx, r)
	}
	return c.Driver.Enqueue(ctx, r)
}

func (c *client) Poll(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if c.lacks(driver.FeatureQueue) {
		return driver.Grant{}, driver.ErrUnsupported
	}
	if c.poll != nil {
		return c.poll(c, ctx, r)
	}
	return c.Driver.Poll(ctx, r)
}

func (c *client) Break(ctx context.Context, key string, t driver.Token, b driver.Break) error {
	if c.brk != nil {
		return c.brk(c, ctx, key, t, b)
	}
	return c.Driver.Break(ctx, key, t, b)
}

func (c *client) Inspect(ctx context.Context, key string) (driver.State, error) {
	if c.inspect != nil {
		return c.inspect(c, ctx, key)
	}
	return c.Driver.Inspect(ctx, key)
}

func (c *client) List(ctx context.Context, prefix string) iter.Seq2[driver.State, error] {
	if c.list != nil {
		return c.list(c, ctx, prefix)
	}
	return c.Driver.List(ctx, prefix)
}

func (c *client) Ping(ctx context.Context) error {
	if c.ping != nil {
		return c.ping(c, ctx)
	}
	return c.Driver.Ping(ctx)
}

func (c *client) Close() error {
	if c.close != nil {
		return c.close(c)
	}
	return c.Driver.Close()
}

// harness makes all clients of a case broken in the same way.
func (d defect) harness(h conformance.Harness) conformance.Harness {
	w := newWorld()
	own := memory(w.Server)
	own.Virtual, own.TTL, own.Slack, own.Features = h.Virtual, h.TTL, h.Slack, h.Features
	open := func(context.Context) (driver.Driver, error) {
		c := &client{Driver: w.Driver(), w: w, defect: d}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.clients = append(w.clients, c)
		return c, nil
	}
	own.Driver = open
	own.Faults.Client = func(ctx context.Context) (driver.Driver, conformance.Network, error) { return networked(open(ctx)) }
	return own
}

// noQueue makes a defect of a client that polls: the defect is in its tries.
func noQueue(i driver.Info) driver.Info {
	i.Waiting = driver.WaitPoll
	i.Features = []driver.Feature{driver.FeatureInspect, driver.FeatureList, driver.FeatureBreak, driver.FeatureBreakNow, driver.FeaturePing}
	return i
}

// renamed makes keys collide.
func renamed(f func(string) string) defect {
	return defect{
		try: func(c *client, ctx context.Context, r driver.Request) (driver.Grant, error) {
			key := r.Key
			r.Key = f(key)
			g, err := c.Driver.TryAcquire(ctx, r)
			g.Key = key
			return g, err
		},
		enqueue: func(c *client, ctx context.Context, r driver.Request) (driver.Grant, error) {
			key := r.Key
			r.Key = f(key)
			g, err := c.Driver.Enqueue(ctx, r)
			g.Key = key
			return g, err
		},
		poll: func(c *client, ctx context.Context, r driver.Request) (driver.Grant, error) {
			key := r.Key
			r.Key = f(key)
			g, err := c.Driver.Poll(ctx, r)
			g.Key = key
			return g, err
		},
		renew: func(c *client, ctx context.Context, g driver.Grant) (driver.Grant, error) {
			key := g.Key
			g.Key = f(key)
			renewed, err := c.Driver.Renew(ctx, g)
			renewed.Key = key
			return renewed, err
		},
		release: func(c *client, ctx context.Context, g driver.Grant) error {
			g.Key = f(g.Key)
			return c.Driver.Release(ctx, g)
		},
	}
}

// retokened shows other tokens than the server's. draw gets the server's token.
func retokened(draw func(w *world, r driver.Request, inner driver.Token) driver.Token) defect {
	show := func(c *client, g driver.Grant, err error) (driver.Grant, error) {
		if err != nil {
			return g, err
		}
		c.w.mu.Lock()
		defer c.w.mu.Unlock()
		t, ok := c.w.tokens[g.Attempt]
		if !ok {
			t = draw(c.w, g.Request, g.Token)
			c.w.tokens[g.Attempt] = t
		}
		c.w.inner[g.Attempt] = g.Token
		g.Token = t
		return g, nil
	}
	return defect{
		info: noQueue, // so that every grant comes of a try
		try: func(c *client, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := c.Driver.TryAcquire(ctx, r)
			return show(c, g, err)
		},
		renew: func(c *client, ctx context.Context, g driver.Grant) (driver.Grant, error) {
			c.w.mu.Lock()
			g.Token = c.w.inner[g.Attempt]
			c.w.mu.Unlock()
			renewed, err := c.Driver.Renew(ctx, g)
			return show(c, renewed, err)
		},
		release: func(c *client, ctx context.Context, g driver.Grant) error {
			err := c.Driver.Release(ctx, g)
			if err == nil {
				c.w.mu.Lock()
				c.w.ended[g.Attempt] = true
				c.w.last[g.Key] = 0
				c.w.mu.Unlock()
			}
			return err
		},
	}
}

// leak leaves a goroutine behind; for ever would end the bubble of a virtual run.
func leak() {
	go func() { <-time.After(time.Hour) }()
}

// pause lets time pass inside a broken client.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
