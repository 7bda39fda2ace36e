package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/conformance/history"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/faultlock"
)

// Peer is one process as the suite plays it: a Locker over a client of its own.
type Peer struct {
	*Client
	L *locker.Locker
}

// Peer makes a Locker with a client of its own.
func (c *C) Peer(name string) *Peer { return c.Client(name).Peer(nil) }

// Peers makes n of them: A, B, C, …
func (c *C) Peers(n int) []*Peer {
	ps := make([]*Peer, n)
	for i := range ps {
		name := string(rune('A' + i%26))
		if i >= 26 {
			name += string(rune('A' + i/26%26))
		}
		ps[i] = c.Peer(name)
	}
	return ps
}

// Peer makes a Locker over the client.
func (cl *Client) Peer(change func(*locker.Options)) *Peer {
	o := &locker.Options{TTL: cl.c.T, Owner: cl.name, ReleaseTimeout: max(cl.c.T, time.Second)}
	if change != nil {
		change(o)
	}
	l, err := locker.New(cl.forCore(), o)
	if err != nil {
		cl.c.fail(BySetup, false, "make a Locker: %v", err)
	}
	cl.c.onClose(func() { _ = l.Close() })
	return &Peer{Client: cl, L: l}
}

// Lease is a lease whose belief is recorded.
type Lease struct {
	*locker.Lease
	*belief
	p *Peer
	// Begun is when it was asked for, Got when Acquire returned, on the recorder's clock.
	Begun, Got time.Duration
}

// belief is the time in which a holder was sure to hold.
type belief struct {
	c        *C
	mu       sync.Mutex
	op       history.Op
	recorded bool
}

func (c *C) believes(key, name string, t driver.Token, from time.Duration) *belief {
	b := &belief{c: c, op: history.Op{Kind: history.Belief, Outcome: history.OK, Key: key, Client: name, Token: t, Call: from, Return: from}}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.beliefs = append(c.beliefs, b)
	return b
}

// saw notes that the holder was sure at that time.
func (b *belief) saw(at time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.op.Return = max(b.op.Return, at)
}

func (b *belief) record() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.recorded {
		b.recorded = true
		b.c.History.Add(b.op)
	}
}

// lastSure is when the holder was sure for the last time.
func (b *belief) lastSure() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.op.Return
}

func (p *Peer) lease(key string, begun time.Duration, l *locker.Lease) *Lease {
	got := p.c.History.Now()
	return &Lease{Lease: l, p: p, Begun: begun, Got: got, belief: p.c.believes(key, p.name, l.Token(), got)}
}

// TryErr is TryAcquire.
func (p *Peer) TryErr(key string, opts ...locker.AcquireOption) (*Lease, error) {
	begun := p.c.History.Now()
	l, err := p.L.TryAcquire(p.c.Ctx, key, opts...)
	if err != nil {
		return nil, err
	}
	return p.lease(key, begun, l), nil
}

// AcquireErr is Acquire.
func (p *Peer) AcquireErr(ctx context.Context, key string, opts ...locker.AcquireOption) (*Lease, error) {
	begun := p.c.History.Now()
	l, err := p.L.Acquire(ctx, key, opts...)
	if err != nil {
		return nil, err
	}
	return p.lease(key, begun, l), nil
}

// Try makes one attempt that must give a lease.
func (p *Peer) Try(key string, opts ...locker.AcquireOption) *Lease {
	l, err := p.TryErr(key, opts...)
	if err != nil {
		p.c.fail(ByRule, soft(err), "%s asked for %q, which is free: got %v, want a lease", p.name, key, err)
	}
	return l
}

// Acquire waits for a lease that must come, before the case ends.
func (p *Peer) Acquire(key string, opts ...locker.AcquireOption) *Lease {
	l, err := p.AcquireErr(p.c.Ctx, key, opts...)
	if err != nil {
		p.c.fail(ByRule, soft(err), "%s waited for %q: got %v, want a lease", p.name, key, err)
	}
	return l
}

// soft reports whether an error can come of a slow server.
func soft(err error) bool {
	return driver.IsAmbiguous(err) || errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrLost) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// Refused makes sure that a try is refused while a lease is held. It is asked for only if
