package epoch

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"time"

	"github.com/fencelock/locker/driver"
)

// This file is the world in which the shipped code is explored: a few clients, each
// with a Driver of its own over one small store, and a clock that stands still unless
// the explorer lets it tick. Clients are coroutines. At every store call they hand
// control to the explorer twice, before the call is applied and before its answer
// arrives, so that anything else may happen at both points.

const (
	tick     = time.Second
	checkKey = "k"
)

// bounds are the limits and the kind of store of one exploration.
type bounds struct {
	ttl      int    // in ticks; 0: 2
	ticks    int    // how often the clock may tick
	keep     int    // K
	epochs   uint64 // creates above this number are outside the bounds
	lost     int    // how many calls may go unanswered, and arrive later or never
	observed bool   // ages are unknown
	unlinked bool   // a directory: End cannot compare what a Beat changes, and ages are
	// taken from a clock read before the record
	lateClock bool // negative control of the store: the clock is read after the record
	overwrite bool // negative control of the store: Beat compares nothing
	clients   []script
}

// script is what one client may do.
type script struct {
	attempts, renews, resends int
	resendUndone              bool // send an attempt again although its undo is unanswered
	breaks                    bool // no attempts: break what is held
	letGo                     bool // a granted key is always released
	stays                     bool // a granted key is kept until it lapses
	headStart                 bool // has the key before anything else happens
}

type world struct {
	b       bounds
	x       *explorer
	now     int
	start   driver.Instant
	recs    map[uint64]*stored
	births  map[uint64]int // how often a number was created
	threads []*thread
	late    []lateCall
	lost    int
	calm    bool // every call is answered

	// the monitor
	tokens    map[driver.Token]driver.Attempt
	maxToken  driver.Token
	leases    []lease // by client
	broken    map[driver.Attempt]bool
	violation string
}

type stored struct {
	r             Record
	birth, writes int
	mtime         int
	ended, broken bool
}

type version struct{ birth, writes int }

type lateCall struct {
	name  string
	apply func()
}

// lease is what a client believes.
type lease struct {
	token driver.Token
	end   int // belief lasts while now < end; 0: none
}

type thread struct {
	w       *world
	name    string
	next    func() (struct{}, bool)
	stop    func()
	yield   func(struct{}) bool
	hist    uint64 // everything this thread has learnt
	at      string
	done    bool
	stopped bool
	unread  bool // an answer was sent and has not arrived
	driver  *Driver
}

var errStopped = driver.Wrap(driver.ErrUnavailable, errors.New("exploration stopped"))

func newWorld(b bounds, x *explorer) *world {
	if b.ttl == 0 {
		b.ttl = 2
	}
	w := &world{
		b: b, x: x, start: driver.PackageNow(), recs: map[uint64]*stored{}, births: map[uint64]int{},
		tokens: map[driver.Token]driver.Attempt{}, broken: map[driver.Attempt]bool{}, leases: make([]lease, len(b.clients)),
	}
	for i, s := range b.clients {
		t := &thread{w: w, name: string(rune('A' + i))}
		d := New(&modelStore{w: w, t: t}, Options{Keep: b.keep})
		d.holds.timer = nil
		d.now = func() driver.Instant {
			t.arrive()
			t.learn("now", w.now)
			return w.start.Add(time.Duration(w.now) * tick)
		}
		d.mono, d.stamp = d.now, func() string { return "" }
		if !b.observed { // nothing but the observed rule looks at it
			d.mono = func() driver.Instant { return w.start }
		}
		t.driver = d
		garbage := 0
		d.background = func(f func(context.Context)) {
			garbage++
			g := &thread{w: w, name: fmt.Sprintf("%s.gc%d", t.name, garbage), driver: d}
			w.spawn(g, func() { f(context.WithValue(context.Background(), threadKey{}, g)) })
		}
		w.spawn(t, func() { w.client(i, t, s) })
		for w.calm = s.headStart; w.calm && w.maxToken == 0; {
			t.next()
		}
		w.calm = false
	}
	return w
}

type threadKey struct{}

func (w *world) spawn(t *thread, body func()) {
	w.threads = append(w.threads, t)
	t.next, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		t.yield = yield
		body()
	})
	if _, more := t.next(); !more {
		t.done = true
	}
}

// arrive is the arrival of an answer. It is a point of its own only if the thread then
// looks at the clock or at the world; a thread that only sends its next call may as
// well have got the answer just before.
func (t *thread) arrive() {
	if t.unread {
		t.pause("get the answer")
	}
}

// pause hands control to the explorer.
func (t *thread) pause(at string) {
	t.at, t.unread = at, false
	if !t.stopped && !t.yield(struct{}{}) {
		t.stopped = true // every store call fails from here on, so that the code ends by itself
	}
}

