package epoch

import (
	"context"
	"errors"

	"github.com/fencelock/locker/driver"
)

// Release ends the record. From here on the attempt is never adopted again, at any
// number: an unanswered end may still arrive.
func (d *Driver) Release(ctx context.Context, g driver.Grant) error {
	if err := d.usable(g.Key); err != nil {
		return err
	}
	g.TTL = granted(g.TTL)
	h, err := d.undo(g)
	if err != nil {
		return err
	}
	err = d.release(ctx, g.Request, h)
	if driver.IsAmbiguous(err) {
		return err
	}
	d.over(h)
	return err
}

func (d *Driver) release(ctx context.Context, r driver.Request, h *hold) error {
	u := h.undoing()
	if u.n == 0 { // nothing is remembered: only the newest record can be live
		var err error
		if u.n, err = d.store.Newest(ctx, r.Key); err != nil {
			return ambiguous(err)
		}
		if u.n == 0 {
			return driver.ErrLost
		}
	}
	holding := u.version != nil
	var end Record // as this call sent it last
	for range maxRounds {
		if u.version == nil {
			v, err := d.read(ctx, r.Key, u.n)
			switch {
			case errors.Is(err, ErrNotExist) && u.unanswered:
				again, err := d.tombstone(ctx, r, h, u)
				if again {
					continue
				}
				return err
			case errors.Is(err, ErrNotExist), errors.Is(err, driver.ErrCorrupt):
				return driver.ErrLost
			case err != nil:
				return ambiguous(err)
			case d.wrote(v, end): // it was delivered twice, and the second answer came
				d.freed(r.Key, u, v.Version)
				return nil
			case v.Holder != r.Attempt || v.Ended || v.Broken: // ended perhaps by an earlier send of this release: the core knows
				return driver.ErrLost
			case holding && v.Unheld: // a copy of what this grant holds
				return driver.ErrLost
			}
			u.version, u.shift = v.Version, v.Shift
		}
		end = d.record(r, u.n, u.shift)
		end.Ending = Ending{Kind: u.kind, By: r.Owner}
		err := d.store.End(ctx, r.Key, u.n, u.version, end)
		switch {
		case err == nil:
			d.freed(r.Key, u, u.version)
			return nil
		case errors.Is(err, ErrChanged):
			u.version = nil
		case errors.Is(err, ErrNotExist):
			return driver.ErrLost
		default: // not applied, or unknown: it stays ours to end
			return ambiguous(err)
		}
	}
	return ambiguous(errors.New("the record changes faster than it can be ended"))
}

// freed notes that a release has ended its record.
func (d *Driver) freed(key string, u undoing, v Version) {
	d.memory.release(key, place{n: u.n, shift: u.shift}, u.kind == Released)
	d.store.Drop(v)
}

// wrote reports whether a record has ended by this very write. Something between may
// deliver a write twice and pass the second answer on, which says that the record has
// changed. An end that an earlier call sent is no success of this one: by now the next
// grant may have been over.
func (d *Driver) wrote(v sight, end Record) bool {
	return v.Ended && !end.Writer.IsZero() && v.Writer == end.Writer
}

// tombstone undoes a create that has no answer and no record: it takes the number
// itself, ended from birth, so that the create, should it still be on its way, finds
// the number taken. It reports whether the number was taken meanwhile.
func (d *Driver) tombstone(ctx context.Context, r driver.Request, h *hold, u undoing) (again bool, err error) {
	rec := d.record(r, u.n, u.shift)
	rec.Ending = Ending{Kind: Undone, By: r.Owner}
	v, err := d.store.Create(ctx, r.Key, u.n, rec)
	switch {
	case errors.Is(err, ErrExist):
		return true, nil
	case err != nil:
		return false, ambiguous(err)
	}
	d.store.Drop(v)
	d.background(func(ctx context.Context) {
		if newest, err := d.store.Newest(ctx, r.Key); err == nil && newest > u.n {
			_ = d.store.Delete(ctx, r.Key, u.n)
		}
	})
	return false, nil
}
