package conformance

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/locker/conformance/history"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/faultlock"
	"github.com/fencelock/locker/fence"
)

// C is what a case works with. Its failing methods end the case; they may be called from
// the goroutines that Go started, too.
type C struct {
	// Ctx ends when the case does, and when it has failed.
	Ctx context.Context
	// T is the ttl, and Slack what may come on top of a deadline (σ).
	T, Slack time.Duration
	// Info is the backend's.
	Info driver.Info
	// History is checked when the case is over, with these options.
	History *history.Recorder
	Check   history.Options

	h      *Harness
	watch  *control
	k      Case
	size   Size
	cancel context.CancelFunc
	prefix string
	wg     sync.WaitGroup

	mu      sync.Mutex
	failure *failure
	clients []*Client
	closers []func()
	beliefs []*belief
}

// failure is the first thing that went wrong.
type failure struct {
	cause  Cause
	detail string
	soft   bool // only evidence if nothing was slow
}

// stopCase is the panic that ends a case.
type stopCase struct{}

func newC(ctx context.Context, h *Harness, watch *control, info driver.Info, k Case, full bool) *C {
	var id [4]byte
	_, _ = rand.Read(id[:])
	c := &C{T: h.TTL, Slack: h.Slack, Info: info, h: h, watch: watch, k: k, size: k.size(full), History: history.NewRecorder()}
	c.prefix = hex.EncodeToString(id[:]) + "/" + strings.ReplaceAll(k.ID, "/", ".") + "/"
	c.Ctx, c.cancel = context.WithCancel(ctx)
	return c
}

// run runs the case to its end and cleans up behind it. Nil: it passed.
func (c *C) run() *failure {
	pprof.SetGoroutineLabels(c.labelled())
	c.guard(func() { c.k.Run(c) })
	c.mu.Lock()
	failed := c.failure != nil
	c.mu.Unlock()
	if failed {
		c.cancel() // nobody waits for anything any more
	}
	c.wg.Wait()
	c.guard(c.finish)
	c.cancel()
	c.cleanUp()
	c.guard(func() {
		if err := history.Check(c.History.Ops(), c.Check); err != nil {
			c.fail(ByHistory, false, "%v", err)
		}
	})
	return c.failure
}

// guard runs f, and turns its panic into a failure.
func (c *C) guard(f func()) {
	defer func() {
		switch p := recover().(type) {
		case nil, stopCase:
		default:
			c.note(&failure{cause: ByPanic, detail: fmt.Sprintf("panic: %v\n%s", p, debug.Stack())})
		}
	}()
	f()
}

// finish is what must hold at the end of each case.
func (c *C) finish() {
	c.mu.Lock()
	failed, clients := c.failure != nil, c.clients
	c.mu.Unlock()
	if failed {
		return
	}
	for _, cl := range clients {
		cl.mustHaveFired()
	}
}

// cleanUp closes everything, whatever happened.
func (c *C) cleanUp() {
	for i := len(c.closers) - 1; i >= 0; i-- {
		c.guard(c.closers[i])
	}
	for _, b := range c.beliefs {
		b.record()
	}
}

// note keeps the first failure and ends the waits of the others. A hard failure replaces
// a soft one: it is evidence whatever the machine did. A rule that was broken softly stays
// the cause: the hard failure says that no slow machine did it.
func (c *C) note(f *failure) {
	c.mu.Lock()
	switch first := c.failure; {
	case first == nil:
		c.failure = f
	case first.soft && !f.soft && first.cause == ByRule:
		c.failure = &failure{cause: ByRule, detail: first.detail + "\n" + f.detail}
	case first.soft && !f.soft:
		c.failure = f
	}
	c.mu.Unlock()
	c.cancel()
}

func (c *C) fail(cause Cause, soft bool, format string, args ...any) {
	c.note(&failure{cause: cause, soft: soft, detail: fmt.Sprintf(format, args...)})
	panic(stopCase{})
}

// Failf says that the rule was broken, and ends the case. It is for what must never
// happen.
func (c *C) Failf(format string, args ...any) { c.fail(ByRule, false, format, args...) }

// Latef says that the rule was broken if neither machine nor server were slow, and ends
// the case. It is for bounds of time, and for all that rests on a request being answered
// in time.
func (c *C) Latef(format string, args ...any) { c.fail(ByRule, true, format, args...) }

// Setupf says that the case could not come to its rule, for no slow server: it ends it.
func (c *C) Setupf(format string, args ...any) { c.fail(BySetup, true, format, args...) }

// Must is Failf unless ok.
func (c *C) Must(ok bool, format string, args ...any) {
	if !ok {
		c.Failf(format, args...)
	}
}

// InTime is Latef unless ok.
func (c *C) InTime(ok bool, format string, args ...any) {
	if !ok {
		c.Latef(format, args...)
	}
}