// the lease is still valid behind the answer.
func (p *Peer) Refused(key string, because *Lease) driver.HeldError {
	l, err := p.TryErr(key)
	var held *driver.HeldError
	switch {
	case errors.As(err, &held):
		return *held
	case err != nil:
		p.c.Latef("%s asked for %q, which is held: got %v, want a *HeldError", p.name, key, err)
	case because.Sure():
		p.c.Failf("%s was granted %q (token %v) while %s held it with token %v", p.name, key, l.Token(), because.p.name, because.Token())
	}
	p.c.Latef("%s was granted %q when %s's lease was over: too slow to tell", p.name, key, because.p.name)
	return driver.HeldError{}
}

// Sure is Valid, recorded.
func (l *Lease) Sure() bool {
	at := l.p.c.History.Now()
	if !l.Valid() {
		return false
	}
	l.saw(at)
	return true
}

// StillHeld makes sure that the lease is held; it need not be if the server was slow.
func (l *Lease) StillHeld(when string) {
	if !l.Sure() {
		l.p.c.Latef("%s's lease (token %v) is over %s: got %v, want nil", l.p.name, l.Token(), when, l.Err())
	}
}

// HoldFor asks Valid every millisecond or so, for d or as long as the answer is true.
func (l *Lease) HoldFor(d time.Duration) (stillSure bool) {
	pause := max(l.p.c.T/2000, time.Millisecond)
	for end := l.p.c.History.Now() + d; l.p.c.History.Now() < end; l.p.c.Sleep(pause) {
		if !l.Sure() {
			return false
		}
	}
	return l.Sure()
}

// UntilOver asks Valid every millisecond or so until it is false, at most for d, and
// returns when it was true for the last time.
func (l *Lease) UntilOver(d time.Duration) time.Duration {
	if l.HoldFor(d) {
		l.p.c.Failf("%s's lease (token %v) is still valid after %v: want it over", l.p.name, l.Token(), d)
	}
	return l.lastSure()
}

// Give releases.
func (l *Lease) Give() error {
	l.Sure()
	l.record()
	return l.Release(l.p.c.Ctx)
}

// GiveBack releases, and nothing may go wrong.
func (l *Lease) GiveBack() {
	if err := l.Give(); err != nil {
		l.p.c.fail(ByRule, soft(err), "%s releases token %v: got %v, want nil", l.p.name, l.Token(), err)
	}
}

// LostBy makes sure that Done closes by the given time, and that Err then is ErrLost.
func (l *Lease) LostBy(at time.Duration, what string) {
	c := l.p.c
	t := time.NewTimer(max(at-c.History.Now(), 0) + c.Soon())
	defer t.Stop()
	select {
	case <-l.Done():
	case <-t.C:
		c.Latef("%s: Done of %s's lease was not closed by then", what, l.p.name)
	case <-c.Ctx.Done():
		c.alive()
	}
	if err := l.Err(); !errors.Is(err, driver.ErrLost) {
		c.Failf("%s: %s's lease says %v, want %v", what, l.p.name, err, driver.ErrLost)
	}
}

// Early reports whether the lease cannot be over by the clock yet, even if it was never
// renewed: a loss that it tells of is an answer's.
func (l *Lease) Early() bool { return l.p.c.History.Now() < l.Begun+beliefLasts(l.TTL()) }

// Unrenewed makes sure that nothing was renewed by itself. A grant that is answered so late
// that less than half of it is left is, also one that is renewed by hand.
func (l *Lease) Unrenewed() {
	n := l.p.Sent(faultlock.Renew)
	l.p.c.InTime(n == 0, "renewals of %s, who renews by hand: got %d, want none", l.p.name, n)
}

// User is a client of any lock library.
type User struct {
	c    *C
	name string
	lock Lock
}

// Holding is a lock that a User holds, its belief recorded.
type Holding struct {
	Held
	*belief
	u *User
}

