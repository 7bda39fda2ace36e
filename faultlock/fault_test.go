package faultlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/faultlock"
)

func TestBeforeSendsNothing(t *testing.T) {
	inBubble(t, "try#1=before", func(t *testing.T, w *world) {
		g, err := w.faulty.TryAcquire(w.ctx(), request("k"))
		w.unsent("try", err)
		equal(t, "grant", g, driver.Grant{})
		equal(t, "held", w.state("k").Held, false)
		w.passed(0)
		_, err = w.faulty.TryAcquire(w.ctx(), request("k"))
		w.ok("second try", err)
	})
}

func TestAfterAppliesAndLosesTheReply(t *testing.T) {
	inBubble(t, "try#1=after", func(t *testing.T, w *world) {
		r := request("k")
		g, err := w.faulty.TryAcquire(w.ctx(), r)
		w.lost("try", err)
		equal(t, "grant", g, driver.Grant{})
		equal(t, "holder", w.state("k").Attempt, r.Attempt)
		w.passed(0)
		g, err = w.faulty.TryAcquire(w.ctx(), r)
		w.ok("re-send", err)
		equal(t, "token", g.Token, 1)
	})
}

func TestAfterLosesRefusalsToo(t *testing.T) {
	inBubble(t, "try=after", func(_ *testing.T, w *world) {
		w.hold("k")
		_, err := w.faulty.TryAcquire(w.ctx(), request("k"))
		w.lost("try", err)
	})
}

func TestDelaySendsLater(t *testing.T) {
	inBubble(t, "renew=delay:1.5s", func(t *testing.T, w *world) {
		g := w.hold("k")
		_, err := w.faulty.Renew(w.ctx(), g)
		w.ok("renew", err)
		w.passed(1500 * time.Millisecond)
		equal(t, "ExpiresIn", w.state("k").ExpiresIn, ttl) // applied at the end of the delay
	})
}

func TestDelayBeyondTheContextDeliversLate(t *testing.T) {
	inBubble(t, "try=delay:3s", func(t *testing.T, w *world) {
		_, err := w.faulty.TryAcquire(w.ctx(), request("k"))
		w.lost("try", err)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("try: got %v, want it to be %v too", err, context.DeadlineExceeded)
		}
		w.passed(timeout)
		after(time.Second - 1)
		equal(t, "held before the delay's end", w.state("k").Held, false)
		after(1)
		synctest.Wait()
		equal(t, "held at its end", w.state("k").Held, true)
	})
}

func TestDelayBackAppliesAtOnceAndAnswersLater(t *testing.T) {
	inBubble(t, "renew=delayback:1.5s", func(t *testing.T, w *world) {
		g := w.hold("k")
		after(time.Second)
		_, err := w.faulty.Renew(w.ctx(), g)
		w.ok("renew", err)
		w.passed(2500 * time.Millisecond)
		equal(t, "ExpiresIn", w.state("k").ExpiresIn, ttl-1500*time.Millisecond)
	})
}

func TestDelayBackCountsFromTheAnswer(t *testing.T) {
	inBubble(t, "", func(_ *testing.T, w *world) {
		slow := faultlock.New(w.server.Driver(), 1, parse(t, "ping=delay:1s"))
		d := faultlock.New(slow, 1, parse(t, "ping=delayback:500ms"))
		w.ok("ping", d.Ping(w.ctx()))
		w.passed(1500 * time.Millisecond)
	})
}

func TestDelayBackBeyondTheContextIsALostReply(t *testing.T) {
	inBubble(t, "release=delayback:3s", func(t *testing.T, w *world) {
		g := w.hold("k")
		w.lost("release", w.faulty.Release(w.ctx(), g))
		w.passed(timeout)
		equal(t, "held", w.state("k").Held, false)
	})
}

func TestHangSendsNothingAndHearsNothing(t *testing.T) {
	inBubble(t, "release=hang", func(t *testing.T, w *world) {
		g := w.hold("k")
		w.lost("release", w.faulty.Release(w.ctx(), g))
		w.passed(timeout)
		after(2 * timeout)
		equal(t, "held", w.state("k").Held, true)
	})
}

func TestHangBackAppliesAndHearsNothing(t *testing.T) {
	inBubble(t, "try=hangback", func(t *testing.T, w *world) {
		applied := make(chan bool)
		go func() {
			synctest.Wait()
			applied <- w.state("k").Held
		}()
		_, err := w.faulty.TryAcquire(w.ctx(), request("k"))
		w.lost("try", err)
		w.passed(timeout)
		equal(t, "held while the reply was awaited", <-applied, true)
	})
}

