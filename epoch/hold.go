package epoch

import (
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/fencelock/locker/driver"
)

var errTokens = errors.New("the key has used up its tokens")

// hold is what the driver remembers of one attempt, from its first create until it is
// released or forgotten. It is the State of the attempt's grants.
type hold struct {
	owner   *Driver
	request driver.Request // with the ttl as granted

	mu      sync.Mutex
	n       uint64 // the number tried last; 0: none yet
	shift   uint64
	version Version // nil until a create was answered or a record adopted
	time    string
	// unanswered: a create of n may still arrive. granted: the check has passed.
	unanswered, granted bool
	barred              map[uint64]bool // numbers given back
	// sent is when the write was sent that the deadline counts from, accepted the writer of
	// the renewal among them. writes are the sends of this grant's own renewals, by writer.
	sent     driver.Instant
	accepted driver.Attempt
	writes   map[driver.Attempt]driver.Instant
	renewals uint64
	// undone: a release was sent, the attempt is never adopted again. gone: nothing is
	// left to renew or release.
	undone, lost, gone bool
}

// left is what remains of the belief's outermost bound, the deadline.
func (h *hold) left(now driver.Instant) time.Duration {
	ttl := h.request.TTL
	return ttl - ttl/clockError - now.Sub(h.sent)
}

// trying notes a create before it is sent, and returns the version of a number that
// the attempt had before and that has ended.
func (h *hold) trying(rec Record, sent driver.Instant) (old Version, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.undone {
		return nil, false
	}
	// A lower number with an unanswered create needs no memory: its successor's
	// predecessor was seen, so it is taken or below the newest.
	old = h.version
	if h.n != rec.Epoch || !h.unanswered { // else an earlier send may have made the record
		h.sent = sent
	}
	h.n, h.shift, h.time = rec.Epoch, rec.Shift, rec.Time
	h.version, h.granted, h.unanswered = nil, false, true
	return old, true
}

// untried: no create of n can have made a record.
func (h *hold) untried(n uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n == n {
		h.unanswered = false
	}
}

// made: the create that was sent then has made the record.
func (h *hold) made(n uint64, v Version, sent driver.Instant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.n, h.version, h.sent, h.unanswered = n, v, sent, false
}

// adopt takes a record of this attempt that a read has shown. It reports false after
// an undo was sent: that one may still arrive.
func (h *hold) adopt(v *sight) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.undone {
		return false
	}
	if h.n != v.n || h.sent.IsZero() {
		h.sent = v.sent // nothing is known of the first send here: the core counts from it
	}
	if h.n != v.n || h.version == nil {
		h.version, h.granted = v.Version, false
	}
	h.n, h.shift, h.time, h.unanswered = v.n, v.Shift, v.Time, false
	return true
}

func (h *hold) grant() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.granted = !h.undone
	return h.granted
}

func (h *hold) number() (n, shift uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n, h.shift
}

// record returns the record that the check is about.
func (h *hold) record() (n uint64, v Version) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n, h.version
}

// bar gives the number back: it is never adopted again.
func (h *hold) bar() (n, shift uint64, v Version) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.barred == nil {
		h.barred = map[uint64]bool{}
	}
	h.barred[h.n] = true
	n, shift, v = h.n, h.shift, h.version
	h.n, h.version, h.granted = 0, nil, false
	return n, shift, v
}

func (h *hold) isBarred(n uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.barred[n]
}

// beat is one renewal, ready to be sent.
type beat struct {
	request  driver.Request
	n, shift uint64
	version  Version
	writer   driver.Attempt
	based    driver.Attempt // the writer of what it replaces, if that is a renewal
	renewals uint64
	time     string
}

// beat prepares a renewal. It reports false if none may be sent any more.
func (h *hold) beat(now driver.Instant) (beat, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.granted || h.undone || h.lost || h.gone || h.left(now) <= 0 {
		return beat{}, false
	}
	h.renewals++
	b := beat{h.request, h.n, h.shift, h.version, driver.NewAttempt(), h.accepted, h.renewals, h.time}
	if h.writes == nil {
		h.writes = map[driver.Attempt]driver.Instant{}
	}
	h.writes[b.writer] = now
	return b, true
}

// written is a renewal that the store has applied.
type written struct {
	version Version
	sent    driver.Instant
	writer  driver.Attempt
}

// wrote reports when this grant's own write was sent.
func (h *hold) wrote(w driver.Attempt) (driver.Instant, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	sent, own := h.writes[w]
	return sent, own
}

// renewed accepts an answer, unless it came at or after the old deadline. Another renewal
// that is under way may have been accepted before, and one may build on this one already.
func (h *hold) renewed(now driver.Instant, w written) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.undone || h.lost || h.gone || h.left(now) <= 0 {
		h.lost = true
		return false
	}
	if w.sent.Sub(h.sent) < 0 {
		return true
	}
	h.version, h.sent, h.accepted = w.version, w.sent, w.writer
	// With this version none that was sent before can be applied any more.
	maps.DeleteFunc(h.writes, func(_ driver.Attempt, other driver.Instant) bool { return other.Sub(w.sent) < 0 })
	return true
}

func (h *hold) lose() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost = true
}

// undoing is where a release has to look.
type undoing struct {
	n, shift   uint64
	version    Version
	kind       Kind
	unanswered bool
}

func (h *hold) undoing() undoing {
	h.mu.Lock()
	defer h.mu.Unlock()
	u := undoing{n: h.n, shift: h.shift, version: h.version, kind: Undone, unanswered: h.unanswered}
	if h.granted {
		u.kind = Released
	}
	return u
}

// live returns the version of a grant that may still be believed.
func (h *hold) live(now driver.Instant) (Version, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.version, h.granted && !h.undone && !h.gone && h.left(now) > 0
}

// keep returns what the grant holds open in the store, and for how long it must.
func (h *hold) keep(now driver.Instant) (Version, time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.version, max(h.request.TTL-now.Sub(h.sent), 0)
}
