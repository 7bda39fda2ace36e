package locker

import (
	"context"
	"log/slog"
	"time"

	"github.com/fencelock/locker/driver"
)

// EventKind says what happened.
type EventKind int

// The kinds of events.
const (
	// EventGranted: a lease begins. Took is the time since Acquire was called.
	EventGranted EventKind = iota + 1
	// EventRefused: the backend refused, and a waiting Acquire goes on. Once for each call
	// that was refused; none for one that this process answered by itself.
	EventRefused
	// EventRenewed: a renewal was answered in time. Took is the time it took.
	EventRenewed
	// EventRenewFailed: a renewal failed. An automatic one is tried again, at most eight
	// times in a row, until the lease ends.
	EventRenewFailed
	// EventEnded: the lease is over; Err is what Lease.Err says.
	EventEnded
	// EventReleased: the backend confirmed that the lease no longer holds the key.
	EventReleased
	// EventReleaseFailed: the release was not confirmed within ReleaseTimeout; the key is
	// free at the latest when its ttl has passed.
	EventReleaseFailed
	// EventUndone: an attempt that gave no lease (its answer was lost, or late, or its
	// caller had gone) was undone at the backend.
	EventUndone
	// EventUndoFailed: such an attempt could not be undone; it lapses with its ttl.
	EventUndoFailed
)

var eventNames = [...]string{
	EventGranted: "granted", EventRefused: "refused", EventRenewed: "renewed", EventRenewFailed: "renew failed",
	EventEnded: "ended", EventReleased: "released", EventReleaseFailed: "release failed",
	EventUndone: "undone", EventUndoFailed: "undo failed",
}

// String returns the kind in words.
func (k EventKind) String() string {
	if k <= 0 || int(k) >= len(eventNames) {
		return "unknown"
	}
	return eventNames[k]
}

// Event is something that happened to a lease, or to an attempt to get one.
type Event struct {
	Kind    EventKind
	Key     string // the full key
	Owner   string // this side's owner
	Token   Token  // zero where there is none
	Attempt driver.Attempt
	Err     error         // why, where something went wrong
	Took    time.Duration // how long it took, where that means something
}

// stream delivers the events of one lease in order. Its fields are guarded by core.mu.
type stream struct {
	pending []Event
	busy    bool // a goroutine is delivering
}

// heard reports whether anybody listens.
func (c *core) heard() bool { return c.opts.OnEvent != nil || c.opts.Logger != nil }

// emit records an event; unlock delivers it. A nil stream is one of its own. c.mu is
// held.
func (c *core) emit(s *stream, e Event) {
	if !c.heard() {
		return
	}
	if s == nil {
		s = &stream{}
	}
	s.pending = append(s.pending, e)
	if !s.busy {
		s.busy = true
		c.callbacks = append(c.callbacks, func() { c.deliver(s) })
	}
}

func (c *core) deliver(s *stream) {
	done := false
	defer func() {
		if !done { // OnEvent panics, and the rest is told by somebody else
			c.mu.Lock()
			again := len(s.pending) > 0
			s.busy = again
			c.mu.Unlock()
			if again {
				go c.deliver(s)
			}
		}
	}()
	for {
		c.mu.Lock()
		if len(s.pending) == 0 {
			s.busy, done = false, true
			c.mu.Unlock()
			return
		}
		e := s.pending[0]
		s.pending = s.pending[1:]
		c.mu.Unlock()
		c.log(e)
		if c.opts.OnEvent != nil {
			c.opts.OnEvent(e)
		}
	}
}

func (c *core) log(e Event) {
	l := c.opts.Logger
	if l == nil {
		return
	}
	level := slog.LevelDebug
	switch e.Kind {
	case EventRenewFailed, EventReleaseFailed, EventUndoFailed:
		level = slog.LevelWarn
	case EventEnded:
		if isLoss(e.Err) {
			level = slog.LevelWarn
		}
	}
	if !l.Enabled(context.Background(), level) {
		return
	}
	attrs := []slog.Attr{slog.String("key", e.Key), slog.String("backend", c.info.Name)}
	if e.Token != 0 {
		attrs = append(attrs, slog.Uint64("token", uint64(e.Token)))
	}
	if e.Took != 0 {
		attrs = append(attrs, slog.Duration("took", e.Took))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.Any("err", e.Err))
	}
	l.LogAttrs(context.Background(), level, "lock "+e.Kind.String(), attrs...)
}

// lock and unlock guard everything in the core. What must happen outside the lock (context
// cancellations, user callbacks) is put off to unlock.
func (c *core) lock() { c.mu.Lock() }

// Contexts come first: a listener that is slow must keep nobody's work going.
func (c *core) unlock() {
	cancels, callbacks := c.cancels, c.callbacks
	c.cancels, c.callbacks = nil, nil
	c.mu.Unlock()
	for _, f := range cancels {
		f()
	}
	each(callbacks)
}

// each calls every function, also those behind one that panics.
func each(fs []func()) {
	if len(fs) > 0 {
		defer each(fs[1:])
		fs[0]()
	}
}
