package cli

import (
	"context"
	"errors"
	"iter"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/cmd/locker/internal/target"
)

// view is a backend for a command that only looks or breaks. A place that nobody has used
// yet is not made: there everything is free.
type view struct {
	place  target.Target
	locker *locker.Locker // nil: nobody has used it yet
}

func (p *place) look(ctx context.Context) (*view, error) {
	t, err := p.choose()
	if err != nil {
		return nil, err
	}
	if t.Unasked {
		say(p.json, "", errors.New(target.Warning))
	}
	v := &view{place: t}
	if err := v.open(ctx); err != nil {
		return nil, err
	}
	return v, nil
}

// open opens the backend if it is there by now.
func (v *view) open(ctx context.Context) error {
	if v.locker != nil {
		return nil
	}
	used, err := v.place.Used()
	if used {
		v.locker, err = v.place.Open(ctx, nil)
	}
	return err
}

func (v *view) close() error {
	if v.locker == nil {
		return nil
	}
	return v.locker.Close()
}

// unused is what a person may want to know about "free".
func (v *view) unused() error {
	if v.locker != nil {
		return nil
	}
	return errors.New("nobody has locked anything in " + v.place.String() + " yet")
}

func (v *view) inspect(ctx context.Context, key string) (locker.State, error) {
	if err := v.open(ctx); err != nil || v.locker == nil {
		return locker.State{Key: key, Waiters: -1}, err
	}
	return v.locker.Inspect(ctx, key)
}

func (v *view) list(ctx context.Context, prefix string) iter.Seq2[locker.State, error] {
	if v.locker == nil {
		return func(func(locker.State, error) bool) {}
	}
	return v.locker.List(ctx, prefix)
}

func (v *view) breakLock(ctx context.Context, key string, t locker.Token, b locker.Break) error {
	if v.locker == nil {
		return locker.ErrLost // as where it is free
	}
	return v.locker.Break(ctx, key, t, b)
}
