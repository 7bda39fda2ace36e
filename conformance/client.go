package conformance

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/locker/conformance/history"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/faultlock"
)

// Client is one client of the backend: the driver under test behind a faultlock, with
// everything recorded that it is asked and answers. It is a driver.Driver with every
// optional interface.
type Client struct {
	c    *C
	name string
	f    *faultlock.Driver
	info driver.Info

	mu       sync.Mutex
	first    map[driver.Attempt]time.Duration // of each try
	counts   map[faultlock.Op]int
	undone   map[driver.Attempt]bool // a release of it was sent
	places   int                     // enqueues that were answered queued
	again    int                     // tries and enqueues of such an attempt
	largest  int                     // batch
	mustFire bool
	set      faultlock.Schedule
}

func isErr(err, target error) bool { return err != nil && errors.Is(err, target) }

// Faults makes the client's requests fail by a schedule of package faultlock, until the
// next call. Every rule of it must have fired by then, or by the end of the case.
func (cl *Client) Faults(schedule string) {
	cl.mustHaveFired()
	cl.setFaults(schedule, true)
}

// MayFault is Faults for rules that need not fire.
func (cl *Client) MayFault(schedule string) {
	cl.mustHaveFired()
	cl.setFaults(schedule, false)
}

func (cl *Client) setFaults(schedule string, must bool) {
	s, err := faultlock.Parse(schedule)
	if err != nil {
		cl.c.Setupf("%v", err)
	}
	cl.mu.Lock()
	cl.mustFire, cl.set = must, s
	cl.mu.Unlock()
	cl.f.Set(s)
}

// Fired is how often the rules of the schedule fired.
func (cl *Client) Fired() int {
	n := 0
	for _, r := range cl.f.Fired() {
		n += r.Times
	}
	return n
}

func (cl *Client) mustHaveFired() {
	cl.mu.Lock()
	must := cl.mustFire
	cl.mu.Unlock()
	if !must {
		return
	}
	never := func(r faultlock.Count) bool { return r.Times == 0 }
	// A request that Sent counts already may be about to meet its fault.
	cl.c.Eventually(cl.c.T/10, func() bool { return !slices.ContainsFunc(cl.f.Fired(), never) })
	for _, r := range cl.f.Fired() {
		if never(r) {
			cl.c.fail(BySetup, true, "the fault %v of client %s never fired: the case has tested nothing", r.Rule, cl.name)
		}
	}
}

// Sent is how many requests of these operations, or of all, the client was asked for.
func (cl *Client) Sent(ops ...faultlock.Op) int {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	n := 0
	for op, times := range cl.counts {
		if len(ops) == 0 && op != faultlock.Wait && op != faultlock.Listen {
			n += times
		}
		for _, o := range ops {
			if o == op {
				n += times
			}
		}
	}
	return n
}

// Counts is what was sent, by operation.
func (cl *Client) Counts() map[faultlock.Op]int {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return maps.Clone(cl.counts)
}

// reused is how many tries and enqueues were sent of an attempt behind its release.
func (cl *Client) reused() int {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.again
}

// queues waits until the client has a place in a queue, and listens: its first one may have
// to open a connection.
func (cl *Client) queues() {
	ok := cl.c.Eventually(cl.c.T, func() bool {
		cl.mu.Lock()
		defer cl.mu.Unlock()
		return cl.places > 0 && cl.counts[faultlock.Wait] > 0
	})
	if !ok {
		cl.c.Latef("%s has no place in the queue after a ttl", cl.name)
	}
}

// note keeps which attempts were released.
func (cl *Client) note(a driver.Attempt, release bool) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if release {
		cl.undone[a] = true
	} else if cl.undone[a] {
		cl.again++
	}
}

func (cl *Client) begin(op faultlock.Op, n int) time.Duration {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.counts[op] += n
	return cl.c.History.Now()
}

func outcome(err error, held history.Outcome) history.Outcome {
	switch {
	case err == nil:
		return history.OK
	case errors.Is(err, driver.ErrHeld):
		return held
	case errors.Is(err, driver.ErrLost):
		return history.Lost
	case driver.IsAmbiguous(err):
		return history.Unknown
	}
	return history.Failed
}

// acquired records an answer to a try, an enqueue, a poll, or a push.
func (cl *Client) acquired(r driver.Request, g driver.Grant, err error, call time.Duration, held history.Outcome) {
	op := history.Op{
		Kind: history.Acquire, Outcome: outcome(err, held), Key: r.Key, Client: cl.name, Attempt: r.Attempt,
		Call: call, Return: cl.c.History.Now(), TTL: r.TTL,
	}
	if err == nil {
		op.Token, op.TTL = g.Token, g.TTL
		op.Until = call + g.Left
		if !g.Sent.IsZero() {
			op.Until = cl.c.History.At(g.Sent) + g.Left
		}
	}
	cl.c.History.Add(op)
}

// Info describes the backend.
func (cl *Client) Info() driver.Info { return cl.info }

// TryAcquire is recorded. A grant counts from the attempt's first send.
func (cl *Client) TryAcquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	call := cl.begin(faultlock.Try, 1)
	cl.note(r.Attempt, false)
	g, err := cl.f.TryAcquire(ctx, r)
	cl.mu.Lock()
	first, again := cl.first[r.Attempt]
	if !again {
		first = call
		cl.first[r.Attempt] = call
	}
	cl.mu.Unlock()
	if err == nil && g.Sent.IsZero() {
		counted := g
		counted.Left -= call - first
		cl.acquired(r, counted, err, call, history.Refused)
		return g, err
	}
	cl.acquired(r, g, err, call, history.Refused)
	return g, err
}

