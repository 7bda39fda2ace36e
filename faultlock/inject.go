package faultlock

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/locker/driver"
)

// lateTimeout is what a late delivery gets whose caller had no deadline: the most that
// the core ever gives a call.
const lateTimeout = 5 * time.Second

// request is one call of the inner driver, ready to be sent any number of times.
type request[T any] func(context.Context) (T, error)

// run makes the call with the fault that is its lot.
func run[T any](ctx context.Context, d *Driver, op Op, key string, send request[T]) (T, error) {
	var none T
	p, err := d.enter(ctx)
	if err != nil {
		return none, err
	}
	if p == nil {
		return send(ctx)
	}
	in := p.decide(op, key)
	if in == nil {
		return send(ctx)
	}
	in.fire()
	return inject(ctx, d, in, send)
}

// runError is run for calls that answer nothing but an error.
func runError(ctx context.Context, d *Driver, op Op, key string, send func(context.Context) error) error {
	_, err := run(ctx, d, op, key, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, send(ctx)
	})
	return err
}

// inject is where the faults are: one request, one fault.
func inject[T any](ctx context.Context, d *Driver, in *injection, send request[T]) (T, error) {
	var none T
	copied := late[T]{ctx: ctx, due: time.Now().Add(in.wait), allowed: allowance(ctx), send: send}
	switch in.Rule.Fault {
	case Before:
		return none, in.unavailable()
	case Hang:
		return none, in.ambiguous(d.silence(ctx))
	case Delay:
		if ended := d.pause(ctx, copied.due); ended != nil {
			copied.deliver(d)
			return none, in.ambiguous(ended)
		}
		return send(ctx)
	case Dup:
		return twice(ctx, d, in, copied)
	}

	// The others lose or delay the reply. What was not sent has none.
	answer, err := send(ctx)
	if errors.Is(err, driver.ErrUnsupported) || errors.Is(err, driver.ErrClosed) {
		return answer, err
	}
	var ended error
	switch in.Rule.Fault {
	case After:
	case HangBack:
		ended = d.silence(ctx)
	case DelayBack:
		if ended = d.pause(ctx, time.Now().Add(in.wait)); ended == nil {
			return answer, err
		}
	default: // Parse knows no other
		return answer, err
	}
	drop(answer, err)
	return none, in.ambiguous(ended)
}

// twice sends the request and a copy of it, and returns the first answer.
func twice[T any](ctx context.Context, d *Driver, in *injection, copied late[T]) (T, error) {
	if in.wait > 0 {
		copied.deliver(d)
		return copied.send(ctx)
	}
	answer, err := copied.send(ctx)
	if ctx.Err() != nil {
		copied.deliver(d)
	} else {
		drop(copied.send(ctx))
	}
	return answer, err
}

// late is a request that the network still has.
type late[T any] struct {
	ctx     context.Context // the caller's, for its values
	due     time.Time
	allowed time.Duration // how long the call may take then
	send    request[T]
}

// allowance is the time that the caller gave the call.
func allowance(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return max(time.Until(deadline), 0)
	}
	return lateTimeout
}

// deliver sends the request when it is due, in the background, and drops the answer.
// The deliveries belong to Close, which waits for them.
func (l late[T]) deliver(d *Driver) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed { // Close waits already, and would not wait for this one
		return
	}
	d.inFlight.Go(func() {
		<-time.After(time.Until(l.due))
		ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), l.allowed)
		defer cancel()
		drop(l.send(ctx))
	})
}

// drop lets go of an answer that nobody gets. Only a ticket holds anything.
func drop[T any](answer T, err error) {
	if t, ok := any(answer).(driver.Ticket); ok && err == nil {
		t.Close()
	}
}

// pause waits until the moment. An error says what ended it before.
func (d *Driver) pause(ctx context.Context, until time.Time) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !time.Now().Before(until) {
		return nil
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-d.closing:
		return driver.ErrClosed
	}
}

// silence waits for the context's end, or for Close, and returns which it was.
func (d *Driver) silence(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-d.closing:
		return driver.ErrClosed
	}
}

// InjectedError is beside the sentinel in every error that a fault made: errors.As
// tells an injected failure from a real one.
type InjectedError struct {
	Event
	// Err is what ended a delay or a silence: the context's error, or ErrClosed. Nil
	// for the other faults.
	Err error
}

// Error reads: injected: try "k" #1: try#1=after.
func (e *InjectedError) Error() string {
	s := "injected: " + e.String()
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns Err.
func (e *InjectedError) Unwrap() error { return e.Err }

func (in *injection) unavailable() error {
	return driver.Wrap(driver.ErrUnavailable, &InjectedError{Event: in.Event})
}

func (in *injection) ambiguous(ended error) error {
	return driver.Wrap(driver.ErrAmbiguous, &InjectedError{Event: in.Event, Err: ended})
}
