package memlock

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/locker/driver"
)

const (
	// minTTL keeps a poll interval, a quarter of it, well above the server's tick.
	minTTL = 20 * time.Millisecond
	// slack is for the scheduler of a loaded machine. The server itself is exact.
	slack = 50 * time.Millisecond
	// listPage is how many keys List reads at once.
	listPage = 256
)

// Driver is one client of a [Server]. It implements [driver.Driver] and every optional
// interface. It is safe for concurrent use; no call blocks, except a Ticket's Wait.
type Driver struct {
	server *Server
	close  sync.Once
	closed chan struct{}
}

var (
	_ driver.Driver       = (*Driver)(nil)
	_ driver.Queuer       = (*Driver)(nil)
	_ driver.BatchRenewer = (*Driver)(nil)
	_ driver.Inspector    = (*Driver)(nil)
	_ driver.Breaker      = (*Driver)(nil)
	_ driver.Pinger       = (*Driver)(nil)
)

func newDriver(s *Server) *Driver {
	return &Driver{server: s, closed: make(chan struct{})}
}

// Info describes the backend.
func (d *Driver) Info() driver.Info {
	return driver.Info{
		Name:          "memlock",
		Tokens:        driver.BestEffort,
		ExpiryClock:   "this process's monotonic clock",
		Waiting:       driver.WaitQueue,
		MinTTL:        minTTL,
		Slack:         slack,
		FailoverLoses: "everything: grants and counters are the memory of one process",
		Features: []driver.Feature{
			driver.FeatureQueue, driver.FeatureFIFO, driver.FeatureFloor, driver.FeatureBatch,
			driver.FeatureInspect, driver.FeatureList,
			driver.FeatureBreak, driver.FeatureBreakNow, driver.FeaturePing,
		},
		PackageTime: true,
	}
}

// enter is the check before anything is sent: ErrClosed, or ErrUnavailable where the
// context has ended already.
func (d *Driver) enter(ctx context.Context) error {
	select {
	case <-d.closed:
		return driver.ErrClosed
	default:
	}
	if err := ctx.Err(); err != nil {
		return driver.Wrap(driver.ErrUnavailable, err)
	}
	return nil
}

// TryAcquire makes one attempt. A grant that a TryAcquire made, now or in an earlier
// send of this attempt, counts from the core's first send: Sent is zero. One that a
// place in the queue was given counts from this call, with what remains.
func (d *Driver) TryAcquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if err := d.enterRequest(ctx, r); err != nil {
		return driver.Grant{}, err
	}
	sent := driver.PackageNow()
	a, err := d.server.tryAcquire(r)
	switch {
	case err != nil:
		return driver.Grant{}, err
	case a.held != nil:
		return driver.Grant{}, a.held
	case a.grant.tried:
		return driver.Grant{Request: a.grant.Request, Token: a.grant.token, Left: a.grant.TTL}, nil
	}
	return a.remaining(sent), nil
}

// enterRequest is enter for a call that may make a grant.
func (d *Driver) enterRequest(ctx context.Context, r driver.Request) error {
	if r.TTL < minTTL {
		return driver.ErrInvalidTTL
	}
	return d.enter(ctx)
}

// remaining is the grant with what is left of it by the clock of this same answer.
func (a answer) remaining(sent driver.Instant) driver.Grant {
	return driver.Grant{
		Request: a.grant.Request,
		Token:   a.grant.token,
		Sent:    sent,
		Left:    a.grant.expires - reading(a.at),
	}
}

// Enqueue takes a place in the queue, or the key. Its answer sets the clock of the
// attempt's ticket.
func (d *Driver) Enqueue(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if err := d.enterRequest(ctx, r); err != nil {
		return driver.Grant{}, err
	}
	return d.ask(r, d.server.enqueue)
}

// Poll asks after the place. Its answer sets the clock of the attempt's ticket.
func (d *Driver) Poll(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if err := d.enter(ctx); err != nil {
		return driver.Grant{}, err
	}
	return d.ask(r, d.server.poll)
}

func (d *Driver) ask(r driver.Request, request func(driver.Request) (answer, error)) (driver.Grant, error) {
	sent := driver.PackageNow()
	a, err := request(r)
	// From here on this is the client again: a push may have overtaken the answer.
	d.answered(r.Attempt, sent, a.at)
	switch {
	case err != nil:
		return driver.Grant{}, err
	case a.held != nil:
		return driver.Grant{}, a.held
	}
	return a.remaining(sent), nil
}

// Renew makes the grant last its ttl again.
func (d *Driver) Renew(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	if err := d.enter(ctx); err != nil {
		return driver.Grant{}, err
	}
	r, err := d.server.renew(g)
	if err != nil {
		return driver.Grant{}, err
	}
	return driver.Grant{Request: r, Token: g.Token, Left: r.TTL}, nil
}

// RenewBatch renews the grants one after the other; none can hold back another.
func (d *Driver) RenewBatch(ctx context.Context, gs []driver.Grant, each func(i int, g driver.Grant, err error)) error {
	for i, g := range gs {
		renewed, err := d.Renew(ctx, g)
		each(i, renewed, err)
	}
	return nil
}

// Release ends what the attempt has, found by its Request alone.
func (d *Driver) Release(ctx context.Context, g driver.Grant) error {
	if err := d.enter(ctx); err != nil {
		return err
	}
	return d.server.release(g.Request)
}

// Break takes the holder's right to renew, and with b.Now the key. Who broke it and
// why is added to the note that inspections show.
func (d *Driver) Break(ctx context.Context, key string, t driver.Token, b driver.Break) error {
	if err := d.enter(ctx); err != nil {
		return err
	}
	return d.server.breakGrant(key, t, b)
}

// Inspect returns the state of one key.
func (d *Driver) Inspect(ctx context.Context, key string) (driver.State, error) {
	if err := d.enter(ctx); err != nil {
		return driver.State{}, err
	}
	return d.server.inspect(key)[0], nil
}

// List yields the keys that are held, in the order of their names. Each page is read
// in one step; the server is not locked while the caller looks at it.
func (d *Driver) List(ctx context.Context, prefix string) iter.Seq2[driver.State, error] {
	return func(yield func(driver.State, error) bool) {
		if err := d.enter(ctx); err != nil {
			yield(driver.State{}, err)
			return
		}
		for page := range slices.Chunk(d.server.names(prefix), listPage) {
			if err := d.enter(ctx); err != nil {
				yield(driver.State{}, err)
				return
			}
			for _, st := range d.server.inspect(page...) {
				if st.Held && !yield(st, nil) {
					return
				}
			}
		}
	}
}

// Ping answers nil until Close.
func (d *Driver) Ping(ctx context.Context) error { return d.enter(ctx) }

// Close ends this client: its calls and its tickets' waits answer ErrClosed, and what
// it holds lapses. The server and its other clients go on. It always returns nil.
func (d *Driver) Close() error {
	d.close.Do(func() {
		close(d.closed)
		d.server.forget(d)
	})
	return nil
}
