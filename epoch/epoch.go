package epoch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/locker/driver"
)

// errAgain: the number turned out to be used up; look again.
var errAgain = errors.New("look again")

// maxRounds bounds how often one call starts again after a lost race. Whoever loses
// that often is told that somebody else holds the key, which was true each time.
const maxRounds = 8

// place is where a key stands: n is the last number that has ended, 0 if there is
// none, and shift what its successor copies.
type place struct {
	n, shift uint64
	mine     *sight // the newest record is an earlier send's of the same attempt
}

// TryAcquire makes one attempt: look, seal what has lapsed, create the next number,
// check that it is the newest.
func (d *Driver) TryAcquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if err := d.usable(r.Key); err != nil {
		return driver.Grant{}, err
	}
	r.TTL = granted(r.TTL)
	if r.TTL.Milliseconds() > maxValidityMS {
		return driver.Grant{}, driver.ErrInvalidTTL
	}
	h, err := d.attempt(r)
	if err != nil {
		return driver.Grant{}, err
	}
	g, err := d.acquire(ctx, r, h)
	if driver.IsAmbiguous(err) {
		return driver.Grant{Request: r, State: h}, err
	}
	if err != nil {
		d.forgetUnused(h)
	}
	return g, err
}

func (d *Driver) acquire(ctx context.Context, r driver.Request, h *hold) (driver.Grant, error) {
	lost := driver.Wrap(driver.ErrUnavailable, errors.New("the key's numbers are used up faster than they can be taken"))
	at, warm := d.memory.released(r.Key)
	for range maxRounds {
		if !warm {
			var err error
			if at, err = d.look(ctx, r, h); err != nil {
				return driver.Grant{}, err
			}
		}
		warm = false
		var g driver.Grant
		var err error
		if at.mine != nil {
			g, err = d.adopt(ctx, r, h, at.mine)
		} else {
			g, err = d.take(ctx, r, h, at)
		}
		if !errors.Is(err, errAgain) {
			return g, err
		}
		if raced := (*driver.HeldError)(nil); errors.As(err, &raced) {
			lost = raced
		}
		d.memory.outrun(r.Key) // the hint led here: ask the store
	}
	return driver.Grant{}, lost
}

// look finds the last ended number of the key, sealing what has lapsed. It starts at
// the number it remembers: a live record is the newest whatever the store would list,
// and an ended one is caught by the check if it is old.
func (d *Driver) look(ctx context.Context, r driver.Request, h *hold) (place, error) {
	n := d.memory.hint(r.Key)
	for range maxRounds {
		if n == 0 {
			var err error
			if n, err = d.store.Newest(ctx, r.Key); err != nil {
				return place{}, unavailable(err)
			}
			if n == 0 {
				return place{}, nil
			}
			d.memory.found(r.Key, n)
		}
		v, err := d.read(ctx, r.Key, n)
		switch {
		case errors.Is(err, ErrNotExist):
			d.memory.forget(r.Key)
			n = 0
			continue
		case err != nil:
			return place{}, unavailable(err)
		}
		mine := v.Holder == r.Attempt
		switch {
		case v.Ended, mine && v.Broken:
			return place{n: n, shift: v.Shift}, nil
		case mine && h.isBarred(n): // my discard of it was not answered
			d.memory.forget(r.Key)
			n = 0
			continue
		case mine && !v.Unheld:
			return place{n: n, shift: v.Shift, mine: &v}, nil
		case mine: // ended below: what would hold it is gone
		case !d.lapsed(v):
			return place{}, d.held(v)
		case v.Broken:
			return place{n: n, shift: v.Shift}, nil
		}
		end := v.Record
		end.Ending = Ending{Kind: Sealed, By: r.Owner}
		err = d.end(ctx, r.Key, n, v.Version, end)
		switch {
		case err == nil:
			return place{n: n, shift: v.Shift}, nil
		case errors.Is(err, ErrChanged): // renewed, ended or broken since: look at it again
		case errors.Is(err, ErrNotExist):
			n = 0
		default: // whether or not it was sealed, nothing of ours was granted
			return place{}, unavailable(err)
		}
	}
	return place{}, driver.Wrap(driver.ErrUnavailable, errors.New("the record changes faster than it can be read"))
}

// take creates the number after at. Sent is taken just before: the grant counts from
// there, and so does every judgement of others, at the earliest.
func (d *Driver) take(ctx context.Context, r driver.Request, h *hold, at place) (driver.Grant, error) {
	n, shift, err := d.next(at, r.Floor)
	if err != nil {
		return driver.Grant{}, err
	}
	rec := d.record(r, n, shift)
	sent := d.now()
	old, ok := h.trying(rec, sent)
	if !ok { // undone meanwhile
		return driver.Grant{}, driver.ErrLost
	}
	if old != nil {
		d.store.Drop(old)
	}
	v, err := d.store.Create(ctx, r.Key, n, rec)
	switch {
	case err == nil:
		h.made(n, v, sent)
		return d.check(ctx, r, h, sent)
	case errors.Is(err, ErrExist):
		return d.outrun(ctx, r, h, n)
	case definite(err):
		h.untried(n)
		return driver.Grant{}, unavailable(err)
	default:
		return driver.Grant{}, ambiguous(fmt.Errorf("create epoch %d: %w", n, err))
	}
}

