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
	// window is how long replies are compared with each other before the comparison begins
	// anew: clocks drift.
	window = time.Minute
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
	// lo and hi bound the store's time at origin, by all replies since began.
	lo, hi time.Time
	began  driver.Instant
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
	if c.began.IsZero() || a.arrived.Sub(c.began) > window {
		c.lo, c.hi, c.began = lo, hi, a.arrived
		return true
	}
	if lo.After(c.lo) {
		c.lo = lo
	}
	if hi.Before(c.hi) {
		c.hi = hi
	}
	return !c.lo.After(c.hi)
}

// fresh compares the Last-Modified of an object that this process wrote itself, at some
// time from wrote to a's arrival, with the Date of a reply that shows it.
func (c *clock) fresh(wrote driver.Instant, modified time.Time, a *answer) {
	if why := unfit(modified, a.date, a.arrived.Sub(wrote)); why != "" {
		c.distrust(why)
	}
}

// unfit says why the two times of a fresh object, at most age old, do not belong to one
// clock. An object that looks too young only costs time.
func unfit(modified, date time.Time, age time.Duration) string {
	switch old := date.Sub(modified.Truncate(second)); {
	case date.IsZero():
		return "replies have no Date"
	case modified.IsZero():
		return "replies have no Last-Modified"
	case old < -margin:
		return "a fresh object's Last-Modified is " + (-old).String() + " later than the Date of its reply"
	case old > age+skew:
		return "a fresh object's Last-Modified is " + old.String() + " before the Date of its reply"
	default:
		return ""
	}
}
