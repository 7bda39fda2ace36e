package driver

import (
	"sync"
	"time"

	"github.com/fencelock/locker/internal/boot"
)

// Instant is a moment on this process's own clocks: package time (Go's monotonic
// clock) and, where it was read, the boot clock, which also counts the time that the
// machine was suspended. It means nothing to another process. The zero Instant is
// none.
type Instant struct {
	at      time.Time // with its monotonic reading
	boot    time.Duration
	hasBoot bool
}

// Now reads both clocks. An Instant that is used as Grant.Sent must come from here, or
// from PackageNow in a backend that declares Info.PackageTime.
func Now() Instant {
	i := PackageNow()
	i.boot, i.hasBoot = boot.Now()
	return i
}

// PackageNow reads package time alone, the clock that testing/synctest drives. It is
// for backends that declare Info.PackageTime.
func PackageNow() Instant { return Instant{at: time.Now()} }

// IsZero reports whether i is no moment.
func (i Instant) IsZero() bool { return i.at.IsZero() }

// Sub returns the time from j to i: the larger of the two clocks' differences, so
// that neither a suspend nor a clock that stands still makes it too short. Package
// time alone counts where one of the two lacks the boot clock.
func (i Instant) Sub(j Instant) time.Duration {
	d := i.at.Sub(j.at)
	if i.hasBoot && j.hasBoot {
		d = max(d, i.boot-j.boot)
	}
	return d
}

// Add returns the Instant d later, or earlier, on both clocks.
func (i Instant) Add(d time.Duration) Instant {
	i.at = i.at.Add(d)
	i.boot += d
	return i
}

// Time returns the package time, for timers in this process.
func (i Instant) Time() time.Time { return i.at }

// Ahead returns how far the boot clock is ahead of package time, counted from an
// arbitrary origin: it grows only by the time spent suspended. False: not known.
func (i Instant) Ahead() (time.Duration, bool) {
	return i.boot - i.at.Sub(origin), i.hasBoot
}

// SkewBoot returns the Instant with its boot clock moved by d, as a suspend of that
// length before it would have done. It is for tests of suspend.
func (i Instant) SkewBoot(d time.Duration) Instant {
	i.boot += d
	return i
}

// origin is any moment: only differences of Ahead mean something.
var origin = time.Now()

// ServerClock turns an expiry on a server's clock into Grant.Sent and Grant.Left. A
// ticket keeps one and feeds it with the answers to its own Enqueues and Polls. The
// zero ServerClock knows nothing yet. It is safe for concurrent use.
//
// The server read its clock after the request was sent, so expiry − reading, counted
// from the send, never promises more than the server keeps.
type ServerClock struct {
	mu      sync.Mutex
	sent    Instant
	reading time.Duration
	known   bool
}

// Answered records an answer: when its request was sent, and the server's clock as
// the answer gave it, rounded up, as a duration since the server's own origin.
func (c *ServerClock) Answered(sent Instant, reading time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent, c.reading, c.known = sent, reading, true
}

// Left returns the pair for a grant that ends at expiry on the server's clock. False:
// no answer was recorded yet; keep the push until there is one.
func (c *ServerClock) Left(expiry time.Duration) (sent Instant, left time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent, expiry - c.reading, c.known
}

// Forget drops what was recorded: the next answer comes from another server.
func (c *ServerClock) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = false
}