// Says makes sure that a call failed with want. Success and any other definite answer
// are wrong whatever the machine did. An answer that says nothing is wrong only if neither
// machine nor server were slow: no case calls this under a fault.
func (c *C) Says(err, want error, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	c.Must(err != nil, "%s: got nil, want %v", what, want)
	c.Must(errors.Is(err, want) || soft(err), "%s: got %v, want %v", what, err, want)
	c.InTime(errors.Is(err, want), "%s: got %v, want %v", what, err, want)
}

// Closed makes sure that a wait ended with its Locker. It may have been granted the key
// before, if the holder's time was over: then the machine was slow.
func (c *C) Closed(err error) {
	c.Must(err == nil || errors.Is(err, driver.ErrClosed) || soft(err), "a wait under Close: got %v, want %v", err, driver.ErrClosed)
	c.InTime(errors.Is(err, driver.ErrClosed), "a wait under Close: got %v, want %v", err, driver.ErrClosed)
}

// N is the case's size: how many.
func (c *C) N() int { return c.size.N }

// For is the case's size: how long.
func (c *C) For() time.Duration { return c.Times(c.size.TTLs) }

// Times is that many ttls.
func (c *C) Times(n float64) time.Duration { return time.Duration(n * float64(c.T)) }

// Key returns a key that no other case uses.
func (c *C) Key(name string) string { return c.prefix + name }

// Go runs f beside the case. The case does not end before it.
func (c *C) Go(f func()) { c.wg.Go(func() { c.guard(f) }) }

// Each runs f n times at once and returns when all have ended.
func (c *C) Each(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { c.guard(func() { f(i) }) })
	}
	wg.Wait()
	c.alive()
}

// alive ends the case if it has failed elsewhere.
func (c *C) alive() {
	if c.Ctx.Err() != nil {
		c.fail(BySetup, true, "the case did not end in time")
	}
}

// Sleep lets time pass.
func (c *C) Sleep(d time.Duration) {
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-c.Ctx.Done():
		}
	}
	c.alive()
}

// SleepUntil lets time pass until the recorder's clock shows at.
func (c *C) SleepUntil(at time.Duration) { c.Sleep(at - c.History.Now()) }

// Eventually waits until ok, at most d, and reports whether it was.
func (c *C) Eventually(d time.Duration, ok func() bool) bool {
	for end := c.History.Now() + d; ; {
		if ok() {
			return true
		}
		if c.History.Now() > end {
			return false
		}
		c.Sleep(max(c.T/200, time.Millisecond))
	}
}

// Fence makes a resource with a fence, and records what passes it.
func (c *C) Fence(name string) Fence {
	name = c.Key(name)
	if c.h.Fence == nil {
		return &recordedFence{c: c, name: name, inner: &fence.Register[string]{Name: name}}
	}
	f, err := c.h.Fence(c.Ctx, name)
	if err != nil {
		c.Setupf("make a fence: %v", err)
	}
	return &recordedFence{c: c, name: name, inner: f}
}

type recordedFence struct {
	c     *C
	name  string
	inner Fence
}

func (f *recordedFence) record(kind history.Kind, t driver.Token, call time.Duration, err error) {
	op := history.Op{Kind: kind, Outcome: history.OK, Key: f.name, Client: "a holder", Token: t, Call: call, Return: f.c.History.Now()}
	switch {
	case isErr(err, driver.ErrStale):
		op.Outcome = history.Refused
	case err != nil:
		op.Outcome = history.Unknown
	}
	f.c.History.Add(op)
}

func (f *recordedFence) Raise(ctx context.Context, t driver.Token) error {
	call := f.c.History.Now()
	err := f.inner.Raise(ctx, t)
	f.record(history.Raise, t, call, err)
	return err
}

func (f *recordedFence) Read(ctx context.Context, t driver.Token) (string, error) {
	return f.inner.Read(ctx, t)
}

func (f *recordedFence) Write(ctx context.Context, t driver.Token, v string) error {
	call := f.c.History.Now()
	err := f.inner.Write(ctx, t, v)
	f.record(history.Write, t, call, err)
	return err
}

// Client makes an independent client of the backend. Its requests are counted and
// recorded, and can be made to fail.
func (c *C) Client(name string) *Client {
	d, err := c.h.Driver(c.Ctx)
	if err != nil {
		c.Setupf("make client %s: %v", name, err)
	}
	return c.adopt(name, d)
}

// Networked makes a client whose network can be harmed.
func (c *C) Networked(name string) (*Client, Network) {
	d, n, err := c.h.Faults.Client(c.Ctx)
	if err != nil {
		c.Setupf("make client %s: %v", name, err)
	}
	return c.adopt(name, d), n
}

func (c *C) adopt(name string, d driver.Driver) *Client {
	cl := &Client{c: c, name: name, info: d.Info(), first: map[driver.Attempt]time.Duration{}, counts: map[faultlock.Op]int{}, undone: map[driver.Attempt]bool{}}
	cl.f = faultlock.New(d, 1, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clients = append(c.clients, cl)
	c.closers = append(c.closers, func() { _ = cl.f.Close() })
	return cl
}

// onClose adds something to clean up; the last is done first.
func (c *C) onClose(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closers = append(c.closers, f)
}
