package locker

import (
	"container/heap"
	"sync"
	"time"

	"github.com/fencelock/locker/driver"
)

// entry is something in the schedule: a lease with its next renewal or end, or an undo.
type entry struct {
	at    time.Time     // in package time
	index int           // in the heap, from 1; 0: not scheduled
	ttl   time.Duration // as counted in the schedule; 0: not a live lease
	lease *Lease
	undo  *undo
}

// schedule is everything that a Locker has to do by itself, soonest first, behind one
// timer: no goroutine and no timer for each lease, and none at all while nothing is held.
// core.mu guards it.
type schedule struct {
	entries []*entry
	timer   *time.Timer
	timerAt time.Time
	// ttls counts the live leases of each ttl: a suspend that nobody asks about must be
	// noticed within a tenth of the shortest (R2).
	ttls  map[time.Duration]int
	least time.Duration // of ttls; 0: none
	// ahead is by how much the boot clock was ahead of package time at the last look.
	ahead time.Duration
}

// suspendShare: how often per ttl the boot clock is looked at, and suspendNoise: what is
// not taken for a suspend, since the two clocks are not read at one instant.
const (
	suspendShare = 10
	suspendNoise = time.Millisecond
)

func (s *schedule) Len() int           { return len(s.entries) }
func (s *schedule) Less(i, j int) bool { return s.entries[i].at.Before(s.entries[j].at) }
func (s *schedule) Swap(i, j int) {
	s.entries[i], s.entries[j] = s.entries[j], s.entries[i]
	s.entries[i].index, s.entries[j].index = i+1, j+1
}

// Push and Pop are heap.Interface.
func (s *schedule) Push(x any) {
	e := x.(*entry)
	s.entries = append(s.entries, e)
	e.index = len(s.entries)
}

func (s *schedule) Pop() any {
	last := len(s.entries) - 1
	e := s.entries[last]
	s.entries[last] = nil
	s.entries = s.entries[:last]
	e.index = 0
	return e
}

// schedule puts an entry in, or moves it. ttl is a live lease's, otherwise zero. c.mu is
// held.
func (c *core) schedule(e *entry, at time.Time, ttl time.Duration) {
	c.sched.put(e, at, ttl)
	c.arm()
}

func (s *schedule) put(e *entry, at time.Time, ttl time.Duration) {
	e.at = at
	s.count(e, ttl)
	if e.index != 0 {
		heap.Fix(s, e.index-1)
		return
	}
	heap.Push(s, e)
}

// count keeps the numbers of live leases by ttl, of which a renewal may grant another.
func (s *schedule) count(e *entry, ttl time.Duration) {
	old := e.ttl
	if old == ttl {
		return
	}
	e.ttl = ttl
	if ttl > 0 {
		s.ttls[ttl]++
		if s.least == 0 || ttl < s.least {
			s.least = ttl
		}
	}
	if old == 0 {
		return
	}
	if s.ttls[old]--; s.ttls[old] > 0 {
		return
	}
	delete(s.ttls, old)
	if s.least == old {
		s.least = 0
		for t := range s.ttls {
			if s.least == 0 || t < s.least {
				s.least = t
			}
		}
	}
}

// unschedule takes an entry out. c.mu is held.
func (c *core) unschedule(e *entry) {
	if e.index == 0 {
		return
	}
	s := &c.sched
	heap.Remove(s, e.index-1)
	s.count(e, 0)
	if len(s.entries) == 0 {
		c.disarm()
	}
}

// arm makes sure that the timer fires for the next entry, or for the next look at the
// boot clock. c.mu is held.
func (c *core) arm() {
	s := &c.sched
	if len(s.entries) == 0 || c.closed {
		c.disarm()
		return
	}
	now, at := time.Now(), s.entries[0].at
	if !c.clock.packageOnly && s.least > 0 {
		if look := now.Add(max(s.least/suspendShare, suspendNoise)); look.Before(at) {
			at = look
		}
	}
	if !s.timerAt.IsZero() && !at.Before(s.timerAt) {
		return // it fires early enough
	}
	s.timerAt = at
	if s.timer == nil {
		s.timer = time.AfterFunc(at.Sub(now), c.tick)
	} else {
		s.timer.Reset(at.Sub(now))
	}
}

