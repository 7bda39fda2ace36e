package locker

import (
	"sync/atomic"
	"time"

	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/internal/boot"
	"github.com/fencelock/locker/internal/seam"
)

// clock is the core's only source of time. A deadline counts on package time and on the
// boot clock, whichever is further, so that neither a pause nor a suspend is missed; a
// backend that lives in this process counts on package time alone (Info.PackageTime).
type clock struct {
	packageOnly bool
	skew        atomic.Int64 // how far a test has moved the boot clock ahead
}

func (c *clock) now() driver.Instant {
	if c.packageOnly {
		return driver.PackageNow()
	}
	i := driver.Now()
	if d := c.skew.Load(); d != 0 {
		i = i.SkewBoot(time.Duration(d))
	}
	return i
}

func (c *clock) name() string {
	if c.packageOnly {
		return "package time"
	}
	return "package time and " + boot.Name
}

func init() {
	seam.SkewBoot = func(l any, d time.Duration) { l.(*Locker).c.clock.skew.Add(int64(d)) }
}

// The rules' constants. See docs/design.md for each.
const (
	// rateError is ρ: clocks may differ in rate by one part in this many.
	rateError = 100
	// graceShare and maxGrace: the belief ends Left/10, at most a second, before the
	// deadline, so that work in flight can stop while the key still shields it.
	graceShare = 10
	maxGrace   = time.Second

	minCall, maxCall = 50 * time.Millisecond, 5 * time.Second
	callShare        = 4 // a call may take ttl/4
)

// span is how long a grant lasts: Left, counted from Sent.
type span struct {
	sent driver.Instant
	left time.Duration
}

// deadline is when the key stops belonging to the grant, counted from sent.
func (s span) deadline() time.Duration { return s.left - s.left/rateError }

// end is when the belief ends, counted from sent.
func (s span) end() time.Duration { return s.deadline() - min(s.left/graceShare, maxGrace) }

func (s span) untilDeadline(now driver.Instant) time.Duration {
	return s.deadline() - now.Sub(s.sent)
}

func (s span) untilEnd(now driver.Instant) time.Duration { return s.end() - now.Sub(s.sent) }

// callTimeout is how long one backend call may take.
func callTimeout(ttl time.Duration) time.Duration {
	return min(max(ttl/callShare, minCall), maxCall)
}
