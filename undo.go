package locker

import (
	"context"
	"errors"

	"github.com/fencelock/locker/driver"
)

// undoers bounds the undos in flight: they come in crowds, when a backend was away.
const undoers = 16

// undo is something at the backend that must not stay: the grant of a lease that was lost
// by its clock, or whatever an attempt without a lease may have there.
type undo struct {
	entry entry
	grant driver.Grant
	// lease is set while the undo waits for a lost lease's deadline: until then the key
	// still shields whoever has not noticed the loss (R3).
	lease  *Lease
	events *stream
	why    error
	first  driver.Instant // of its first send
	tries  int
	busy   bool // being sent, or about to be
}

// undo makes sure that a grant ends: not before the given instant, and again until the
// answer is definite or a ttl has passed since the first send (R5). c.mu is held.
func (c *core) undo(g driver.Grant, l *Lease, from driver.Instant, why error) *undo {
	if old := c.undos[g.Attempt]; old != nil {
		if g.State != nil {
			old.grant.State = g.State
		}
		return old
	}
	u := &undo{grant: g, lease: l, why: why}
	u.entry.undo = u
	u.entry.at = from.Time()
	if l != nil {
		u.events = l.events
	}
	c.undos[g.Attempt] = u
	if !c.closed {
		c.schedule(&u.entry, from.Time(), 0)
	}
	return u
}

// dropUndo gives up the undo that waits for the lease's deadline: its holder releases it.
// c.mu is held.
func (c *core) dropUndo(l *Lease) {
	if u := c.undos[l.grant.Attempt]; u != nil && u.lease == l {
		c.unschedule(&u.entry)
		delete(c.undos, l.grant.Attempt)
	}
}

// undoing reports whether an attempt is being undone.
func (c *core) undoing(a driver.Attempt) bool {
	c.lock()
	defer c.unlock()
	u := c.undos[a]
	return u != nil && u.lease == nil
}

// startUndo sends an undo in the background. c.mu is held.
func (c *core) startUndo(u *undo) {
	if l := u.lease; l != nil {
		u.lease = nil
		l.gone()
	}
	u.busy = true
	c.undoers.do(func() { c.sendUndo(c.background, u) })
}

func (c *core) sendUndo(ctx context.Context, u *undo) {
	c.lock()
	g := u.grant
	c.unlock()
	now := c.clock.now()
	if u.first.IsZero() {
		u.first = now
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout(g.TTL))
	err := plain(c.drv.Release(ctx, g))
	cancel()
	now = c.clock.now()
	c.lock()
	defer c.unlock()
	pause := doubled(firstRetry, u.tries, max(driver.PollInterval(g.TTL), firstRetry))
	u.tries++
	u.busy = false
	e := Event{Kind: EventUndone, Key: g.Key, Owner: g.Owner, Token: g.Token, Attempt: g.Attempt, Err: u.why}
	switch {
	case err == nil, errors.Is(err, ErrLost):
	case retryable(err) && now.Sub(u.first)+pause < g.TTL && !c.closed:
		c.schedule(&u.entry, now.Time().Add(jitter(pause)), 0)
		return
	default:
		e.Kind, e.Err = EventUndoFailed, err
	}
	delete(c.undos, g.Attempt)
	c.emit(u.events, e)
}

// leftovers returns the undos that Close sends a last time: all but those that wait for a
// lost lease's deadline, and those under way. c.mu is held.
func (c *core) leftovers() []*undo {
	var us []*undo
	for _, u := range c.undos {
		if u.lease == nil && !u.busy {
			u.busy = true
			c.unschedule(&u.entry)
			us = append(us, u)
		}
	}
	return us
}
