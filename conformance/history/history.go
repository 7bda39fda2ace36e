// Package history records what the clients of a lock saw and decides whether a correct
// lock could have answered so.
//
// A [Recorder] collects operations, each an interval on one strictly increasing clock.
// [Check] looks at them afterwards. Three things make the decision direct, without a
// search: tokens fix the order of the grants; a grant that was not given back ends by a
// synthetic expiry, not before the time it was promised; and an acquire whose outcome is
// unknown ends at its last send + ttl, so that nothing stays open for ever.
package history

import (
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/internal/boot"
)

// Kind is what an operation does.
type Kind string

// The kinds of operations.
const (
	Acquire Kind = "acquire" // a try, an enqueue, a poll or a push
	Renew   Kind = "renew"
	Release Kind = "release"
	Break   Kind = "break" // with Now if Until is zero; otherwise the grant lasts on
	Belief  Kind = "belief"
	Raise   Kind = "raise" // of a fence; Key is the resource's name
	Write   Kind = "write" // through a fence
)

// Outcome is what an operation answered.
type Outcome string

// The outcomes.
const (
	OK      Outcome = "ok"
	Refused Outcome = "refused" // held; of a fence: stale
	Queued  Outcome = "queued"  // held, with a place in the queue
	Lost    Outcome = "lost"    // definitely not the holder
	Unknown Outcome = "unknown" // may have been applied
	Failed  Outcome = "failed"  // definitely not applied
)

// Op is one operation. Times count from the recorder's start.
type Op struct {
	Kind    Kind           `json:"kind"`
	Outcome Outcome        `json:"outcome"`
	Key     string         `json:"key"`
	Client  string         `json:"client"`
	Attempt driver.Attempt `json:"attempt"`
	Token   driver.Token   `json:"token,omitempty"`
	Call    time.Duration  `json:"call"`
	Return  time.Duration  `json:"return"`
	// Until is how long the backend promised to keep the grant: Sent + Left. Only with
	// OK of an Acquire or a Renew, and with a Break that waits for the deadline.
	Until time.Duration `json:"until,omitempty"`
	TTL   time.Duration `json:"ttl,omitempty"`
}

// String is one line for people.
func (o Op) String() string {
	s := fmt.Sprintf("%v–%v %s: %s %q", round(o.Call), round(o.Return), o.Client, o.Kind, o.Key)
	if !o.Attempt.IsZero() {
		s += fmt.Sprintf(" attempt %.6s", o.Attempt)
	}
	s += " → " + string(o.Outcome)
	if o.Token != 0 {
		s += fmt.Sprintf(", token %v", o.Token)
	}
	if o.Until != 0 {
		s += fmt.Sprintf(", until %v", round(o.Until))
	}
	return s
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

// Recorder collects operations. It is safe for concurrent use.
type Recorder struct {
	base     time.Time
	bootBase time.Duration

	mu   sync.Mutex
	last time.Duration
	ops  []Op
}

// NewRecorder returns a recorder whose clock begins now. Inside a synctest bubble it must
// be made there.
func NewRecorder() *Recorder {
	r := &Recorder{}
	for best := time.Duration(-1); best != 0; { // read both clocks at one moment, as near as it gets
		before, _ := boot.Now()
		base := time.Now()
		after, _ := boot.Now()
		gap := after - before
		if best >= 0 && gap >= best {
			break
		}
		best, r.base, r.bootBase = gap, base, after
	}
	return r
}

// Now reads the clock. No two readings are equal: what happened before, in the order of
// the program, has the smaller one, also where package time stands still.
func (r *Recorder) Now() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = max(r.last+1, time.Since(r.base))
	return r.last
}

// At places an instant on the clock.
func (r *Recorder) At(i driver.Instant) time.Duration { return i.Time().Sub(r.base) }

// Boot places a reading of the boot clock, which other processes of this machine share,
// on the clock.
func (r *Recorder) Boot(reading time.Duration) time.Duration { return reading - r.bootBase }

// Add records an operation.
func (r *Recorder) Add(o Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, o)
}

// Ops returns a copy of what was recorded.
func (r *Recorder) Ops() []Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Op(nil), r.ops...)
}