func TestDupSendsTwiceAndReturnsTheFirstAnswer(t *testing.T) {
	inBubble(t, "release=dup", func(t *testing.T, w *world) {
		g := w.hold("k")
		counted := &counter{Driver: w.server.Driver()}
		d := faultlock.New(counted, 1, parse(t, "release=dup"))
		w.ok("release", d.Release(w.ctx(), g)) // the second answer is ErrLost
		equal(t, "releases sent", counted.releases, 2)
		w.ok("release", w.faulty.Release(w.ctx(), w.hold("k")))
		w.passed(0)
	})
}

// counter counts what reaches the inner driver.
type counter struct {
	driver.Driver
	releases int
}

func (c *counter) Release(ctx context.Context, g driver.Grant) error {
	c.releases++
	return c.Driver.Release(ctx, g)
}

func TestDupDeliversACopyLater(t *testing.T) {
	inBubble(t, "try=dup:5s", func(t *testing.T, w *world) {
		g, err := w.faulty.TryAcquire(w.ctx(), request("k"))
		w.ok("try", err)
		w.passed(0)
		w.ok("release", w.faulty.Release(w.ctx(), g))
		after(5*time.Second - 1)
		equal(t, "held before the copy", w.state("k").Held, false)
		after(1)
		synctest.Wait()
		equal(t, "holder after it", w.state("k").Attempt, g.Attempt)
		equal(t, "token after it", w.state("k").Token, 2)
	})
}

func TestCloseWaitsForCopiesUnderWay(t *testing.T) {
	inBubble(t, "try=dup:5s", func(t *testing.T, w *world) {
		g, err := w.faulty.TryAcquire(w.ctx(), request("k"))
		w.ok("try", err)
		w.ok("release", w.faulty.Release(w.ctx(), g))
		w.ok("Close", w.faulty.Close())
		w.passed(5 * time.Second)
		equal(t, "held", w.state("k").Held, true)
		_, err = w.faulty.TryAcquire(w.ctx(), request("k"))
		if !errors.Is(err, driver.ErrClosed) {
			t.Fatalf("try after Close: got %v, want %v", err, driver.ErrClosed)
		}
	})
}

func TestCloseEndsSilences(t *testing.T) {
	inBubble(t, "try=hang; release=hangback; renew=delay:1h; poll=delayback:1h; wait=hang", func(t *testing.T, w *world) {
		ctx := t.Context() // without a deadline
		g, r := w.hold("k"), request("k")
		ticket, err := w.faulty.Listen(ctx, r)
		w.ok("listen", err)
		errs := make(chan error)
		for _, call := range []func() error{
			func() error { _, err := w.faulty.TryAcquire(ctx, r); return err },
			func() error { return w.faulty.Release(ctx, g) },
			func() error { _, err := w.faulty.Renew(ctx, g); return err },
			func() error { _, err := w.faulty.Poll(ctx, r); return err },
		} {
			go func() { errs <- call() }()
		}
		waited := make(chan error)
		go func() {
			_, err := ticket.Wait(ctx)
			waited <- err
		}()
		synctest.Wait()
		w.ok("Close", w.faulty.Close())
		for range 4 {
			w.lost("call", <-errs)
		}
		if err := <-waited; !errors.Is(err, driver.ErrClosed) {
			t.Fatalf("Wait: got %v, want %v", err, driver.ErrClosed)
		}
		w.passed(0)
	})
}

func TestACallWithAnEndedContextIsNotCounted(t *testing.T) {
	inBubble(t, "try#1=after", func(_ *testing.T, w *world) {
		ended, cancel := context.WithCancel(w.ctx())
		cancel()
		_, err := w.faulty.TryAcquire(ended, request("k"))
		if errors.As(err, new(*faultlock.InjectedError)) {
			w.t.Fatalf("got %v, want the inner driver's own refusal", err)
		}
		_, err = w.faulty.TryAcquire(w.ctx(), request("k"))
		w.lost("first try", err)
	})
}

func TestOrdinalsCountPerOperationAndKey(t *testing.T) {
	inBubble(t, "renew#2=before", func(_ *testing.T, w *world) {
		a, b := w.hold("a"), w.hold("b")
		for _, g := range []driver.Grant{a, b} {
			_, err := w.faulty.Renew(w.ctx(), g)
			w.ok("first renewal", err)
		}
		for _, g := range []driver.Grant{a, b} {
			_, err := w.faulty.Renew(w.ctx(), g)
			w.unsent("second renewal", err)
			_, err = w.faulty.Renew(w.ctx(), g)
			w.ok("third renewal", err)
		}
	})
}

