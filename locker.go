// Package locker is a distributed lock: one Locker, Lease and Token over S3, etcd, Redis,
// Postgres, a directory, or memory.
//
// A Locker hands out leases. A lease is believed only as long as this process's own clock
// allows, and every lease carries a fencing token that grows with each grant of its key.
// Mutual exclusion needs bounded clock rates; token order needs nothing. A resource that
// refuses tokens lower than one it has seen is safe even from a holder that was stopped
// for an hour between its last check and its write.
//
//	lease, err := l.Acquire(ctx, "nightly-report", locker.WithWait(time.Minute))
//	if err != nil {
//		return err // errors.Is(err, locker.ErrHeld): somebody else has it
//	}
//	defer lease.Release(ctx)
//	ctx, cancel := lease.Context(ctx) // ends when the lease does
//	defer cancel()
//	return report(ctx, lease.Token())
//
// # Not offered
//
// Reentrancy: a second Acquire by the same goroutine waits. Read/write locks and
// semaphores: use several keys. Several locks at once: sort the keys, and release all of
// them on the first refusal.
package locker

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/locker/driver"
)

// Token is a fencing token, 1 to 1<<63 − 1. For one key, a grant that begins after another
// one returned carries a strictly greater token.
type Token = driver.Token

// State is what an inspection shows of one key.
type State = driver.State

// Info states what a backend promises.
type Info = driver.Info

// Break says how and why a lock is broken.
type Break = driver.Break

// ParseToken reads a token in decimal.
func ParseToken(s string) (Token, error) { return driver.ParseToken(s) }

// Locker hands out leases on keys. It is safe for concurrent use. Calls of one Locker for
// one key are served first come first served.
type Locker struct {
	c      *core
	prefix string // with its slash; empty on the Locker that New made
}

// core is what a Locker and all its prefixes share.
type core struct {
	drv       driver.Driver
	queuer    driver.Queuer       // nil: poll
	batcher   driver.BatchRenewer // nil: one by one
	noBatch   atomic.Bool         // RenewBatch turned out not to be supported
	noQueue   atomic.Bool         // the queue did
	info      driver.Info
	opts      Options
	owned     bool // Close closes drv
	clock     clock
	born      time.Time
	phase     float64            // of the renewal grid, so that Lockers do not march in step
	ctx       context.Context    // ends waits, at Close
	stopWaits context.CancelFunc //
	// background is what renewals and undos run on: never a caller's context.
	background     context.Context
	stopBackground context.CancelFunc
	renewers       workers
	undoers        workers

	mu        sync.Mutex
	cancels   []func() // for unlock
	callbacks []func() // for unlock, behind the cancels
	closed    bool
	closing   chan struct{} // closed when Close is done
	closeErr  error
	calls     int // acquisitions and releases under way
	idle      chan struct{}
	keys      map[string]*keyState
	marks     marks
	leases    map[*Lease]struct{} // all that may have their key at the backend
	running   map[*Lease]struct{} // those that a Do or Lead function runs under
	undos     map[driver.Attempt]*undo
	sched     schedule
}

// New makes a Locker over a driver. The driver stays the caller's: Close does not close
// it, and several Lockers may share it. o may be nil. A ttl that the backend does not take
// is ErrInvalidTTL.
func New(d driver.Driver, o *Options) (*Locker, error) {
	if d == nil {
		return nil, &Error{Op: "new", Err: errors.New("the driver is nil")}
	}
	info := d.Info()
	opts, err := o.withDefaults(info)
	if err != nil {
		return nil, &Error{Op: "new", Backend: info.Name, Err: err}
	}
	c := &core{
		drv: d, info: info, opts: opts,
		born: time.Now(), phase: rand.Float64(),
		renewers: workers{limit: renewers}, undoers: workers{limit: undoers},
		closing: make(chan struct{}),
		keys:    make(map[string]*keyState), leases: make(map[*Lease]struct{}), running: make(map[*Lease]struct{}), undos: make(map[driver.Attempt]*undo),
	}
	c.queuer, _ = d.(driver.Queuer)
	c.batcher, _ = d.(driver.BatchRenewer)
	c.clock.packageOnly = info.PackageTime
	c.info.HolderClock = c.clock.name()
	c.sched.ttls = make(map[time.Duration]int)
	c.sched.ahead, _ = c.clock.now().Ahead()
	c.ctx, c.stopWaits = context.WithCancel(context.Background())
	c.background, c.stopBackground = context.WithCancel(context.Background())
	return &Locker{c: c}, nil
}

// Acquire waits for the key and returns its lease. It waits until ctx ends, or as long as
// WithWait says; the error then is both ErrHeld, with the last known holder, and the
// context's error, and what the wait has at the backend is undone in the background. What the first request
// answers other than a refusal is returned; later a backend that is unavailable is tried
// again until the wait ends. ErrAmbiguous: the outcome of a request could not be learned,
// and it is being undone. ctx bounds the wait only: the lease outlives it.
func (l *Locker) Acquire(ctx context.Context, key string, opts ...AcquireOption) (*Lease, error) {
	return l.acquire(ctx, key, false, opts)
}

