package conformance

import (
	"context"
	"sync"
	"time"
)

// controlShare: a control request that takes more than T/controlShare says that nothing
// can be said about times. controlPause is the share of T between two of them.
const (
	controlShare = 10
	controlPause = 40
)

// control watches how fast the machine and the server are, all through a run.
type control struct {
	limit time.Duration
	stop  context.CancelFunc
	done  sync.WaitGroup

	mu   sync.Mutex
	held int    // somebody has stopped the server on purpose
	hung int    // how often that was said, or taken back
	slow []span // closed ones
	from time.Time
	out  bool // a request, or a pause, is under way since from
}

// span is a time in which something was slow.
type span struct{ from, to time.Time }

// newControl starts watching.
func newControl(ctx context.Context, ask func(context.Context) error, ttl time.Duration) *control {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &control{limit: ttl / controlShare, stop: cancel}
	c.done.Go(func() {
		for ctx.Err() == nil {
			c.timed(0, func() {
				if ask != nil {
					call, cancel := context.WithTimeout(ctx, ttl)
					defer cancel()
					_ = ask(call) // its time counts, and an error usually took long
				}
			})
			pause := ttl / controlPause
			c.timed(pause, func() { // how late the machine lets us run
				select {
				case <-time.After(pause):
				case <-ctx.Done():
				}
			})
		}
	})
	return c
}

// timed runs f and notes if it took longer than it should by more than the limit.
func (c *control) timed(should time.Duration, f func()) {
	from := time.Now()
	c.mu.Lock()
	c.from, c.out = from.Add(should), true
	hung := c.hung
	c.mu.Unlock()
	f()
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = false
	// What was under way while the server was stopped says nothing, also when it is answered
	// behind that.
	if c.held == 0 && c.hung == hung && now.Sub(from)-should > c.limit {
		c.slow = append(c.slow, span{from, now})
	}
}

// wasSlow reports whether anything was slow at some time since from. A nil control, of
// virtual time, never is.
func (c *control) wasSlow(from time.Time) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out && c.held == 0 && time.Since(c.from) > c.limit {
		return true
	}
	for _, s := range c.slow {
		if s.to.After(from) {
			return true
		}
	}
	return false
}

// hold says that the server is about to be stopped on purpose, and resume that it goes
// on.
func (c *control) hold() { c.hang(1) }

func (c *control) resume() { c.hang(-1) }

func (c *control) hang(n int) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held += n
	c.hung++
	c.from = time.Now()
}

func (c *control) close() {
	if c != nil {
		c.stop()
		c.done.Wait()
	}
}