func TestKeyAndRangeAndTheFirstRuleThatMatches(t *testing.T) {
	inBubble(t, "renew[a]#2-3=after; renew#3-=before", func(_ *testing.T, w *world) {
		const sent, lost, unsent = "sent", "lost", "unsent"
		for key, want := range map[string][]string{
			"a": {sent, lost, lost, unsent, unsent},
			"b": {sent, sent, unsent, unsent, unsent},
		} {
			g := w.hold(key)
			for _, outcome := range want {
				_, err := w.faulty.Renew(w.ctx(), g)
				switch outcome {
				case sent:
					w.ok("renew", err)
				case lost:
					w.lost("renew", err)
				case unsent:
					w.unsent("renew", err)
				}
			}
		}
	})
}

func TestEnableAndSet(t *testing.T) {
	inBubble(t, "renew#1=before", func(t *testing.T, w *world) {
		g := w.hold("k")
		w.faulty.Enable(false)
		_, err := w.faulty.Renew(w.ctx(), g)
		w.ok("disabled", err)
		w.faulty.Enable(true)
		_, err = w.faulty.Renew(w.ctx(), g)
		w.unsent("first counted renewal", err)
		w.faulty.Set(parse(t, "renew#1=after"))
		equal(t, "fired", w.faulty.Fired()[0].Times, 0)
		_, err = w.faulty.Renew(w.ctx(), g)
		w.lost("first renewal of the second schedule", err)
		equal(t, "fired", w.faulty.Fired()[0].Times, 1)
		w.faulty.Set(nil)
		_, err = w.faulty.Renew(w.ctx(), g)
		w.ok("empty schedule", err)
	})
}

func TestDecisionsAreAFunctionOfTheSeed(t *testing.T) {
	inBubble(t, "", func(t *testing.T, w *world) {
		g := w.hold("k")
		outcomes := func(seed uint64, schedule string) string {
			d := faultlock.New(w.server.Driver(), seed, parse(t, schedule))
			var b strings.Builder
			for range 64 {
				if _, err := d.Renew(w.ctx(), g); err == nil {
					b.WriteByte('.')
				} else {
					b.WriteByte('x')
				}
			}
			return b.String()
		}
		first := outcomes(1, "renew%0.5=before")
		equal(t, "replay", outcomes(1, "renew%0.5=before"), first)
		if other := outcomes(2, "renew%0.5=before"); other == first {
			t.Fatalf("another seed: got the same decisions %s, want others", other)
		}
		// Rules draw by their position: two halves are three quarters, not a half.
		if both := outcomes(1, "renew%0.5=before;renew%0.5=after"); strings.Count(both, "x") <= strings.Count(first, "x") {
			t.Fatalf("two rules: got %s, want more faults than %s", both, first)
		}
	})
}

func TestProbabilityIsMet(t *testing.T) {
	inBubble(t, "ping%0.1=before", func(t *testing.T, w *world) {
		const calls = 10_000
		for range calls {
			_ = w.faulty.Ping(t.Context())
		}
		if got := w.faulty.Fired()[0].Times; got < calls/10*8/10 || got > calls/10*12/10 {
			t.Fatalf("fired: got %d of %d, want about a tenth", got, calls)
		}
	})
}

func TestADurationRangeIsDrawnPerCall(t *testing.T) {
	inBubble(t, "ping=delay:100ms-200ms", func(t *testing.T, w *world) {
		seen := map[time.Duration]bool{}
		for range 20 {
			start := time.Now()
			w.ok("ping", w.faulty.Ping(w.ctx()))
			d := time.Since(start)
			if d < 100*time.Millisecond || d > 200*time.Millisecond {
				t.Fatalf("delay: got %v, want 100ms to 200ms", d)
			}
			seen[d] = true
		}
		if len(seen) < 15 {
			t.Fatalf("delays: got %d different ones of 20, want nearly all", len(seen))
		}
	})
}

func TestLogSaysWhatFired(t *testing.T) {
	inBubble(t, "ping#2=before", func(t *testing.T, w *world) {
		w.ok("ping", w.faulty.Ping(w.ctx()))
		err := w.faulty.Ping(w.ctx())
		w.unsent("ping", err)
		log := w.faulty.Log()
		equal(t, "events", len(log), 1)
		equal(t, "event", log[0].String(), `ping "" #2: ping#2=before`)
		equal(t, "error", err.Error(), `unavailable: injected: ping "" #2: ping#2=before`)
	})
}