// User makes a client of the library under test: ours, or the harness's.
func (c *C) User(name string) *User {
	if c.h.Locker == nil {
		return &User{c, name, coreLock{c.Peer(name)}}
	}
	l, err := c.h.Locker(c.Ctx)
	if err != nil {
		c.Setupf("make client %s: %v", name, err)
	}
	c.onClose(func() { _ = l.Close() })
	return &User{c, name, l}
}

// Users makes as many as the case's size says.
func (c *C) Users() []*User {
	users := make([]*User, c.N())
	for i := range users {
		users[i] = c.User(fmt.Sprintf("client %d", i))
	}
	return users
}

// busy makes sure that there was something to look at: so many grants, to two clients at
// least. served is how often each of them was granted the key.
func (c *C) busy(served []int, least int) {
	grants, holders := 0, 0
	for _, n := range served {
		grants += n
		holders += min(n, 1)
	}
	c.InTime(grants >= least && holders >= 2, "got %d grants to %d clients, want at least %d to 2: the case has tested nothing", grants, holders, least)
}

// coreLock is our own Locker as a Lock.
type coreLock struct{ p *Peer }

func (k coreLock) TryAcquire(ctx context.Context, key string, ttl time.Duration) (Held, error) {
	l, err := k.p.L.TryAcquire(ctx, key, locker.WithTTL(ttl))
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (k coreLock) Acquire(ctx context.Context, key string, ttl time.Duration) (Held, error) {
	l, err := k.p.L.Acquire(ctx, key, locker.WithTTL(ttl))
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (k coreLock) Close() error { return k.p.L.Close() }

func (u *User) holding(key string, h Held) *Holding {
	return &Holding{Held: h, u: u, belief: u.c.believes(key, u.name, h.Token(), u.c.History.Now())}
}

// TryErr makes one attempt.
func (u *User) TryErr(key string) (*Holding, error) {
	h, err := u.lock.TryAcquire(u.c.Ctx, key, u.c.T)
	if err != nil {
		return nil, err
	}
	return u.holding(key, h), nil
}

// Try makes one attempt that must succeed.
func (u *User) Try(key string) *Holding {
	h, err := u.TryErr(key)
	if err != nil {
		u.c.fail(ByRule, soft(err), "%s asked for %q, which is free: got %v, want it", u.name, key, err)
	}
	return h
}

// Acquire waits for a lock that must come.
func (u *User) Acquire(key string) *Holding {
	h, err := u.lock.Acquire(u.c.Ctx, key, u.c.T)
	if err != nil {
		u.c.fail(ByRule, soft(err), "%s waited for %q: got %v, want it", u.name, key, err)
	}
	return u.holding(key, h)
}

// Refused makes sure that a try is refused while it is held.
func (u *User) Refused(key string, because *Holding) {
	h, err := u.TryErr(key)
	switch {
	case errors.Is(err, driver.ErrHeld):
	case err != nil:
		u.c.Latef("%s asked for %q, which is held: got %v, want %v", u.name, key, err, driver.ErrHeld)
	case because.Sure():
		u.c.Failf("%s was granted %q (token %v) while %s held it with token %v", u.name, key, h.Token(), because.u.name, because.Token())
	default:
		u.c.Latef("%s was granted %q when %s's time was over: too slow to tell", u.name, key, because.u.name)
	}
}

// Sure is Valid, recorded.
func (h *Holding) Sure() bool {
	at := h.u.c.History.Now()
	if !h.Valid() {
		return false
	}
	h.saw(at)
	return true
}

// Rest holds on for d, and asks Valid meanwhile.
func (h *Holding) Rest(d time.Duration) {
	for end := h.u.c.History.Now() + d; h.u.c.History.Now() < end && h.Sure(); {
		h.u.c.Sleep(min(d, max(h.u.c.T/1000, time.Millisecond)))
	}
}

// GiveBack releases, and nothing may go wrong.
func (h *Holding) GiveBack() {
	h.Sure()
	h.record()
	if err := h.Release(h.u.c.Ctx); err != nil {
		h.u.c.fail(ByRule, soft(err), "%s releases token %v: got %v, want nil", h.u.name, h.Token(), err)
	}
}
