package epoch

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/fencelock/locker/driver"
)

// unknown marks a duration or a count that the records do not tell.
const unknown = -1

// Inspect shows one key.
func (d *Driver) Inspect(ctx context.Context, key string) (driver.State, error) {
	if err := d.usable(key); err != nil {
		return driver.State{}, err
	}
	for range maxRounds {
		n, err := d.store.Newest(ctx, key)
		if err != nil {
			return driver.State{}, unavailable(err)
		}
		if n == 0 {
			return driver.State{Key: key, HeldFor: unknown, Waiters: unknown}, nil
		}
		// Not d.read: who only looks must not seem to have watched.
		v, err := d.store.Read(ctx, key, n, nil)
		switch {
		case errors.Is(err, ErrNotExist):
			continue
		case errors.Is(err, driver.ErrCorrupt):
			return driver.State{}, fmt.Errorf("%w (break it with Now and token %v)", err, d.token(n, 0))
		case err != nil:
			return driver.State{}, unavailable(err)
		}
		return d.state(key, sight{View: v, n: n}), nil
	}
	return driver.State{}, driver.Wrap(driver.ErrUnavailable, errors.New("the key changes faster than it can be read"))
}

func (d *Driver) state(key string, s sight) driver.State {
	st := driver.State{Key: key, Token: d.token(s.n, s.Shift), HeldFor: unknown, Waiters: unknown}
	if s.Ended || d.lapsed(s) {
		return st
	}
	st.Held, st.Broken, st.Attempt, st.Owner, st.Note = true, s.Broken, s.Holder, s.Owner, s.Note
	if s.Since > 0 {
		st.HeldFor = s.Since
	}
	st.ExpiresIn = max(d.expiresIn(s), time.Millisecond)
	return st
}

// List shows every held key with the prefix.
func (d *Driver) List(ctx context.Context, prefix string) iter.Seq2[driver.State, error] {
	return func(yield func(driver.State, error) bool) {
		if err := d.usable("-"); err != nil {
			yield(driver.State{}, err)
			return
		}
		for key, err := range d.store.Keys(ctx, prefix) {
			if err != nil {
				yield(driver.State{}, unavailable(err))
				return
			}
			st, err := d.Inspect(ctx, key)
			if errors.Is(err, driver.ErrCorrupt) {
				st, err = driver.State{Key: key, Held: true, Broken: true, HeldFor: unknown, ExpiresIn: unknown, Waiters: unknown}, nil
			}
			if err != nil {
				yield(driver.State{}, err)
				return
			}
			if st.Held && !yield(st, nil) {
				return
			}
		}
	}
}

// Break takes the record's right to be renewed, and with b.Now frees the key.
func (d *Driver) Break(ctx context.Context, key string, t driver.Token, b driver.Break) error {
	if err := d.usable(key); err != nil {
		return err
	}
	kind := Broken
	if b.Now {
		kind = BrokenNow
	}
	var end Record // as this call sent it last
	refused := false
	failed := func(err error) error {
		if refused { // what was sent may have been delivered twice, and applied before
			return ambiguous(err)
		}
		return unavailable(err)
	}
	for range maxRounds {
		n, err := d.store.Newest(ctx, key)
		if err != nil {
			return failed(err)
		}
		if n == 0 {
			return driver.ErrLost
		}
		v, err := d.store.Read(ctx, key, n, nil)
		s := sight{View: v, n: n}
		switch {
		case errors.Is(err, ErrNotExist):
			continue
		case errors.Is(err, driver.ErrCorrupt):
			if s, err = d.unreadable(ctx, key, n, v, t, b, err); err != nil {
				return err
			}
		case err != nil:
			return failed(err)
		case d.wrote(s, end): // it was delivered twice, and the second answer came
			return nil
		case v.Ended || d.lapsed(s):
			return driver.ErrLost
		case d.token(n, v.Shift) != t:
			return d.held(s)
		case v.Broken && !b.Now:
			return nil
		}
		end = s.Record
		end.Ending = Ending{Kind: kind, By: b.By, Reason: b.Reason}
		end = signed(key, n, end)
		err = d.store.End(ctx, key, n, v.Version, end)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrChanged), errors.Is(err, ErrNotExist): // look again
			refused = true
		case definite(err):
			return failed(err)
		default:
			return ambiguous(err)
		}
	}
	return failed(driver.Wrap(driver.ErrUnavailable, errors.New("the key changes faster than it can be broken")))
}

// unreadable makes up the record of a number whose own cannot be read. Only Now may
// end it: nobody can tell how long it would be valid. The shift, which only grows, is what
// the damaged record and the newest readable one below it show, so that tokens go on
// rising; where neither shows any they begin again behind a shift.
func (d *Driver) unreadable(ctx context.Context, key string, n uint64, v View, t driver.Token, b driver.Break, cause error) (sight, error) {
	if !b.Now {
		return sight{}, cause
	}
	if t != d.token(n, 0) {
		return sight{}, &driver.HeldError{Token: d.token(n, 0)}
	}
	v.Record = Record{Holder: driver.NewAttempt(), ValidityMS: 1, Shift: v.Shift}
	below, err := n, error(nil)
	for {
		if below, err = d.store.Below(ctx, key, below); err != nil {
			return sight{}, unavailable(err)
		}
		if below == 0 {
			break
		}
		w, err := d.store.Read(ctx, key, below, nil)
		if err != nil && !errors.Is(err, driver.ErrCorrupt) && !errors.Is(err, ErrNotExist) {
			return sight{}, unavailable(err)
		}
		v.Shift = max(v.Shift, w.Shift)
		if err == nil {
			break
		}
	}
	v.Token = d.token(n, v.Shift)
	return sight{View: v, n: n}, nil
}