// disarm stops the timer. c.mu is held.
func (c *core) disarm() {
	if c.sched.timer != nil {
		c.sched.timer.Stop()
	}
	c.sched.timerAt = time.Time{}
}

// tick does what is due.
func (c *core) tick() {
	now := c.clock.now()
	c.lock()
	defer c.unlock()
	if c.closed {
		return
	}
	c.noticeSuspend(now)
	due := make(map[batchKind]*batch)
	for s := &c.sched; len(s.entries) > 0 && !s.entries[0].at.After(now.Time()); {
		e := s.entries[0]
		if e.undo != nil {
			c.unschedule(e)
			c.startUndo(e.undo)
			continue
		}
		l := e.lease
		if l.checkNow(now) != nil {
			continue // it has left the schedule
		}
		if !l.due.IsZero() && !l.due.After(now.Time()) {
			l.due = time.Time{}
			if l.inFlight == nil {
				l.joinBatch(due, now)
			}
		}
		at := l.next(now)
		if !at.After(now.Time()) {
			at = now.Time().Add(1) // rounding; never twice in one tick
		}
		c.sched.put(e, at, l.grant.TTL)
	}
	for _, b := range due {
		c.startBatch(b)
	}
	c.sched.timerAt = time.Time{} // it has fired
	c.arm()
}

// noticeSuspend looks whether the machine slept: then every end is nearer than it was
// scheduled. c.mu is held.
func (c *core) noticeSuspend(now driver.Instant) {
	ahead, known := now.Ahead()
	slept := ahead - c.sched.ahead
	c.sched.ahead = ahead
	if !known || slept <= suspendNoise {
		return
	}
	for l := range c.leases {
		if l.checkNow(now) != nil {
			continue
		}
		if !l.due.IsZero() { // the sleep counts (R1)
			l.due = l.due.Add(-slept)
		}
		l.entry.at = l.next(now)
	}
	heap.Init(&c.sched)
}

// next returns when something has to be done for a live lease, in package time.
func (l *Lease) next(now driver.Instant) time.Time {
	left := l.span.untilEnd(now)
	if l.holdUntil > 0 {
		left = min(left, l.holdUntil-now.Sub(l.granted))
	}
	at := now.Time().Add(left)
	if !l.due.IsZero() && l.due.Before(at) {
		at = l.due
	}
	return at
}

// workers do things in the background, in the order in which they were given, at most
// limit at once, and are no goroutines while there is nothing to do.
type workers struct {
	limit   int
	mu      sync.Mutex
	queue   []func()
	running int
	idle    chan struct{} // closed when running comes to 0, if somebody waits
}

func (w *workers) do(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = append(w.queue, f)
	if w.running < w.limit {
		w.running++
		go w.work()
	}
}

// wait returns true when there is nothing left to do, and false after d.
func (w *workers) wait(d time.Duration) bool {
	w.mu.Lock()
	if w.running == 0 {
		w.mu.Unlock()
		return true
	}
	if w.idle == nil {
		w.idle = make(chan struct{})
	}
	idle := w.idle
	w.mu.Unlock()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-idle:
		return true
	case <-t.C:
		return false
	}
}

func (w *workers) work() {
	for {
		w.mu.Lock()
		if len(w.queue) == 0 {
			w.running--
			w.queue = nil
			if w.running == 0 && w.idle != nil {
				close(w.idle)
				w.idle = nil
			}
			w.mu.Unlock()
			return
		}
		f := w.queue[0]
		w.queue[0] = nil
		w.queue = w.queue[1:]
		w.mu.Unlock()
		f()
	}
}
