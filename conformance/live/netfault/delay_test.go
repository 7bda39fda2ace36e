package netfault_test

import (
	"slices"
	"testing"
	"time"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/conformance/live/netfault"
)

// Each direction is as late as it was told.
func TestDelayOfEachDirection(t *testing.T) {
	const there, back = 150 * time.Millisecond, 40 * time.Millisecond
	for _, c := range []struct{ there, back time.Duration }{{there, 0}, {0, back}, {there, back}} {
		virtual(t, func(t *testing.T) {
			l := virtualLine(t, nil)
			l.Apply(netfault.Faults{Requests: netfault.Harm{Delay: c.there}, Replies: netfault.Harm{Delay: c.back}})
			if there, back := lateness(l.dial(), l.server); there != c.there || back != c.back {
				t.Errorf("got %v there and %v back, want %v and %v", there, back, c.there, c.back)
			}
		})
	}
}

// lateness is how long a request and its reply take.
func lateness(c *client, s *lines) (there, back time.Duration) {
	c.t.Helper()
	begun := time.Now()
	c.works("x\n")
	arrived := s.arrived()
	at := arrived[len(arrived)-1].at
	return at.Sub(begun), time.Since(at)
}

// latenesses are those of turns on two connections, for a seed.
func latenesses(t *testing.T, seed uint64, f netfault.Faults) (there, back [2][]time.Duration) {
	t.Helper()
	virtual(t, func(t *testing.T) {
		l := virtualLine(t, &netfault.Options{Seed: seed})
		l.Apply(f)
		for i := range there {
			c := l.dial()
			for range 100 {
				request, reply := lateness(c, l.server)
				there[i], back[i] = append(there[i], request), append(back[i], reply)
			}
		}
	})
	return there, back
}

// Jitter is between its bounds, uses them, and differs from turn to turn, from direction to
// direction, from connection to connection and from seed to seed, but not from run to run.
func TestJitter(t *testing.T) {
	const least, more = 20 * time.Millisecond, 30 * time.Millisecond
	h := netfault.Harm{Delay: least, Jitter: more}
	f := netfault.Faults{Requests: h, Replies: h}
	there, back := latenesses(t, 7, f)
	for _, all := range [][]time.Duration{there[0], back[0], there[1], back[1]} {
		shortest, longest := slices.Min(all), slices.Max(all)
		if shortest < least || shortest > least+more/10 || longest > least+more || longest < least+more*9/10 {
			t.Errorf("from %v to %v, want %v to %v", shortest, longest, least, least+more)
		}
	}
	again, andBack := latenesses(t, 7, f)
	other, _ := latenesses(t, 8, f)
	for _, c := range []struct {
		what string
		a, b []time.Duration
		same bool
	}{
		{"the same seed, requests", there[0], again[0], true},
		{"the same seed, replies", back[1], andBack[1], true},
		{"another seed", there[0], other[0], false},
		{"another connection", there[0], there[1], false},
		{"the other direction", there[0], back[0], false},
	} {
		if slices.Equal(c.a, c.b) != c.same {
			t.Errorf("%s: the same delays: got %v, want %v", c.what, !c.same, c.same)
		}
	}
}

// The suite's Delays are from nothing to d, both ways.
func TestDelaysOfTheSuite(t *testing.T) {
	const d = 30 * time.Millisecond
	there, back := latenesses(t, 7, netfault.Of(conformance.Delays, d))
	for _, all := range [][]time.Duration{there[0], back[0]} {
		if shortest, longest := slices.Min(all), slices.Max(all); shortest > d/10 || longest > d || longest < d*9/10 {
			t.Errorf("from %v to %v, want nothing to %v", shortest, longest, d)
		}
	}
}

// What comes behind bytes that are held does not overtake them, though it is not late itself.
func TestDelayKeepsOrder(t *testing.T) {
	virtual(t, func(t *testing.T) {
		l := virtualLine(t, nil)
		l.Apply(netfault.Faults{Requests: netfault.Harm{Delay: time.Second}})
		c := l.dial()
		begun := time.Now()
		c.send("late\n")
		after(0)
		l.Set(conformance.Sound, 0)
		c.send("next\n")
		after(time.Minute)
		equal(t, "the server", l.server.lines(), []string{"late\n", "next\n"})
		for _, g := range l.server.arrived() {
			if got := g.at.Sub(begun); got != time.Second {
				t.Errorf("%q took %v, want 1s", g.line, got)
			}
		}
	})
}

// A request that is under way arrives although its client has gone.
func TestLateRequestOutlivesItsClient(t *testing.T) {
	s := serve(t)
	p := proxy(t, s.target(), nil)
	p.Apply(netfault.Faults{Requests: netfault.Harm{Delay: 200 * time.Millisecond}})
	c := dial(t, p)
	if _, err := c.Write([]byte("late\n")); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	p.Set(conformance.Sound, 0)
	eventually(t, "it arrives", func() bool { return s.count("late\n") == 1 })
}