// Renew is recorded.
func (cl *Client) Renew(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	call := cl.begin(faultlock.Renew, 1)
	renewed, err := cl.f.Renew(ctx, g)
	cl.renewed(g, renewed, err, call)
	return renewed, err
}

func (cl *Client) renewed(g, renewed driver.Grant, err error, call time.Duration) {
	op := history.Op{
		Kind: history.Renew, Outcome: outcome(err, history.Failed), Key: g.Key, Client: cl.name, Attempt: g.Attempt, Token: g.Token,
		Call: call, Return: cl.c.History.Now(), TTL: g.TTL,
	}
	if err == nil {
		op.Token = renewed.Token
		op.Until = call + renewed.Left
		if !renewed.Sent.IsZero() {
			op.Until = cl.c.History.At(renewed.Sent) + renewed.Left
		}
	}
	cl.c.History.Add(op)
}

// Release is recorded.
func (cl *Client) Release(ctx context.Context, g driver.Grant) error {
	call := cl.begin(faultlock.Release, 1)
	cl.note(g.Attempt, true)
	err := cl.f.Release(ctx, g)
	cl.c.History.Add(history.Op{
		Kind: history.Release, Outcome: outcome(err, history.Failed), Key: g.Key, Client: cl.name, Attempt: g.Attempt, Token: g.Token,
		Call: call, Return: cl.c.History.Now(), TTL: g.TTL,
	})
	return err
}

// Close closes the client.
func (cl *Client) Close() error { return cl.f.Close() }

// Listen opens a ticket whose pushes are recorded.
func (cl *Client) Listen(ctx context.Context, r driver.Request) (driver.Ticket, error) {
	call := cl.begin(faultlock.Listen, 1)
	t, err := cl.f.Listen(ctx, r)
	if err != nil {
		return nil, err
	}
	return &recordedTicket{Ticket: t, cl: cl, r: r, call: call}, nil
}

type recordedTicket struct {
	driver.Ticket
	cl   *Client
	r    driver.Request
	call time.Duration
}

// Wait records a push.
func (t *recordedTicket) Wait(ctx context.Context) (driver.Grant, error) {
	t.cl.begin(faultlock.Wait, 1)
	g, err := t.Ticket.Wait(ctx)
	if err == nil && g.Token != 0 && g.Attempt == t.r.Attempt && !g.Sent.IsZero() {
		t.cl.acquired(t.r, g, nil, t.call, history.Queued)
	}
	return g, err
}

// Enqueue is recorded.
func (cl *Client) Enqueue(ctx context.Context, r driver.Request) (driver.Grant, error) {
	call := cl.begin(faultlock.Enqueue, 1)
	cl.note(r.Attempt, false)
	g, err := cl.f.Enqueue(ctx, r)
	if !isErr(err, driver.ErrUnsupported) {
		cl.acquired(r, g, err, call, history.Queued)
	}
	if isErr(err, driver.ErrHeld) {
		cl.mu.Lock()
		cl.places++
		cl.mu.Unlock()
	}
	return g, err
}

// Poll is recorded.
func (cl *Client) Poll(ctx context.Context, r driver.Request) (driver.Grant, error) {
	call := cl.begin(faultlock.Poll, 1)
	g, err := cl.f.Poll(ctx, r)
	if !isErr(err, driver.ErrUnsupported) {
		cl.acquired(r, g, err, call, history.Queued)
	}
	return g, err
}

// RenewBatch is recorded, and counts as one request.
func (cl *Client) RenewBatch(ctx context.Context, gs []driver.Grant, each func(i int, g driver.Grant, err error)) error {
	call := cl.begin(faultlock.Renew, 1)
	cl.mu.Lock()
	cl.largest = max(cl.largest, len(gs))
	cl.mu.Unlock()
	var mu sync.Mutex
	answered := make([]bool, len(gs))
	err := cl.f.RenewBatch(ctx, gs, func(i int, g driver.Grant, err error) {
		mu.Lock()
		answered[i] = true
		mu.Unlock()
		cl.renewed(gs[i], g, err, call)
		each(i, g, err)
	})
	if err == nil {
		for i, g := range gs {
			if !answered[i] {
				cl.renewed(g, driver.Grant{}, driver.ErrAmbiguous, call)
			}
		}
	}
	return err
}

// Inspect is counted.
func (cl *Client) Inspect(ctx context.Context, key string) (driver.State, error) {
	cl.begin(faultlock.Inspect, 1)
	return cl.f.Inspect(ctx, key)
}

// List is counted as one request.
func (cl *Client) List(ctx context.Context, prefix string) iter.Seq2[driver.State, error] {
	cl.begin(faultlock.List, 1)
	return cl.f.List(ctx, prefix)
}

// Break is recorded.
func (cl *Client) Break(ctx context.Context, key string, t driver.Token, b driver.Break) error {
	call := cl.begin(faultlock.Break, 1)
	err := cl.f.Break(ctx, key, t, b)
	op := history.Op{Kind: history.Break, Outcome: outcome(err, history.Refused), Key: key, Client: cl.name, Token: t, Call: call, Return: cl.c.History.Now()}
	if !b.Now {
		op.Until = op.Return
	}
	cl.c.History.Add(op)
	return err
}

// Ping is counted.
func (cl *Client) Ping(ctx context.Context) error {
	cl.begin(faultlock.Ping, 1)
	return cl.f.Ping(ctx)
}
