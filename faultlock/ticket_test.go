package faultlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/faultlock"
	"github.com/fencelock/locker/memlock"
)

// waiter is an attempt in the queue, with its ear.
type waiter struct {
	*world
	driver.Request
	ticket driver.Ticket
}

// queue takes a place behind the holder.
func (w *world) queue(key string) *waiter {
	w.t.Helper()
	r := request(key)
	ticket, err := w.faulty.Listen(w.ctx(), r)
	w.ok("listen", err)
	w.t.Cleanup(ticket.Close)
	if _, err := w.faulty.Enqueue(w.ctx(), r); !errors.Is(err, driver.ErrHeld) {
		w.t.Fatalf("enqueue: got %v, want %v", err, driver.ErrHeld)
	}
	return &waiter{w, r, ticket}
}

func (w *waiter) hears(token driver.Token) {
	w.t.Helper()
	g, err := w.ticket.Wait(w.ctx())
	w.ok("Wait", err)
	equal(w.t, "token", g.Token, token)
	equal(w.t, "attempt", g.Attempt, w.Attempt)
}

// hearsNothing waits until its context ends, a timeout later.
func (w *waiter) hearsNothing() {
	w.t.Helper()
	start := time.Now()
	g, err := w.ticket.Wait(w.ctx())
	if !errors.Is(err, context.DeadlineExceeded) {
		w.t.Fatalf("Wait: got %v, %v, want %v", g, err, context.DeadlineExceeded)
	}
	equal(w.t, "waited", time.Since(start), timeout)
}

// granted checks that a poll knows of the grant.
func (w *waiter) granted() {
	w.t.Helper()
	_, err := w.faulty.Poll(w.ctx(), w.Request)
	w.ok("poll", err)
}

func TestWaitWithoutAFaultHearsThePush(t *testing.T) {
	inBubble(t, "wait#2=before", func(_ *testing.T, w *world) {
		g := w.hold("k")
		q := w.queue("k")
		q.hearsNothing() // does not use up the first ordinal
		w.ok("release", w.sound.Release(w.ctx(), g))
		q.hears(2)
		_, err := q.ticket.Wait(w.ctx())
		w.unsent("second Wait", err)
	})
}

func TestWaitBeforeFailsAndKeepsThePush(t *testing.T) {
	inBubble(t, "wait#1=before", func(_ *testing.T, w *world) {
		g := w.hold("k")
		q := w.queue("k")
		w.ok("release", w.sound.Release(w.ctx(), g))
		_, err := q.ticket.Wait(w.ctx())
		w.unsent("Wait", err)
		w.passed(0)
		q.hears(2)
	})
}

func TestWaitAfterSwallowsAPush(t *testing.T) {
	inBubble(t, "wait#1=after", func(t *testing.T, w *world) {
		g := w.hold("k")
		q := w.queue("k")
		q.hearsNothing()
		w.ok("release", w.sound.Release(w.ctx(), g))
		q.hearsNothing()
		equal(t, "fired", w.faulty.Fired()[0].Times, 1)
		q.granted()
		// The next push is heard again.
		w.ok("release", w.sound.Release(w.ctx(), driver.Grant{Request: q.Request}))
		g = w.hold("k")
		if _, err := w.faulty.Enqueue(w.ctx(), q.Request); !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("enqueue: got %v, want %v", err, driver.ErrHeld)
		}
		w.ok("release", w.sound.Release(w.ctx(), g))
		q.hears(4)
	})
}

func TestWaitDelayIsDeafForAWhile(t *testing.T) {
	inBubble(t, "wait=delay:3s", func(_ *testing.T, w *world) {
		g := w.hold("k")
		q := w.queue("k")
		w.ok("release", w.sound.Release(w.ctx(), g))
		q.hearsNothing()
		q.hears(2)
		w.passed(3 * time.Second)
	})
}

func TestWaitDelayBackBringsThePushLater(t *testing.T) {
	inBubble(t, "wait#1=delayback:3s", func(_ *testing.T, w *world) {
		g := w.hold("k")
		q := w.queue("k")
		w.ok("release", w.sound.Release(w.ctx(), g))
		q.hearsNothing()
		q.granted() // a poll is answered meanwhile
		q.hears(2)
		w.passed(3 * time.Second)
	})
}

func TestAFreshPushOvertakesOneHeldBack(t *testing.T) {
	inBubble(t, "wait#1=delayback:5s", func(t *testing.T, w *world) {
		g := w.hold("k")
		q := w.queue("k")
		w.ok("release", w.sound.Release(w.ctx(), g))
		q.hearsNothing()
		w.ok("release", w.sound.Release(w.ctx(), driver.Grant{Request: q.Request}))
		g = w.hold("k")
		_, err := w.faulty.Enqueue(w.ctx(), q.Request)
		if !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("enqueue: got %v, want %v", err, driver.ErrHeld)
		}
		w.ok("release", w.sound.Release(w.ctx(), g))
		q.hears(4)
		w.passed(timeout)
		q.hearsNothing()
		q.hears(2)
		w.passed(5 * time.Second)
	})
}

func TestWaitHangIsDeafUntilItsContextEnds(t *testing.T) {
	inBubble(t, "wait#1=hang", func(_ *testing.T, w *world) {
		g := w.hold("k")
		q := w.queue("k")
		w.ok("release", w.sound.Release(w.ctx(), g))
		q.hearsNothing()
		q.hears(2)
	})
}

func TestWaitHangBackSwallowsAndIsDeaf(t *testing.T) {
	inBubble(t, "wait#1=hangback", func(_ *testing.T, w *world) {
		g := w.hold("k")
		q := w.queue("k")
		w.ok("release", w.sound.Release(w.ctx(), g))
		q.hearsNothing()
		q.hearsNothing()
	})
}

