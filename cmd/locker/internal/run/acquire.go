package run

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/cmd/locker/internal/job"
	"github.com/fencelock/locker/cmd/locker/internal/target"
)

// interruptedError ends a wait because of a signal.
type interruptedError struct{ signal os.Signal }

func (e interruptedError) Error() string { return "interrupted: " + e.signal.String() }

// waitedError is the failure of a wait that has had its time.
type waitedError struct{ error }

func (e waitedError) Unwrap() error { return e.error }

// errNested: the key is held by a command that this one runs in.
var errNested = errors.New("this command runs under that very lock and would wait for itself")

// acquire opens the backend and gets the key. Signals that would end this process end the
// wait instead, so that nothing is left behind; a second one does not wait for that.
func (r *runner) acquire() (*locker.Lease, error) {
	ctx, cancel := context.WithCancel(context.Background())
	var (
		got  os.Signal
		quit = make(chan struct{})
		done = make(chan struct{})
	)
	go func() {
		defer close(done)
		for {
			select {
			case s := <-r.signals:
				switch {
				case !job.Ends(s):
				case got != nil:
					os.Exit(job.Interrupted(s))
				default:
					got = s
					cancel()
				}
			case <-quit:
				return
			}
		}
	}()
	lease, err := r.open(ctx)
	if err != nil && ctx.Err() != nil {
		r.close() // undoes what is under way, still interruptible
	}
	close(quit)
	<-done
	cancel()
	if got == nil {
		return lease, err
	}
	if lease != nil {
		r.release(lease)
	}
	return nil, interruptedError{got}
}

func (r *runner) open(ctx context.Context) (*locker.Lease, error) {
	c := &r.Config
	o := &locker.Options{TTL: c.ttl(), Owner: c.Owner}
	if c.Verbose {
		o.OnEvent = r.heard
	}
	// Half a millisecond, as each signal is a hand-over to the runtime's signal thread.
	// Until it is done a signal just ends this process, which has nothing yet.
	caught := make(chan struct{})
	go func() {
		defer close(caught)
		job.Catch(r.signals)
	}()
	l, err := c.Target.Open(ctx, o)
	<-caught
	if err != nil {
		return nil, err
	}
	r.locker = l
	if h := nested(ctx, l, c.Key); h != nil {
		return nil, fmt.Errorf("%q is %w: %w", c.Key, h, errNested)
	}
	opts := []locker.AcquireOption{locker.WithNote(c.note())}
	if c.NonBlock || c.Wait == 0 {
		return l.TryAcquire(ctx, c.Key, opts...)
	}
	ctx, cancel := c.bound(ctx)
	defer cancel()
	lease, err := l.Acquire(ctx, c.Key, opts...)
	// Requests have deadlines, too: that of the wait must have passed.
	if errors.Is(err, context.DeadlineExceeded) && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = waitedError{err}
	}
	return lease, err
}

// heard tells with -v what happens to the lease.
func (r *runner) heard(e locker.Event) {
	switch e.Kind {
	case locker.EventRefused:
		r.voice.detail("waiting: %v", e.Err)
	case locker.EventRenewFailed, locker.EventReleaseFailed, locker.EventUndoFailed:
		r.voice.detail("%v: %v", e.Kind, e.Err)
	}
}

// refused turns an acquire that failed into what the caller sees.
func (r *runner) refused(err error) int {
	c, res := &r.Config, &r.result
	res.Error = target.Plain(err).Error()
	conflict := func(o Outcome, code int) int {
		res.Outcome = o
		if c.Conflict >= 0 {
			code = c.Conflict
		}
		if code == 0 { // "that is fine" was said beforehand
			r.voice.detail("%v", err)
		} else {
			r.voice.say("%v", err)
		}
		return code
	}
	var (
		interrupted interruptedError
		waited      waitedError
	)
	switch {
	case errors.As(err, &interrupted):
		res.Outcome = Interrupted
		r.voice.detail("%v", err)
		return job.Interrupted(interrupted.signal)
	case errors.As(err, &waited):
		return conflict(TimedOut, CodeTimeout)
	case errors.Is(err, locker.ErrHeld):
		return conflict(Held, CodeHeld)
	}
	r.voice.say("%v", err)
	return CodeFailed
}