// choose is a decision of the world that nothing can come between.
func (t *thread) choose(what string, n int) int {
	if n < 2 || t.stopped {
		return 0
	}
	c := t.w.x.choose(n)
	if t.w.x.explain {
		t.w.x.note("%s: %s: %d of %d", t.name, what, c, n)
	}
	t.learn(what, c)
	return c
}

// learn mixes what the thread was told into its history: two states in which every
// thread has learnt the same are the same state.
func (t *thread) learn(what string, vs ...int) {
	h := t.hist
	for _, c := range []byte(what) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	for _, v := range vs {
		h = (h ^ uint64(v+7)) * 1099511628211
		h ^= h >> 29
	}
	t.hist = h
}

// run lets the explorer decide until nothing can happen any more, a state is met
// again, or a rule is violated.
func (w *world) run() {
	defer func() {
		for _, t := range w.threads {
			t.stop()
		}
	}()
	for w.violation == "" {
		ready := w.x.ready[:0]
		for _, t := range w.threads {
			if !t.done {
				ready = append(ready, t)
			}
		}
		w.x.ready = ready
		if len(ready) == 0 {
			return
		}
		n := len(ready) + len(w.late)
		if w.now < w.b.ticks {
			n++
		}
		if w.x.fresh() && w.x.seen(w.hash()) {
			return
		}
		switch c := w.x.choose(n); {
		case c < len(ready):
			t := ready[c]
			w.x.note("%s: %s", t.name, t.at)
			if _, more := t.next(); !more {
				t.done = true
			}
		case c < len(ready)+len(w.late):
			i := c - len(ready)
			call := w.late[i]
			w.x.note("network: late %s", call.name)
			w.late = slices.Delete(slices.Clone(w.late), i, i+1)
			call.apply()
		default:
			w.now++
			w.x.note("clock: %d", w.now)
		}
	}
}

var hashSeed = maphash.MakeSeed()

func (w *world) hash() uint64 {
	b := w.x.buf[:0]
	put := func(vs ...int) {
		for _, v := range vs {
			b = append(b, byte(v), byte(v>>8))
		}
	}
	flag := func(f bool) int {
		if f {
			return 1
		}
		return 0
	}
	put(w.now, w.lost, int(w.maxToken), len(w.recs))
	for n := uint64(1); n <= w.b.epochs+2; n++ {
		put(w.births[n], int(w.tokens[driver.Token(n)][0]), int(w.tokens[driver.Token(n)][1]))
		if r := w.recs[n]; r != nil {
			age := min(w.now-r.mtime, w.b.ttl)
			if r.ended {
				age = 0
			}
			put(int(r.r.Holder[0]), int(r.r.Holder[1]), r.birth, r.writes, age, flag(r.ended), flag(r.broken))
		}
	}
	for i := range w.leases {
		if l := w.leases[i]; w.now < l.end {
			put(int(l.token), l.end)
		} else {
			put(0, 0)
		}
	}
	for _, l := range w.late {
		b = append(b, l.name...)
		b = append(b, 0)
	}
	for _, t := range w.threads {
		if t.done {
			continue
		}
		b = append(b, t.name...)
		b = append(b, byte(flag(t.unread)), byte(t.hist), byte(t.hist>>8), byte(t.hist>>16), byte(t.hist>>24),
			byte(t.hist>>32), byte(t.hist>>40), byte(t.hist>>48), byte(t.hist>>56))
		b = append(b, t.at...)
	}
	w.x.buf = b
	return maphash.Bytes(hashSeed, b)
}

func (w *world) violate(t *thread, format string, args ...any) {
	if w.violation == "" && !t.stopped {
		w.violation = fmt.Sprintf(format, args...)
	}
}

// ---- the client -------------------------------------------------------------------

func (w *world) client(i int, t *thread, s script) {
	if s.breaks {
		w.breaker(t)
		return
	}
	for a := 0; a < s.attempts && !t.stopped; a++ {
		if a > 0 {
			t.settle() // between two attempts only the driver's memory counts
			t.pause("next attempt")
		}
		r := driver.Request{Key: checkKey, Attempt: driver.Attempt{byte(i + 1), byte(a + 1)}, TTL: time.Duration(w.b.ttl) * tick}
		w.attempt(i, t, s, r)
	}
}

