package s3lock

import (
	"sync"
	"time"

	"github.com/fencelock/locker/driver"
)

const (
	// margin is how much too old a record can look. The Date of a fresh object's reply may
	// show one second more than is true (skew), which is up to two, because both times are
	// cut to whole seconds; and once more by up to one when it is judged.
	margin = 3 * time.Second
	// skew is how far the clocks behind Date and Last-Modified may seem apart for the store
	// rule. A probe and every reply check it.
	skew = time.Second
	// second is what Date and Last-Modified are cut to.
	second = time.Second
	// drift is how far two clocks go apart: by one part in so many. It only must not be too
	// small where clocks are slewed; a reply that does not fit then costs time, no more.
	drift = 1000
)

// clock watches whether the store's clocks can be trusted: the Date of its replies, which
// may come from several front ends, against this process's own clock, which only needs to
// run evenly. What does not fit switches this client to the observed rule for good.
type clock struct {
	// tell is called once, when the clocks are found not to fit. It may be nil. Set it
	// before the first reply.
	tell func(why string)

	mu     sync.Mutex
	off    string // why the store rule is not used; "": it is
	origin driver.Instant
	// lo and hi bound the store's time at origin, by all replies up to last.
	lo, hi time.Time
	last   driver.Instant
}

func newClock(off string) *clock { return &clock{off: off, origin: driver.Now()} }

// trusted reports whether the store rule can be used.
func (c *clock) trusted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.off == ""
}

// why returns what speaks against the store rule.
func (c *clock) why() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.off
}

func (c *clock) distrust(why string) {
	c.mu.Lock()
	first := c.off == ""
	if first {
		c.off = why
	}
	c.mu.Unlock()
	if first && c.tell != nil {
		c.tell(why)
	}
}

// heard compares a reply with those before. The store's clock was read between the send of
// a request and the arrival of its reply, and shows the second it was in, or, on servers
// that write it once a second, the one before: Date stands for any time in two seconds.
func (c *clock) heard(a *answer) {
	switch {
	case a.header.Get("Age") != "", a.header.Get("Via") != "":
		c.distrust("a proxy or cache answers (Age or Via): Date need not be the store's")
		return
	case a.date.IsZero():
		return
	case a.modified.After(a.date.Add(margin)):
		c.distrust("an object's Last-Modified is later than the Date of its reply")
		return
	}
	if !c.narrow(a) {
		c.distrust("the Date of replies does not advance evenly: several front ends whose clocks differ, or one that was set")
	}
}

// narrow notes one reply and reports whether all of them fit one clock.
func (c *clock) narrow(a *answer) bool {
	lo := a.date.Add(-a.arrived.Sub(c.origin))
	hi := a.date.Add(2*second - a.began.Sub(c.origin))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last.IsZero() {
		c.lo, c.hi, c.last = lo, hi, a.arrived
		return true
	}
	if silent := a.arrived.Sub(c.last); silent > 0 {
		c.lo, c.hi, c.last = c.lo.Add(-silent/drift), c.hi.Add(silent/drift), a.arrived
	}
	if lo.After(c.lo) {
		c.lo = lo
	}
	if hi.Before(c.hi) {
		c.hi = hi
	}
	return !c.lo.After(c.hi)
}

// write is a write of this process's own: between its send and its answer the object got its
// Last-Modified.
type write struct{ sent, answered driver.Instant }

// fresh compares the Last-Modified of an object that this process wrote itself with the
// Date of a reply that shows it. What was too slow to tell anything is let pass.
func (c *clock) fresh(w write, modified time.Time, a *answer) {
	if why, sure := unfit(w, modified, a); why != "" && sure {
		c.distrust(why)
	}
}

// unfit says why the two times of a fresh object do not belong to one clock. It is not sure
// where the requests took so long that the object may be as old as it looks: it may as
// well be younger by more than the margin covers. An object that looks too young only costs
// time.
func unfit(w write, modified time.Time, a *answer) (why string, sure bool) {
	least, most := a.began.Sub(w.answered), a.arrived.Sub(w.sent)
	switch old := a.date.Sub(modified.Truncate(second)); {
	case a.date.IsZero():
		return "replies have no Date", true
	case modified.IsZero():
		return "replies have no Last-Modified", true
	case old < -margin:
		return "a fresh object's Last-Modified is " + (-old).String() + " later than the Date of its reply", true
	case old > least+skew:
		return "a fresh object's Last-Modified is " + old.String() + " before the Date of its reply, in requests that took " +
			(most - least).Round(time.Millisecond).String(), old > most+skew
	default:
		return "", true
	}
}
