package locker_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/memlock"
)

// world is one server, and Lockers on it, in virtual time.
type world struct {
	*testing.T
	server *memlock.Server
	ctx    context.Context
}

// inWorld runs a test in virtual time.
func inWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	t.Parallel()
	inBubble(t, f)
}

// inBubble is inWorld for a second world of one test.
func inBubble(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(&world{T: t, server: memlock.NewServer(), ctx: t.Context()})
	})
}

// locker makes a Locker of its own client, closed at the end of the test.
func (w *world) locker(o *locker.Options) *locker.Locker {
	w.Helper()
	return w.over(w.server.Driver(), o)
}

func (w *world) over(d driver.Driver, o *locker.Options) *locker.Locker {
	w.Helper()
	l, err := locker.New(d, o)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = l.Close() })
	return l
}

// tapped makes a Locker whose driver's calls the test sees and can change.
func (w *world) tapped(o *locker.Options) (*locker.Locker, *tap) {
	w.Helper()
	tp := &tap{d: w.server.Driver(), info: func(i driver.Info) driver.Info { return i }}
	return w.over(tp, o), tp
}

// polling is tapped over a driver without a queue.
func (w *world) polling(o *locker.Options) (*locker.Locker, *tap) {
	w.Helper()
	tp := &tap{d: w.server.Driver(), info: func(i driver.Info) driver.Info { return i }}
	return w.over(bare{tp}, o), tp
}

// bare hides every optional interface.
type bare struct{ driver.Driver }

func (w *world) acquire(l *locker.Locker, key string, opts ...locker.AcquireOption) *locker.Lease {
	w.Helper()
	lease, err := l.Acquire(w.ctx, key, opts...)
	if err != nil {
		w.Fatalf("acquire: %v", err)
	}
	return lease
}

// wants fails the test unless err is each of the targets; none: unless err is nil.
func (w *world) wants(err error, targets ...error) {
	w.Helper()
	if len(targets) == 0 && err != nil {
		w.Fatalf("got error %v, want none", err)
	}
	for _, target := range targets {
		if !errors.Is(err, target) {
			w.Fatalf("got error %v, want %v", err, target)
		}
	}
}

// pass lets virtual time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// near reports whether two durations are equal but for what a tick of the server and
// rounding explain.
func near(a, b time.Duration) bool { return (a - b).Abs() <= 5*time.Millisecond }

// op is a driver's method.
type op string

const (
	opTry     op = "try"
	opRenew   op = "renew"
	opBatch   op = "batch" // one request; its grants are opRenew too
	opRelease op = "release"
	opListen  op = "listen"
	opEnqueue op = "enqueue"
	opPoll    op = "poll"
	opWait    op = "wait"
	opClose   op = "close ticket"
)

// seen is one call that a driver got.
type seen struct {
	op       op
	n        int // of this op, from 1, since its handler was set
	req      driver.Request
	grant    driver.Grant
	at       time.Time
	deadline time.Time
}

// next sends the call on to the real driver.
type next func(context.Context) (driver.Grant, error)

// handler answers a call instead of the driver.
type handler func(ctx context.Context, s seen, send next) (driver.Grant, error)

// tap is a driver whose calls a test sees and can answer, delay, repeat and swallow.
type tap struct {
	d      *memlock.Driver
	info   func(driver.Info) driver.Info
	mu     sync.Mutex
	calls  []seen
	counts map[op]int // since the handler of the op was set
	on     map[op]handler
}

// when sets the handler of an op; nil: the driver answers.
func (t *tap) when(o op, h handler) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.on == nil {
		t.on = map[op]handler{}
	}
	t.on[o] = h
	delete(t.counts, o)
}

// saw returns the calls of the given ops, or all.
func (t *tap) saw(ops ...op) []seen {
	t.mu.Lock()
	defer t.mu.Unlock()
	var got []seen
	for _, s := range t.calls {
		if len(ops) == 0 || slices.Contains(ops, s.op) {
			got = append(got, s)
		}
	}
	return got
}

// requests is how many calls of these ops there were.
func (t *tap) requests(ops ...op) int { return len(t.saw(ops...)) }

func (t *tap) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = nil
}

func (t *tap) do(ctx context.Context, o op, r driver.Request, g driver.Grant, send next) (driver.Grant, error) {
	t.mu.Lock()
	if t.counts == nil {
		t.counts = map[op]int{}
	}
	t.counts[o]++
	s := seen{op: o, n: t.counts[o], req: r, grant: g, at: time.Now()}
	s.deadline, _ = ctx.Deadline()
	t.calls = append(t.calls, s)
	h := t.on[o]
	t.mu.Unlock()
	if h == nil {
		return send(ctx)
	}
	return h(ctx, s, send)
}

func (t *tap) Info() driver.Info { return t.info(t.d.Info()) }
func (t *tap) Close() error      { return t.d.Close() }

func (t *tap) TryAcquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	return t.do(ctx, opTry, r, driver.Grant{}, func(ctx context.Context) (driver.Grant, error) { return t.d.TryAcquire(ctx, r) })
}

