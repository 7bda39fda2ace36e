package epoch

import (
	"context"
	"sync"
	"time"

	"github.com/fencelock/locker/driver"
)

// Options are what a store says about itself.
type Options struct {
	// Info describes the backend. New adds what the algorithm itself brings: the
	// features, the granularity of a millisecond.
	Info driver.Info
	// TokenBase is the namespace's: token = TokenBase + epoch + shift.
	TokenBase driver.Token
	// Keep is how many numbers below the newest are kept. Zero: 8. A contender that
	// sleeps while Keep numbers pass finds out by the check, so this is no safety
	// margin: it saves reads, and is history for people.
	Keep int
}

// defaultKeep is K of the algorithm.
const defaultKeep = 8

// clockError (ρ) is how far two clocks' rates may differ.
const clockError = 100 // one in a hundred

// Driver runs the algorithm over a store. It is a driver.Driver, an Inspector, a
// Breaker and, if its store is one, a Pinger.
type Driver struct {
	store Store
	info  driver.Info
	base  driver.Token
	keep  uint64

	memory memory
	holds  holds

	// now reads both clocks of this process, mono the cheap one. stamp is the wall
	// clock's text for people. Tests put their own here.
	now, mono func() driver.Instant
	stamp     func() string
	// background runs a clean-up on the driver's own goroutine.
	background func(func(context.Context))
	garbage    garbage

	mu     sync.Mutex
	closed bool
}

// The optional interfaces, checked when compiled.
var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Inspector = (*Driver)(nil)
	_ driver.Breaker   = (*Driver)(nil)
	_ driver.Pinger    = (*Driver)(nil)
)

// New makes a driver over a store. It sends nothing.
func New(s Store, o Options) *Driver {
	if o.Keep <= 0 {
		o.Keep = defaultKeep
	}
	o.Info.Granularity = max(o.Info.Granularity, time.Millisecond)
	o.Info.Features = append(o.Info.Features[:len(o.Info.Features):len(o.Info.Features)],
		driver.FeatureInspect, driver.FeatureList, driver.FeatureBreak, driver.FeatureBreakNow, driver.FeatureFloor)
	if _, ok := s.(driver.Pinger); ok {
		o.Info.Features = append(o.Info.Features, driver.FeaturePing)
	}
	d := &Driver{
		store: s, info: o.Info, base: o.TokenBase, keep: uint64(o.Keep),
		now: driver.Now, mono: driver.PackageNow,
		stamp: func() string { return time.Now().UTC().Format(time.RFC3339) },
	}
	d.memory.keys = map[string]*known{}
	d.holds.init(d.sweep)
	d.background = d.garbage.run
	return d
}

// Info describes the backend.
func (d *Driver) Info() driver.Info { return d.info }

// Ping asks the store, if it can tell, whether it can be reached.
func (d *Driver) Ping(ctx context.Context) error {
	if err := d.usable("-"); err != nil {
		return err
	}
	if p, ok := d.store.(driver.Pinger); ok {
		return p.Ping(ctx)
	}
	return driver.ErrUnsupported
}

// Close ends no grant. It waits for the clean-ups in flight. What grants hold open in
// the store is dropped when each has lapsed.
func (d *Driver) Close() error {
	d.mu.Lock()
	closed := d.closed
	d.closed = true
	d.mu.Unlock()
	if closed {
		return nil
	}
	d.garbage.close()
	for _, h := range d.holds.close() {
		v, left := h.keep(d.now())
		if v == nil {
			continue
		}
		// A timer, not a goroutine: the key must stay held for its ttl although
		// nobody is left who would wait for it.
		time.AfterFunc(left, func() { d.store.Drop(v) })
	}
	return nil
}

// Held returns the store's version behind a grant: what a store's own helpers need.
func (d *Driver) Held(g driver.Grant) (Version, bool) {
	h, ok := g.State.(*hold)
	if !ok || h.owner != d {
		return nil, false
	}
	return h.live(d.now())
}

// HolderOf returns the driver that made the grant, if it was an epoch driver.
func HolderOf(g driver.Grant) (*Driver, bool) {
	h, ok := g.State.(*hold)
	if !ok {
		return nil, false
	}
	return h.owner, true
}

func (d *Driver) usable(key string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return driver.ErrClosed
	case key == "":
		return driver.ErrInvalidKey
	}
	return nil
}

// token is what epoch n with a shift is called outside.
func (d *Driver) token(n, shift uint64) driver.Token { return d.base + driver.Token(n+shift) }

// next returns the number and the shift of the record after at. A floor raises the
// shift, never the number: a contender that listed before has its own idea of that.
func (d *Driver) next(at place, floor driver.Token) (n, shift uint64, err error) {
	n, shift = at.n+1, at.shift
	if t := d.token(n, shift); t <= floor {
		shift += uint64(floor-t) + 1
	}
	if n+shift < n || d.token(n, shift) > driver.MaxToken || d.token(n, shift) < d.base {
		return 0, 0, driver.Wrap(driver.ErrTokenRegression, errTokens)
	}
	return n, shift, nil
}

// newest asks for the newest number behind a create or an adoption.
func (d *Driver) newest(ctx context.Context, key string, h *hold) (uint64, error) {
	if c, ok := d.store.(Confirmer); ok {
		n, v := h.record()
		return c.Confirm(ctx, key, n, v)
	}
	return d.store.Newest(ctx, key)
}

// record is a fresh write of an attempt's record.
func (d *Driver) record(r driver.Request, n, shift uint64) Record {
	return Record{
		Layout: RecordVersion, Key: r.Key, Epoch: n, Shift: shift, Token: d.token(n, shift), Holder: r.Attempt,
		Owner: r.Owner, Note: r.Note, ValidityMS: r.TTL.Milliseconds(), Time: d.stamp(), Writer: driver.NewAttempt(),
	}
}

// end writes an ending under a fresh writer.
func (d *Driver) end(ctx context.Context, key string, n uint64, v Version, rec Record) error {
	return d.store.End(ctx, key, n, v, signed(key, n, rec))
}

// signed is a record as a fresh writer sends it.
func signed(key string, n uint64, rec Record) Record {
	rec.Layout, rec.Key, rec.Epoch, rec.Writer = RecordVersion, key, n, driver.NewAttempt()
	return rec
}