func (w *world) attempt(i int, t *thread, s script, r driver.Request) {
	ctx := context.WithValue(context.Background(), threadKey{}, t)
	if w.now < w.leases[i].end { // a client has one goroutine
		return
	}
	first, before := w.now, w.maxToken
	g, err := t.driver.TryAcquire(ctx, r)
	t.arrive()
	for resends := 0; driver.IsAmbiguous(err) && !t.stopped; {
		again := 1
		if resends < s.resends && w.now-first <= w.b.ttl/2 {
			again = 2
		}
		if t.choose("undo or re-send", again) == 1 {
			resends++
			g, err = t.driver.TryAcquire(ctx, r)
			t.arrive()
			continue
		}
		undone := t.driver.Release(ctx, driver.Grant{Request: r, State: g.State})
		if !driver.IsAmbiguous(undone) || !s.resendUndone || t.choose("give up or re-send the undone", 2) == 0 {
			return
		}
		g, err = t.driver.TryAcquire(ctx, r)
		t.arrive()
		if driver.IsAmbiguous(err) {
			return
		}
	}
	if err != nil || t.stopped {
		return
	}
	end := w.granted(i, t, r, g, first, before)
	if end == 0 { // R9: too late to be believed
		_ = t.driver.Release(ctx, g)
		return
	}
	if s.stays {
		return
	}
	for renews := 0; !t.stopped; {
		t.settle(int(g.Token), renews, end)
		options := 2
		if renews < s.renews {
			options = 3
		}
		if s.letGo {
			options = 1
		}
		switch t.choose("release, leave or renew", options) {
		case 0:
			w.leases[i] = lease{}
			_ = t.driver.Release(ctx, g)
			return
		case 1:
			return // the belief goes on by itself
		default:
			renews++
			t.pause("think before a renewal")
			if w.now >= w.leases[i].end {
				return
			}
			broken := w.broken[r.Attempt]
			renewed, err := t.driver.Renew(ctx, g)
			t.arrive()
			switch {
			case err == nil:
				if broken {
					w.violate(t, "%s renewed a grant that had been broken before", t.name)
				}
				g = renewed
				end = w.believe(i, t, g, ticksAt(w, g.Sent)+int(g.Left/tick))
			case !driver.IsAmbiguous(err):
				return
			}
		}
	}
}

func (w *world) breaker(t *thread) {
	ctx := context.WithValue(context.Background(), threadKey{}, t)
	st, err := t.driver.Inspect(ctx, checkKey)
	if err != nil || !st.Held {
		return
	}
	err = t.driver.Break(ctx, checkKey, st.Token, driver.Break{})
	t.arrive()
	if err == nil {
		w.broken[st.Attempt] = true
	}
}

// granted checks token order and turns a grant into a belief.
func (w *world) granted(i int, t *thread, r driver.Request, g driver.Grant, first int, before driver.Token) int {
	if g.Token <= before && w.tokens[g.Token] != r.Attempt {
		w.violate(t, "%s got token %v after %v had been returned", t.name, g.Token, before)
	}
	if had, used := w.tokens[g.Token]; used && had != r.Attempt {
		w.violate(t, "%s got token %v, which had been given to another attempt", t.name, g.Token)
	}
	w.tokens[g.Token] = r.Attempt
	w.maxToken = max(w.maxToken, g.Token)
	sent := first
	if !g.Sent.IsZero() {
		sent = ticksAt(w, g.Sent)
	}
	return w.believe(i, t, g, sent+int(g.Left/tick))
}

// believe is rule G2: nobody else may believe now.
func (w *world) believe(i int, t *thread, g driver.Grant, end int) int {
	if w.now >= end {
		return 0
	}
	for j, l := range w.leases {
		if j != i && w.now < l.end {
			w.violate(t, "%s believes in token %v while %s believes in token %v", t.name, g.Token, w.threads[j].name, l.token)
		}
	}
	w.leases[i] = lease{token: g.Token, end: end}
	return end
}

func ticksAt(w *world, i driver.Instant) int { return int(i.Sub(w.start) / tick) }

// settle replaces the history of a client by what its driver remembers and by what
// the client itself still knows: nothing else of the past can matter to it.
func (t *thread) settle(knows ...int) {
	t.hist, t.unread = 0, false
	t.learn("knows", knows...)
	d := t.driver
	if k := d.memory.keys[checkKey]; k != nil {
		t.learn("known", int(k.n), int(k.shift))
		if k.warm {
			t.learn("warm")
		}
		if k.shared {
			t.learn("shared")
		}
		if k.last != nil && t.w.b.observed {
			t.learn("last"+k.last.ID, since(t.w, k.first))
		}
	}
	ids := make([]driver.Attempt, 0, len(d.holds.byID))
	for id := range d.holds.byID {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b driver.Attempt) int { return int(a[1]) - int(b[1]) })
	for _, id := range ids {
		if h := d.holds.byID[id]; len(knows) > 0 { // else it is never used again: attempts are fresh
			v, _ := h.version.(version)
			t.learn("hold", int(id[1]), int(h.n), v.birth, v.writes, since(t.w, h.sent))
			sends := make([]int, 0, len(h.writes))
			for _, sent := range h.writes {
				sends = append(sends, since(t.w, sent))
			}
			slices.Sort(sends)
			t.learn("writes", sends...)
			if h.undone || h.lost {
				t.learn("over")
			}
		}
	}
}

func since(w *world, i driver.Instant) int {
	if i.IsZero() {
		return -1
	}
	return ticksAt(w, i)
}