func (t *tap) Renew(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	return t.do(ctx, opRenew, g.Request, g, func(ctx context.Context) (driver.Grant, error) { return t.d.Renew(ctx, g) })
}

func (t *tap) Release(ctx context.Context, g driver.Grant) error {
	_, err := t.do(ctx, opRelease, g.Request, g, func(ctx context.Context) (driver.Grant, error) {
		return driver.Grant{}, t.d.Release(ctx, g)
	})
	return err
}

func (t *tap) Enqueue(ctx context.Context, r driver.Request) (driver.Grant, error) {
	return t.do(ctx, opEnqueue, r, driver.Grant{}, func(ctx context.Context) (driver.Grant, error) { return t.d.Enqueue(ctx, r) })
}

func (t *tap) Poll(ctx context.Context, r driver.Request) (driver.Grant, error) {
	return t.do(ctx, opPoll, r, driver.Grant{}, func(ctx context.Context) (driver.Grant, error) { return t.d.Poll(ctx, r) })
}

// RenewBatch sends the grants side by side, so that one that is stuck holds back no other.
func (t *tap) RenewBatch(ctx context.Context, gs []driver.Grant, each func(int, driver.Grant, error)) error {
	if _, err := t.do(ctx, opBatch, gs[0].Request, driver.Grant{}, func(context.Context) (driver.Grant, error) { return driver.Grant{}, nil }); err != nil {
		return err
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i, g := range gs {
		wg.Go(func() {
			renewed, err := t.Renew(ctx, g)
			mu.Lock()
			defer mu.Unlock()
			each(i, renewed, err)
		})
	}
	wg.Wait()
	return nil
}

func (t *tap) Listen(ctx context.Context, r driver.Request) (driver.Ticket, error) {
	var ticket driver.Ticket
	_, err := t.do(ctx, opListen, r, driver.Grant{}, func(ctx context.Context) (_ driver.Grant, err error) {
		ticket, err = t.d.Listen(ctx, r)
		return driver.Grant{}, err
	})
	if err != nil {
		return nil, err
	}
	return &tapTicket{ticket, t, r}, nil
}

type tapTicket struct {
	driver.Ticket
	t *tap
	r driver.Request
}

func (k *tapTicket) Wait(ctx context.Context) (driver.Grant, error) {
	return k.t.do(ctx, opWait, k.r, driver.Grant{}, k.Ticket.Wait)
}

func (k *tapTicket) Close() {
	_, _ = k.t.do(context.Background(), opClose, k.r, driver.Grant{}, func(context.Context) (driver.Grant, error) {
		k.Ticket.Close()
		return driver.Grant{}, nil
	})
}

func (t *tap) Inspect(ctx context.Context, key string) (driver.State, error) {
	return t.d.Inspect(ctx, key)
}
func (t *tap) List(ctx context.Context, prefix string) iter.Seq2[driver.State, error] {
	return t.d.List(ctx, prefix)
}
func (t *tap) Break(ctx context.Context, key string, tk driver.Token, b driver.Break) error {
	return t.d.Break(ctx, key, tk, b)
}
func (t *tap) Ping(ctx context.Context) error { return t.d.Ping(ctx) }

// The usual faults.

// lostReply applies the call and loses the answer.
func lostReply(ctx context.Context, _ seen, send next) (driver.Grant, error) {
	_, _ = send(ctx)
	return driver.Grant{}, driver.ErrAmbiguous
}

// hang never sends, and returns when the call's time is up.
func hang(ctx context.Context, _ seen, _ next) (driver.Grant, error) {
	<-ctx.Done()
	return driver.Grant{}, ctx.Err()
}

// unavailable fails without sending.
func unavailable(context.Context, seen, next) (driver.Grant, error) {
	return driver.Grant{}, driver.ErrUnavailable
}

// late sends, and holds the answer back, whatever the call's deadline.
func late(d time.Duration) handler {
	return func(ctx context.Context, _ seen, send next) (driver.Grant, error) {
		g, err := send(ctx)
		<-time.After(d)
		return g, err
	}
}

// first applies h to the first n calls.
func first(n int, h handler) handler {
	return func(ctx context.Context, s seen, send next) (driver.Grant, error) {
		if s.n <= n {
			return h(ctx, s, send)
		}
		return send(ctx)
	}
}

// echo is a backend that says yes at once: what is measured over it is the core.
type echo struct{}

func (echo) Info() driver.Info {
	return driver.Info{Name: "echo", MaxBatch: 1000, PackageTime: true}
}
func (echo) TryAcquire(_ context.Context, r driver.Request) (driver.Grant, error) {
	return driver.Grant{Request: r, Token: 1, Left: r.TTL}, nil
}
func (echo) Renew(_ context.Context, g driver.Grant) (driver.Grant, error) {
	g.Sent, g.Left = driver.Instant{}, g.TTL
	return g, nil
}
func (echo) RenewBatch(ctx context.Context, gs []driver.Grant, each func(int, driver.Grant, error)) error {
	for i, g := range gs {
		g, err := echo{}.Renew(ctx, g)
		each(i, g, err)
	}
	return nil
}
func (echo) Release(context.Context, driver.Grant) error { return nil }
func (echo) Close() error                                { return nil }
