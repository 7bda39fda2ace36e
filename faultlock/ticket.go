package faultlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fencelock/locker/driver"
)

// Listen is the operation listen. The ticket's Wait is the operation wait.
func (d *Driver) Listen(ctx context.Context, r driver.Request) (driver.Ticket, error) {
	if d.queuer == nil {
		return nil, driver.ErrUnsupported
	}
	inner, err := run(ctx, d, Listen, r.Key, func(ctx context.Context) (driver.Ticket, error) {
		return d.queuer.Listen(ctx, r)
	})
	if err != nil {
		return nil, err
	}
	return &ticket{Ticket: inner, driver: d, key: r.Key}, nil
}

// ticket decides once per push what becomes of it. It is used by one goroutine, as the
// contract says.
type ticket struct {
	driver.Ticket
	driver *Driver
	key    string

	plan *plan      // that decided about the next push. Nil: undecided
	next *injection // what it decided. Nil: nothing happens to it
	deaf time.Time  // nothing is heard before
	kept []kept     // pushes that are heard later
}

type kept struct {
	due   time.Time
	grant driver.Grant
}

// decide makes sure that the lot of the next push is drawn by the plan at work. A plan
// that was set while a Wait was running decides about the push that ends it.
func (t *ticket) decide(ctx context.Context) error {
	p, err := t.driver.enter(context.WithoutCancel(ctx)) // a push may come as ctx ends
	if err == nil && p != t.plan {
		t.plan, t.next = p, nil
		if p != nil {
			t.next = p.decide(Wait, t.key)
		}
	}
	return err
}

// take uses up the decision: what follows is another push.
func (t *ticket) take() *injection {
	in := t.next
	t.plan, t.next = nil, nil
	if in != nil {
		in.fire()
	}
	return in
}

// Wait waits for a push, with the faults of the operation wait.
func (t *ticket) Wait(ctx context.Context) (driver.Grant, error) {
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, err
	}
	if err := t.decide(ctx); err != nil {
		return driver.Grant{}, err
	}
	if t.next != nil {
		switch t.next.Rule.Fault {
		case Before:
			return driver.Grant{}, t.take().unavailable()
		case Hang:
			t.take()
			return driver.Grant{}, t.driver.silence(ctx)
		case Delay:
			// The push that is heard afterwards is the one this was decided about.
			t.next.fire()
			t.deaf, t.next = time.Now().Add(t.next.wait), nil
		}
	}
	if err := t.driver.pause(ctx, t.deaf); err != nil {
		return driver.Grant{}, err
	}
	for {
		if g, ok := t.overdue(); ok {
			return g, nil
		}
		g, err := t.hear(ctx)
		if errors.Is(err, errDue) {
			continue
		}
		if err != nil {
			return driver.Grant{}, err
		}
		if g, heard, err := t.pushed(ctx, g); heard || err != nil {
			return g, err
		}
	}
}

// errDue ends the wait for a fresh push: a kept one is due.
var errDue = errors.New("a push that was held back is due")

// hear waits for a push of the inner ticket, until a kept one is due.
func (t *ticket) hear(ctx context.Context) (driver.Grant, error) {
	if len(t.kept) == 0 {
		return t.Ticket.Wait(ctx)
	}
	until, cancel := context.WithDeadline(ctx, t.kept[0].due)
	defer cancel()
	g, err := t.Ticket.Wait(until)
	if err != nil && until.Err() != nil && ctx.Err() == nil {
		return driver.Grant{}, errDue
	}
	return g, err
}

// pushed decides what becomes of a push: heard now, later, never, or with an error.
func (t *ticket) pushed(ctx context.Context, g driver.Grant) (_ driver.Grant, heard bool, err error) {
	if err := t.decide(ctx); err != nil {
		return driver.Grant{}, false, err
	}
	in := t.take()
	if in == nil {
		return g, true, nil
	}
	switch in.Rule.Fault {
	case Before: // set while Wait was running, like Hang and Delay here
		t.keep(g, 0)
		return driver.Grant{}, false, in.unavailable()
	case Hang:
		t.keep(g, 0)
		return driver.Grant{}, false, t.driver.silence(ctx)
	case After:
		return driver.Grant{}, false, nil
	case HangBack:
		return driver.Grant{}, false, t.driver.silence(ctx)
	case Delay, DelayBack:
		t.keep(g, in.wait)
		return driver.Grant{}, false, nil
	case Dup:
		t.keep(g, in.wait)
	}
	return g, true, nil
}

// keep holds a push back.
func (t *ticket) keep(g driver.Grant, d time.Duration) {
	t.kept = append(t.kept, kept{time.Now().Add(d), g})
	slices.SortStableFunc(t.kept, func(a, b kept) int { return a.due.Compare(b.due) })
}

// overdue returns a push that was held back and is due now.
func (t *ticket) overdue() (driver.Grant, bool) {
	if len(t.kept) == 0 || time.Now().Before(t.kept[0].due) {
		return driver.Grant{}, false
	}
	g := t.kept[0].grant
	t.kept = t.kept[1:]
	return g, true
}