// TryAcquire makes one attempt: a lease, or ErrHeld (as *HeldError) if somebody has the
// key or waits for it in this process. ErrLost: it was granted, but the answer came only
// when the grant had ended.
func (l *Locker) TryAcquire(ctx context.Context, key string, opts ...AcquireOption) (*Lease, error) {
	return l.acquire(ctx, key, true, opts)
}

// Prefix returns a Locker over the same core whose key k is p + "/" + k. Nothing is
// escaped. Its Close is an error: close the Locker it came from.
func (l *Locker) Prefix(p string) *Locker {
	return &Locker{c: l.c, prefix: l.prefix + p + "/"}
}

func (l *Locker) full(key string) string {
	if key == "" {
		return "" // an empty key is a mistake, with a prefix too
	}
	return l.prefix + key
}

// Info describes the backend.
func (l *Locker) Info() Info { return l.c.info }

// Inspect returns the state of one key. Unless the backend can inspect: ErrUnsupported.
func (l *Locker) Inspect(ctx context.Context, key string) (State, error) {
	c, full := l.c, l.full(key)
	i, ok := c.drv.(driver.Inspector)
	if !ok {
		return State{}, c.fail("inspect", full, ErrUnsupported)
	}
	if err := checkKey(full); err != nil {
		return State{}, c.fail("inspect", full, err)
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	s, err := i.Inspect(ctx, full)
	if err != nil {
		return State{}, c.fail("inspect", full, plain(err))
	}
	return l.saw(s), nil
}

// List yields the state of every held key that begins with prefix, in no order. It ends
// after the first error.
func (l *Locker) List(ctx context.Context, prefix string) iter.Seq2[State, error] {
	c := l.c
	return func(yield func(State, error) bool) {
		i, ok := c.drv.(driver.Inspector)
		if !ok {
			yield(State{}, c.fail("list", "", ErrUnsupported))
			return
		}
		for s, err := range i.List(ctx, l.prefix+prefix) {
			if err != nil {
				yield(State{}, c.fail("list", "", plain(err)))
				return
			}
			if s.Held && !yield(l.saw(s), nil) {
				return
			}
		}
	}
}

// saw notes a holder's token (R10) and shows the key as this Locker names it.
func (l *Locker) saw(s State) State {
	if s.Held {
		l.c.lock()
		l.c.withMark(s.Key, func(m *mark) { m.saw(s.Token, s.Attempt) })
		l.c.unlock()
	}
	s.Key = strings.TrimPrefix(s.Key, l.prefix)
	return s
}

// Break takes the key away from the holder with token t: it can renew no more, and the key
// is given away at its deadline. With b.Now it is free at once, which suspends mutual
// exclusion and relies on fences alone. Another token: the current *HeldError, or ErrLost
// where the key is free.
func (l *Locker) Break(ctx context.Context, key string, t Token, b Break) error {
	c, full := l.c, l.full(key)
	br, ok := c.drv.(driver.Breaker)
	if !ok {
		return c.fail("break", full, ErrUnsupported)
	}
	if err := checkKey(full); err != nil {
		return c.fail("break", full, err)
	}
	if t == 0 || t > driver.MaxToken {
		return c.fail("break", full, errors.New("want the holder's token; Inspect tells it"))
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	return c.fail("break", full, plain(br.Break(ctx, full, t, b)))
}

// AcceptTokenReset forgets the greatest token seen of a key, after ErrTokenRegression: the
// backend has lost its counter, and somebody has decided that nothing holds a greater one
// any more. Attempts that begin later ask the backend for a token above the forgotten one,
// where it can.
func (l *Locker) AcceptTokenReset(key string) {
	l.c.lock()
	defer l.c.unlock()
	l.c.withMark(l.full(key), (*mark).reset)
}

// Ping asks the backend whether it can be reached. A backend that cannot be asked answers
// ErrUnsupported.
func (l *Locker) Ping(ctx context.Context) error {
	p, ok := l.c.drv.(driver.Pinger)
	if !ok {
		return l.c.fail("ping", "", ErrUnsupported)
	}
	ctx, cancel := l.c.bounded(ctx)
	defer cancel()
	return l.c.fail("ping", "", plain(p.Ping(ctx)))
}

// bounded gives a single request its time, however patient its caller is.
func (c *core) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, callTimeout(c.opts.TTL))
}

// queueing reports whether waiters queue at the backend.
func (c *core) queueing() bool { return c.queuer != nil && !c.noQueue.Load() }

// enter counts an acquisition, unless the Locker is closed.
func (c *core) enter() error {
	c.lock()
	defer c.unlock()
	if c.closed {
		return ErrClosed
	}
	c.calls++
	return nil
}

func (c *core) exit() {
	c.lock()
	defer c.unlock()
	if c.calls--; c.calls == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}
