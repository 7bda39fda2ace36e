package epoch

import (
	"sync"
	"time"

	"github.com/fencelock/locker/driver"
)

// holds remembers attempts: those that hold a key, and those whose outcome is open.
type holds struct {
	mu     sync.Mutex
	byID   map[driver.Attempt]*hold
	timer  *time.Timer // runs while anything is remembered; nil: tests sweep by hand
	armed  bool
	closed bool
	firing sync.WaitGroup
}

// sweepEvery is how often attempts that nobody renews or releases any more are
// forgotten. It decides how long a descriptor outlives its lapsed grant, no more.
const sweepEvery = 5 * time.Second

func (hs *holds) init(sweep func()) {
	hs.byID = map[driver.Attempt]*hold{}
	hs.timer = time.AfterFunc(time.Hour, func() {
		defer hs.firing.Done()
		sweep()
	})
	hs.timer.Stop()
}

// arm starts the timer if it does not run. Call it with mu held.
func (hs *holds) arm() {
	if hs.armed || hs.closed || hs.timer == nil || len(hs.byID) == 0 {
		return
	}
	hs.armed = true
	hs.firing.Add(1)
	hs.timer.Reset(sweepEvery)
}

// close stops the timer, waits for a sweep in progress and returns what is left.
func (hs *holds) close() []*hold {
	hs.mu.Lock()
	hs.closed = true
	armed := hs.armed
	var left []*hold
	for _, h := range hs.byID {
		left = append(left, h)
	}
	hs.mu.Unlock()
	if armed && hs.timer.Stop() {
		hs.firing.Done()
	}
	hs.firing.Wait()
	return left
}

// attempt finds or begins the memory of an attempt. One whose release was sent is
// never used again.
func (d *Driver) attempt(r driver.Request) (*hold, error) {
	hs := &d.holds
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h := hs.byID[r.Attempt]
	if h == nil {
		h = &hold{owner: d, request: r}
		hs.byID[r.Attempt] = h
		hs.arm()
		return h, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.undone || h.request.Key != r.Key {
		return nil, driver.ErrLost
	}
	return h, nil
}

// holdOf returns the memory of a grant's attempt, or nil.
func (d *Driver) holdOf(g driver.Grant) *hold {
	h, ok := g.State.(*hold)
	if !ok {
		d.holds.mu.Lock()
		h = d.holds.byID[g.Attempt]
		d.holds.mu.Unlock()
	}
	if h == nil || h.owner != d || h.request.Attempt != g.Attempt || h.request.Key != g.Key {
		return nil
	}
	if n, shift := h.number(); g.Token != 0 && g.Token != d.token(n, shift) {
		return nil
	}
	return h
}

// undo notes, before anything is sent, that a grant's attempt is being released.
func (d *Driver) undo(g driver.Grant) (*hold, error) {
	h := d.holdOf(g)
	hs := &d.holds
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if h == nil {
		if hs.byID[g.Attempt] != nil { // another grant of the attempt, or another key
			return nil, driver.ErrLost
		}
		h = &hold{owner: d, request: g.Request, sent: d.now()}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone {
		return nil, driver.ErrLost
	}
	h.undone = true
	hs.byID[g.Attempt] = h
	hs.arm()
	return h, nil
}

// over forgets an attempt that was ended for certain, and lets go of what it held
// open: whoever releases has stopped to believe.
func (d *Driver) over(h *hold) {
	h.mu.Lock()
	h.gone = true
	v := h.version
	h.mu.Unlock()
	d.holds.mu.Lock()
	delete(d.holds.byID, h.request.Attempt)
	d.holds.mu.Unlock()
	if v != nil {
		d.store.Drop(v)
	}
}

// forgetUnused forgets an attempt of which nothing can be in the store.
func (d *Driver) forgetUnused(h *hold) {
	d.holds.mu.Lock()
	defer d.holds.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.undone && !h.unanswered && h.version == nil {
		delete(d.holds.byID, h.request.Attempt)
	}
}

// sweep forgets what lapsed a whole ttl ago: by then nothing of it is sent again.
func (d *Driver) sweep() {
	now := d.now()
	var drop []Version
	d.holds.mu.Lock()
	d.holds.armed = false
	if d.holds.closed {
		d.holds.mu.Unlock()
		return
	}
	for id, h := range d.holds.byID {
		h.mu.Lock()
		if now.Sub(h.sent) > 2*h.request.TTL && !h.sent.IsZero() {
			h.gone = true
			delete(d.holds.byID, id)
			if h.version != nil {
				drop = append(drop, h.version)
			}
		}
		h.mu.Unlock()
	}
	d.holds.arm()
	d.holds.mu.Unlock()
	for _, v := range drop {
		d.store.Drop(v)
	}
}
