package faultlock

import (
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/fencelock/locker/driver"
)

// Enqueue is the operation enqueue.
func (d *Driver) Enqueue(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if d.queuer == nil {
		return driver.Grant{}, driver.ErrUnsupported
	}
	return run(ctx, d, Enqueue, r.Key, func(ctx context.Context) (driver.Grant, error) {
		return d.queuer.Enqueue(ctx, r)
	})
}

// Poll is the operation poll.
func (d *Driver) Poll(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if d.queuer == nil {
		return driver.Grant{}, driver.ErrUnsupported
	}
	return run(ctx, d, Poll, r.Key, func(ctx context.Context) (driver.Grant, error) {
		return d.queuer.Poll(ctx, r)
	})
}

// RenewBatch is the operation renew for each of the grants. Those without a fault go
// to the inner driver together; each of the others goes alone, at its own time, so
// RenewBatch returns when the last of them has its answer or the context ends.
func (d *Driver) RenewBatch(ctx context.Context, gs []driver.Grant, each func(i int, g driver.Grant, err error)) error {
	if d.batch == nil {
		return driver.ErrUnsupported
	}
	p, err := d.enter(ctx)
	if err != nil {
		for i := range gs {
			each(i, driver.Grant{}, err)
		}
		return nil
	}
	if p == nil {
		return d.batch.RenewBatch(ctx, gs, each)
	}

	var (
		mu          sync.Mutex
		unsupported error
		wg          sync.WaitGroup
		sound       []driver.Grant
		at          []int // where each sound one is in gs
	)
	answer := func(i int, g driver.Grant, err error) {
		mu.Lock()
		defer mu.Unlock()
		each(i, g, err)
	}
	for i, g := range gs {
		in := p.decide(Renew, g.Key)
		if in == nil {
			sound, at = append(sound, g), append(at, i)
			continue
		}
		in.fire()
		wg.Go(func() {
			renewed, err := inject(ctx, d, in, d.renewAlone(g))
			if errors.Is(err, driver.ErrUnsupported) {
				mu.Lock()
				defer mu.Unlock()
				unsupported = driver.ErrUnsupported
				return
			}
			answer(i, renewed, err)
		})
	}
	if len(sound) > 0 {
		err := d.batch.RenewBatch(ctx, sound, func(i int, g driver.Grant, err error) { answer(at[i], g, err) })
		if err != nil {
			mu.Lock()
			unsupported = err
			mu.Unlock()
		}
	}
	wg.Wait()
	return unsupported
}

// renewAlone is a batch of one.
func (d *Driver) renewAlone(g driver.Grant) request[driver.Grant] {
	return func(ctx context.Context) (driver.Grant, error) {
		var renewed driver.Grant
		err := driver.ErrAmbiguous // without a call of each
		sent := d.batch.RenewBatch(ctx, []driver.Grant{g}, func(_ int, g driver.Grant, e error) {
			renewed, err = g, e
		})
		if sent != nil {
			return driver.Grant{}, sent
		}
		return renewed, err
	}
}

// Inspect is the operation inspect.
func (d *Driver) Inspect(ctx context.Context, key string) (driver.State, error) {
	if d.looker == nil {
		return driver.State{}, driver.ErrUnsupported
	}
	return run(ctx, d, Inspect, key, func(ctx context.Context) (driver.State, error) {
		return d.looker.Inspect(ctx, key)
	})
}

// List is the operation list, with the prefix as its key. It is one call, made when
// the result is ranged over: with a fault the whole list is read before the first
// state is yielded, and a lost reply loses all of it.
func (d *Driver) List(ctx context.Context, prefix string) iter.Seq2[driver.State, error] {
	return func(yield func(driver.State, error) bool) {
		if d.looker == nil {
			yield(driver.State{}, driver.ErrUnsupported)
			return
		}
		p, err := d.enter(ctx)
		if err != nil {
			yield(driver.State{}, err)
			return
		}
		var in *injection
		if p != nil {
			in = p.decide(List, prefix)
		}
		if in == nil {
			d.looker.List(ctx, prefix)(yield)
			return
		}
		in.fire()
		states, err := inject(ctx, d, in, func(ctx context.Context) ([]driver.State, error) {
			return collect(d.looker.List(ctx, prefix))
		})
		for _, st := range states {
			if !yield(st, nil) {
				return
			}
		}
		if err != nil {
			yield(driver.State{}, err)
		}
	}
}

// collect reads a list to its end or to its error.
func collect(list iter.Seq2[driver.State, error]) ([]driver.State, error) {
	var states []driver.State
	for st, err := range list {
		if err != nil {
			return states, err
		}
		states = append(states, st)
	}
	return states, nil
}

// Break is the operation break.
func (d *Driver) Break(ctx context.Context, key string, t driver.Token, b driver.Break) error {
	if d.breaker == nil {
		return driver.ErrUnsupported
	}
	return runError(ctx, d, Break, key, func(ctx context.Context) error {
		return d.breaker.Break(ctx, key, t, b)
	})
}

// Ping is the operation ping, with the empty key.
func (d *Driver) Ping(ctx context.Context) error {
	if d.pinger == nil {
		return driver.ErrUnsupported
	}
	return runError(ctx, d, Ping, "", d.pinger.Ping)
}
