package faultlock

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"
)

// logSize bounds the log: a run of days must not fill the memory.
const logSize = 10_000

// Count says how often a rule fired.
type Count struct {
	Rule  Rule
	Times int
}

// Event is one fault that was injected.
type Event struct {
	Op      Op
	Key     string
	Ordinal int // of this operation on this key, from 1
	Rule    Rule
}

// String reads: renew "k" #2: renew#2=before.
func (e Event) String() string {
	return fmt.Sprintf("%s %q #%d: %s", e.Op, e.Key, e.Ordinal, e.Rule)
}

// plan is a schedule at work: what it has counted so far.
type plan struct {
	seed     uint64
	schedule Schedule

	mu       sync.Mutex
	ordinals map[call]int
	fired    []int
	log      []Event
}

type call struct {
	op  Op
	key string
}

func newPlan(seed uint64, s Schedule) *plan {
	return &plan{
		seed:     seed,
		schedule: slices.Clone(s),
		ordinals: map[call]int{},
		fired:    make([]int, len(s)),
	}
}

// injection is one decision: this call gets this fault.
type injection struct {
	Event
	plan *plan
	rule int           // its position
	wait time.Duration // the fault's duration, drawn
}

// decide counts the call and returns its fault, or nil.
func (p *plan) decide(op Op, key string) *injection {
	p.mu.Lock()
	p.ordinals[call{op, key}]++
	n := p.ordinals[call{op, key}]
	p.mu.Unlock()
	for i, r := range p.schedule {
		if !r.matches(op, key, n) || r.P != 0 && p.draw(i, "fires", op, key, n) >= r.P {
			continue
		}
		in := &injection{Event: Event{op, key, n, r}, plan: p, rule: i, wait: r.Min}
		if r.Max > r.Min {
			in.wait += time.Duration(p.draw(i, "lasts", op, key, n) * float64(r.Max-r.Min))
		}
		return in
	}
	return nil
}

// draw returns a number in [0, 1) that depends on its arguments and the seed alone.
// Rules draw by their position, or two of ten per cent would fire on the same calls.
func (p *plan) draw(rule int, what string, op Op, key string, ordinal int) float64 {
	h := fnv.New64a()
	var n [8]byte
	word := func(v uint64) {
		binary.LittleEndian.PutUint64(n[:], v)
		h.Write(n[:])
	}
	text := func(s string) {
		word(uint64(len(s)))
		h.Write([]byte(s))
	}
	word(p.seed)
	word(uint64(rule))
	text(what)
	text(string(op))
	text(key)
	word(uint64(ordinal))
	return float64(mix(h.Sum64())>>11) / (1 << 53)
}

// mix is the finalizer of splitmix64 (Steele, Lea, Flood 2014). FNV alone leaves the
// high bits of inputs that differ in their last byte nearly equal.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// fire records that the fault happened.
func (in *injection) fire() {
	p := in.plan
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fired[in.rule]++
	if len(p.log) < logSize {
		p.log = append(p.log, in.Event)
	}
}

func (p *plan) counts() []Count {
	p.mu.Lock()
	defer p.mu.Unlock()
	counts := make([]Count, len(p.schedule))
	for i, r := range p.schedule {
		counts[i] = Count{r, p.fired[i]}
	}
	return counts
}

func (p *plan) events() []Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.log)
}