// outrun reads the record that was there first. It may be an earlier send's of the
// same attempt, which arrived after all.
func (d *Driver) outrun(ctx context.Context, r driver.Request, h *hold, n uint64) (driver.Grant, error) {
	v, err := d.read(ctx, r.Key, n)
	if err == nil && v.Holder != r.Attempt || errors.Is(err, ErrNotExist) {
		h.untried(n) // the number is another's: no send of mine can have it, nor get it
	}
	switch {
	case errors.Is(err, ErrNotExist):
		return driver.Grant{}, errAgain
	case err != nil:
		return driver.Grant{}, unavailable(err)
	case v.Holder == r.Attempt && !v.Ended && !v.Broken && !v.Unheld && !h.isBarred(n):
		return d.adopt(ctx, r, h, &v)
	case v.Holder == r.Attempt:
		return driver.Grant{}, errAgain
	case !v.Ended && !d.lapsed(v):
		return driver.Grant{}, d.held(v)
	default:
		return driver.Grant{}, &outrunError{d.held(v)}
	}
}

// outrunError: the number went to somebody else, who no longer has it.
type outrunError struct{ winner *driver.HeldError }

func (e *outrunError) Error() string   { return errAgain.Error() }
func (e *outrunError) Unwrap() []error { return []error{errAgain, e.winner} }

// adopt accepts the record that an earlier send of this attempt made. Its time counts
// from that send, never from this one: Sent stays zero and the core's first send counts.
func (d *Driver) adopt(ctx context.Context, r driver.Request, h *hold, v *sight) (driver.Grant, error) {
	if !h.adopt(v) {
		return driver.Grant{}, driver.ErrLost
	}
	return d.check(ctx, r, h, driver.Instant{})
}

// check asks whether the number that was just taken is the newest. If it is not, it
// had been used and collected before this attempt created it again. Without an answer
// nothing is known and nothing is ended: a late end could hit a grant that the re-send
// has returned by then.
func (d *Driver) check(ctx context.Context, r driver.Request, h *hold, sent driver.Instant) (driver.Grant, error) {
	n, shift := h.number()
	newest, err := d.newest(ctx, r.Key, h)
	switch {
	case err != nil:
		return driver.Grant{}, ambiguous(fmt.Errorf("check epoch %d: %w", n, err))
	case newest != n:
		return driver.Grant{}, d.discard(ctx, r, h, newest > n)
	case !h.grant():
		return driver.Grant{}, driver.ErrLost
	}
	d.memory.holding(r.Key, n)
	d.collect(r.Key, n)
	return driver.Grant{Request: r, Token: d.token(n, shift), Sent: sent, Left: r.TTL, State: h}, nil
}

// discard gives back a number that had been used before. It only bars the number: the
// attempt may get another, which is another grant.
func (d *Driver) discard(ctx context.Context, r driver.Request, h *hold, newer bool) error {
	n, shift, v := h.bar()
	end := d.record(r, n, shift)
	end.Ending = Ending{Kind: Discarded, By: r.Owner}
	err := d.end(ctx, r.Key, n, v, end)
	d.store.Drop(v)
	if newer { // shown by the check: nobody will look at this number again
		d.background(func(ctx context.Context) { _ = d.store.Delete(ctx, r.Key, n) })
	}
	if err != nil && !definite(err) && !newer {
		return ambiguous(fmt.Errorf("discard epoch %d: %w", n, err))
	}
	return errAgain
}

// Renew makes the record young again. An answer counts only before the old deadline:
// after it a contender may have judged by what was there before the renewal.
func (d *Driver) Renew(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	if err := d.usable(g.Key); err != nil {
		return driver.Grant{}, err
	}
	h := d.holdOf(g)
	if h == nil {
		return driver.Grant{}, driver.ErrLost
	}
	w := written{sent: d.now()}
	b, ok := h.beat(w.sent)
	if !ok {
		return driver.Grant{}, driver.ErrLost
	}
	rec := d.record(b.request, b.n, b.shift)
	rec.Time, rec.Writer, rec.Renewals = b.time, b.writer, b.renewals
	var err error
	w.writer = b.writer
	if w.version, err = d.store.Beat(ctx, g.Key, b.n, b.version, rec); errors.Is(err, ErrChanged) {
		w, err = d.rediscover(ctx, g.Key, h, b)
	}
	switch {
	case err == nil:
	case errors.Is(err, ErrNotExist), errors.Is(err, driver.ErrLost):
		h.lose()
		return driver.Grant{}, driver.ErrLost
	case definite(err):
		return driver.Grant{}, unavailable(err)
	default:
		return driver.Grant{}, ambiguous(err)
	}
	if !h.renewed(d.now(), w) {
		return driver.Grant{}, driver.ErrLost
	}
	g.Request, g.Sent, g.Left, g.State = b.request, w.sent, b.request.TTL, h
	return g, nil
}

// rediscover finds out whether the record changed by one of this grant's own renewals,
// one whose answer was lost or that is under way beside this. It then counts, from its own
// send.
func (d *Driver) rediscover(ctx context.Context, key string, h *hold, b beat) (written, error) {
	v, err := d.read(ctx, key, b.n)
	if err != nil {
		return written{}, err
	}
	sent, own := h.wrote(v.Writer)
	if v.Holder != b.request.Attempt || v.Ended || v.Broken || !own || v.Writer == b.based {
		return written{}, driver.ErrLost
	}
	return written{v.Version, sent, v.Writer}, nil
}

// granted is a ttl as records keep it: in whole milliseconds, rounded up.
func granted(ttl time.Duration) time.Duration {
	if rest := ttl % time.Millisecond; rest > 0 {
		ttl += time.Millisecond - rest
	}
	return ttl
}