func TestWaitDupBringsThePushTwice(t *testing.T) {
	inBubble(t, "wait[a]=dup;wait[b]=dup:1s", func(_ *testing.T, w *world) {
		a, b := w.hold("a"), w.hold("b")
		qa, qb := w.queue("a"), w.queue("b")
		w.ok("release", w.sound.Release(w.ctx(), a))
		w.ok("release", w.sound.Release(w.ctx(), b))
		qa.hears(2)
		qa.hears(2)
		qb.hears(2)
		w.passed(0)
		qb.hears(2)
		w.passed(time.Second)
		qa.hearsNothing()
	})
}

// A schedule that is set while a Wait is running decides about the push that ends it.
func TestSetReachesARunningWait(t *testing.T) {
	for rule, want := range map[string]struct {
		err   error
		after time.Duration
		next  bool // whether the next Wait hears the push
	}{
		"wait=after":          {context.DeadlineExceeded, timeout, false},
		"wait#1=before":       {driver.ErrUnavailable, 0, true},
		"wait#1=hang":         {context.DeadlineExceeded, timeout, true},
		"wait#1=hangback":     {context.DeadlineExceeded, timeout, false},
		"wait=delay:1s":       {nil, time.Second, false},
		"wait#1=delayback:1s": {nil, time.Second, false},
	} {
		t.Run(rule, func(t *testing.T) {
			inBubble(t, "", func(t *testing.T, w *world) {
				g := w.hold("k")
				q := w.queue("k")
				done := make(chan error)
				go func() {
					_, err := q.ticket.Wait(w.ctx())
					done <- err
				}()
				synctest.Wait()
				w.faulty.Set(parse(t, rule))
				w.ok("release", w.sound.Release(w.ctx(), g))
				if err := <-done; !errors.Is(err, want.err) {
					t.Fatalf("Wait: got %v, want %v", err, want.err)
				}
				w.passed(want.after)
				if want.next {
					q.hears(2)
				} else {
					q.hearsNothing()
				}
			})
		})
	}
}

func TestWaitWhileDisabled(t *testing.T) {
	inBubble(t, "", func(t *testing.T, w *world) {
		w.faulty.Set(parse(t, "wait=after"))
		g := w.hold("k")
		q := w.queue("k")
		q.hearsNothing() // decided, not yet fired
		w.faulty.Enable(false)
		w.ok("release", w.sound.Release(w.ctx(), g))
		q.hears(2)
		w.faulty.Set(nil)
	})
}

// The inner ear's own failure comes through.
func TestWaitErrorsOfTheInnerTicket(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := memlock.NewServer().Driver()
		d := faultlock.New(inner, 1, parse(t, "wait=after"))
		ticket, err := d.Listen(t.Context(), request("k"))
		equal(t, "Listen", err, nil)
		equal(t, "Close", inner.Close(), nil)
		if _, err := ticket.Wait(t.Context()); !errors.Is(err, driver.ErrClosed) {
			t.Fatalf("Wait: got %v, want %v", err, driver.ErrClosed)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := ticket.Wait(ended); !errors.Is(err, context.Canceled) {
			t.Fatalf("Wait: got %v, want %v", err, context.Canceled)
		}
	})
}

// script is a backend whose ear hears what the test says.
type script struct {
	*memlock.Driver
	pushes []push
}

// push is heard after a while. Sticky ones come even if the context has ended.
type push struct {
	after  time.Duration
	token  driver.Token
	sticky bool
}

type scriptEar struct{ *script }

func (s *script) Listen(context.Context, driver.Request) (driver.Ticket, error) {
	return scriptEar{s}, nil
}

func (scriptEar) Close() {}

func (s scriptEar) Wait(ctx context.Context) (driver.Grant, error) {
	if len(s.pushes) == 0 {
		<-ctx.Done()
		return driver.Grant{}, ctx.Err()
	}
	next := s.pushes[0]
	if next.sticky {
		<-ctx.Done()
	}
	select {
	case <-time.After(next.after):
		s.pushes = s.pushes[1:]
		return driver.Grant{Token: next.token}, nil
	case <-ctx.Done():
		if next.sticky {
			s.pushes = s.pushes[1:]
			return driver.Grant{Token: next.token}, nil
		}
		return driver.Grant{}, ctx.Err()
	}
}

func TestHeldBackPushesComeInTheOrderTheyAreDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		s := &script{Driver: memlock.NewServer().Driver(), pushes: []push{{0, 1, false}, {0, 2, false}, {0, 3, false}}}
		d := faultlock.New(s, 1, parse(t, "wait#1=dup:5s;wait#2=delayback:3s;wait#3=delayback:1s"))
		ticket, err := d.Listen(t.Context(), request("k"))
		equal(t, "Listen", err, nil)
		for _, want := range []struct {
			at    time.Duration
			token driver.Token
		}{{0, 1}, {time.Second, 3}, {3 * time.Second, 2}, {5 * time.Second, 1}} {
			g, err := ticket.Wait(t.Context())
			equal(t, "error", err, nil)
			equal(t, "token", g.Token, want.token)
			equal(t, "heard at", time.Since(start), want.at)
		}
	})
}

func TestAPushThatComesAsTheContextEndsHasItsFault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{Driver: memlock.NewServer().Driver(), pushes: []push{{time.Hour, 1, true}}}
		d := faultlock.New(s, 1, parse(t, "wait=after"))
		ticket, err := d.Listen(t.Context(), request("k"))
		equal(t, "Listen", err, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if g, err := ticket.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Wait: got %v, %v, want %v", g, err, context.DeadlineExceeded)
		}
		equal(t, "fired", d.Fired()[0].Times, 1)
	})
}
