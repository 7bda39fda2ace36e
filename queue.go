package locker

import (
	"container/list"
	"context"
	"fmt"
	"time"

	"github.com/fencelock/locker/driver"
)

// keyState is one key as this Locker uses it (R7): the lease that has it, the one call
// that may talk to the backend about it, and the calls behind that one, first come first
// served. It exists while any of them does. core.mu guards it.
type keyState struct {
	key   string
	lease *Lease     // has the key until it is released or its deadline has passed
	front *call      // the call that talks to the backend
	queue *list.List // of *call: who comes next; nil: nobody
	// waiters counts the calls, front included, that know the key to be held and wait.
	waiters int
	// held is the backend's last refusal, told to those who ask without a request.
	held   *HeldError
	heldAt driver.Instant
	mark   mark
}

// call is one Acquire or TryAcquire in the local queue.
type call struct {
	try     bool
	waits   bool // knows that the key is held
	enqueue bool // at its turn this Locker held the key: enqueue without trying first
	turn    chan struct{}
	answer  *HeldError // set before turn closes: a try answered without a request
	place   *list.Element
}

// state returns the key's state, made if need be. c.mu is held.
func (c *core) state(key string) *keyState {
	ks := c.keys[key]
	if ks == nil {
		ks = &keyState{key: key, mark: c.marks.take(key)}
		c.keys[key] = ks
	}
	return ks
}

// join enters the local queue. It returns true if it is the call's turn at once.
// Otherwise turn closes when it is, or when answer is set. c.mu is held.
func (c *core) join(ks *keyState, q *call) bool {
	if ks.front == nil && c.open(ks) {
		ks.front, q.enqueue = q, ks.lease != nil
		return true
	}
	q.turn = make(chan struct{})
	if ks.lease != nil || ks.waiters > 0 {
		c.waits(ks, q)
	}
	if ks.queue == nil {
		ks.queue = list.New()
	}
	q.place = ks.queue.PushBack(q)
	return false
}

// open reports whether a call may go to the backend now: with a queue there, also while
// this Locker still holds the key.
func (c *core) open(ks *keyState) bool { return ks.lease == nil || c.queueing() }

// waits notes that a call knows the key to be held.
func (c *core) waits(ks *keyState, q *call) {
	if !q.waits {
		q.waits = true
		ks.waiters++
	}
}

// leave takes a call out of the queue, wherever it stands, and lets the next one in.
// c.mu is held.
func (c *core) leave(ks *keyState, q *call) {
	switch {
	case ks.front == q:
		ks.front = nil
	case q.place != nil:
		ks.queue.Remove(q.place)
		q.place = nil
	default:
		return // has left already
	}
	if q.waits {
		q.waits = false
		ks.waiters--
	}
	c.advance(ks)
}

// advance gives the turn to the next call, if it is anybody's, and forgets a key that
// nobody uses. c.mu is held.
func (c *core) advance(ks *keyState) {
	if ks.front == nil && c.open(ks) && ks.queue != nil && ks.queue.Len() > 0 {
		q := ks.queue.Remove(ks.queue.Front()).(*call)
		q.place = nil
		ks.front, q.enqueue = q, ks.lease != nil
		close(q.turn)
	}
	if ks.front == nil && ks.lease == nil && (ks.queue == nil || ks.queue.Len() == 0) {
		delete(c.keys, ks.key)
		c.marks.put(ks.key, ks.mark)
	}
}

// known is called when the front call's answer shows that the key is held, by this
// Locker or by another: every try behind it has its answer, every acquire is waiting.
// c.mu is held.
func (c *core) known(ks *keyState, now driver.Instant) {
	if ks.queue == nil {
		return
	}
	for e := ks.queue.Front(); e != nil; {
		q := e.Value.(*call)
		e = e.Next()
		if !q.try {
			c.waits(ks, q)
			continue
		}
		ks.queue.Remove(q.place)
		q.place = nil
		q.answer = ks.holder(now)
		close(q.turn)
	}
}

// holder describes who has the key, as far as this Locker knows, or nil if it does not
// know of anybody.
func (ks *keyState) holder(now driver.Instant) *HeldError {
	switch l := ks.lease; {
	case l != nil:
		g := &l.grant
		return &HeldError{Owner: g.Owner, Note: g.Note, Token: g.Token, Attempt: g.Attempt,
			ExpiresIn: max(l.span.untilDeadline(now), 0)}
	case ks.held != nil:
		h := *ks.held
		h.ExpiresIn = max(h.ExpiresIn-now.Sub(ks.heldAt), 0)
		return &h
	case ks.waiters > 0:
		return &HeldError{}
	}
	return nil
}

// taken makes the lease the key's holder here. A lease that still believes to have the key
// has been overtaken: it was broken with Now. c.mu is held.
func (c *core) taken(ks *keyState, l *Lease, now driver.Instant) {
	old := ks.lease
	ks.lease = l
	if old != nil && old.cause == nil {
		old.lost(fmt.Errorf("%w: this process was granted token %v since", ErrLost, l.grant.Token))
	}
	c.known(ks, now)
}

// vacate ends the lease's hold on the key: it was released, taken away, or its deadline
// has passed. c.mu is held.
func (c *core) vacate(l *Lease) {
	if l.ks.lease == l {
		l.ks.lease = nil
		c.advance(l.ks)
	}
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
