package epoch

import (
	"context"
	"sync"
	"time"

	"github.com/fencelock/locker/driver"
)

// memory is what the driver remembers about keys: where to look first, and since when
// a record has not changed. It saves requests and decides nothing that the store has
// not confirmed.
type memory struct {
	mu   sync.Mutex
	keys map[string]*known
}

// maxKnown bounds the memory; beyond it any key is forgotten, which costs one request.
const maxKnown = 16 << 10

type known struct {
	n      uint64
	shift  uint64
	warm   bool           // n is ended by our own, answered release
	shared bool           // others used the numbers after ours: look before the next try
	last   *View          // what the last read of n showed
	first  driver.Instant // when the first answer with last.ID arrived
}

// sight is a View, and how long the record is known not to have changed: from the
// arrival of the first answer with its ID to the send of the last one. From send to
// send, or to the arrival, a renewal in between could be missed.
type sight struct {
	View
	n     uint64
	sent  driver.Instant
	quiet time.Duration
}

// read reads one record and remembers it.
func (d *Driver) read(ctx context.Context, key string, n uint64) (sight, error) {
	prev, since := d.memory.last(key, n)
	sent := d.mono()
	v, err := d.store.Read(ctx, key, n, since)
	arrived := d.mono()
	if err != nil {
		return sight{View: v, n: n, sent: sent}, err
	}
	if v.Unchanged && prev != nil {
		v.Record, v.Ended, v.Broken, v.Unheld = prev.Record, prev.Ended, prev.Broken, prev.Unheld
		v.Unchanged = false
	}
	return d.memory.saw(key, n, v, sent, arrived), nil
}

func (m *memory) last(key string, n uint64) (*View, Version) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k := m.keys[key]; k != nil && k.n == n && k.last != nil {
		return k.last, k.last.Version
	}
	return nil, nil
}

func (m *memory) saw(key string, n uint64, v View, sent, arrived driver.Instant) sight {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.at(key)
	shared := k.shared
	if k.n != n || k.last == nil || k.last.ID != v.ID {
		*k = known{n: n, first: arrived}
	}
	k.warm, k.shared, k.last = false, shared, &v
	return sight{View: v, n: n, sent: sent, quiet: sent.Sub(k.first)}
}

// hint returns the number to read first; 0: ask the store. One that was polled is worth a
// read; of one's own, released some time ago, that is so only where nobody else comes.
func (m *memory) hint(key string) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k := m.keys[key]; k != nil && (!k.shared || k.last != nil) {
		return k.n
	}
	return 0
}

// outrun notes that the number which was remembered led to one that was used up.
func (m *memory) outrun(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	*m.at(key) = known{shared: true}
}

// found notes what the store says is the newest: if it is our own, nobody has come.
func (m *memory) found(key string, n uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k := m.keys[key]; k != nil && k.n == n {
		k.shared = false
	}
}

// released returns, once, the number that this driver's own release has ended.
func (m *memory) released(key string) (place, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.keys[key]
	if k == nil || !k.warm {
		return place{}, false
	}
	k.warm = false
	return place{n: k.n, shift: k.shift}, true
}

func (m *memory) holding(key string, n uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.at(key)
	*k = known{n: n, shared: k.shared}
}

func (m *memory) release(key string, at place, warm bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.at(key)
	*k = known{n: at.n, shift: at.shift, warm: warm && !k.shared, shared: k.shared}
}

func (m *memory) forget(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.keys, key)
}

// at returns the entry of a key. Call it with mu held.
func (m *memory) at(key string) *known {
	k := m.keys[key]
	if k == nil {
		for other := range m.keys {
			if len(m.keys) < maxKnown {
				break
			}
			delete(m.keys, other)
		}
		k = &known{}
		m.keys[key] = k
	}
	return k
}

// lapsed reports whether the holder cannot believe in the record any more. Where the
// age is not known, the record must not have changed for its validity on this
// process's own clock.
func (d *Driver) lapsed(s sight) bool {
	validity := s.Validity()
	switch {
	case s.Dead:
		return true
	case s.Known:
		return s.Idle >= validity+s.Margin
	default:
		return s.quiet >= validity+validity/clockError+s.Margin
	}
}

// expiresIn is an upper bound of the time until the record lapses unrenewed.
func (d *Driver) expiresIn(s sight) time.Duration {
	validity := s.Validity()
	switch {
	case s.Dead:
		return 0
	case s.Known:
		return max(validity+s.Margin-s.Idle, 0)
	default:
		return max(validity+validity/clockError+s.Margin-s.quiet, 0)
	}
}

// held says who has the key.
func (d *Driver) held(s sight) *driver.HeldError {
	return &driver.HeldError{
		Owner: s.Owner, Note: s.Note, Token: d.token(s.n, s.Shift), Attempt: s.Holder,
		ExpiresIn: max(d.expiresIn(s), time.Millisecond),
	}
}
