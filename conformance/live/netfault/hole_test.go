package netfault_test

import (
	"testing"
	"time"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/conformance/live/netfault"
)

func TestBlackHoleIsSilent(t *testing.T) {
	s := serve(t)
	p := proxy(t, s.target(), nil)
	old := dial(t, p)
	old.works("before\n")
	p.Set(conformance.BlackHole, 0)
	old.unheard(p, "swallowed\n", 1)
	fresh := dial(t, p)
	fresh.unheard(p, "swallowed\n", 2)
	p.Set(conformance.Sound, 0)
	for _, c := range []*client{old, fresh} { // a stream with a gap cannot go on
		_, err := c.hear(10 * time.Second)
		isReset(t, err)
	}
	dial(t, p).works("after\n")
	equal(t, "the server", s.lines(), []string{"before\n", "after\n"})
}

// What a client closes behind a black hole stays open at the server until the network heals.
func TestBlackHoleSwallowsTheEnd(t *testing.T) {
	s := serve(t)
	p := proxy(t, s.target(), nil)
	c := dial(t, p)
	c.works("before\n")
	p.Set(conformance.BlackHole, 0)
	_ = c.Close()
	eventually(t, "the end was swallowed", func() bool { return p.Fired() > 0 })
	if s.connections() != 1 {
		t.Errorf("connections at the server: got %d, want 1", s.connections())
	}
	p.Set(conformance.Sound, 0)
	eventually(t, "the server's connection ends", func() bool { return s.connections() == 0 })
}

func TestMuteIsAppliedInSilence(t *testing.T) {
	s := serve(t)
	p := proxy(t, s.target(), nil)
	c := dial(t, p)
	c.works("before\n")
	p.Set(conformance.Mute, 0)
	c.unheard(p, "applied\n", 1)
	c.unheard(p, "this too\n", 2)
	p.Set(conformance.Sound, 0)
	_, err := c.hear(10 * time.Second)
	isReset(t, err)
	equal(t, "the server", s.lines(), []string{"before\n", "applied\n", "this too\n"})
}

// A hole is over with the turn that it was for, also for connections that come later.
func TestTimesEndsAHole(t *testing.T) {
	s := serve(t)
	p := proxy(t, s.target(), nil)
	old := dial(t, p)
	old.works("before\n")
	hole := netfault.Faults{Requests: netfault.Harm{Hole: true}, Times: 1}

	p.Apply(hole)
	old.unheard(p, "swallowed\n", 1)
	dial(t, p).works("behind a turn\n")

	p.Apply(hole)
	dial(t, p).unheard(p, "swallowed\n", 1)
	dial(t, p).works("behind a connect\n")
	equal(t, "the server", s.lines(), []string{"before\n", "behind a turn\n", "behind a connect\n"})
}

// Two connects are two turns, even before a byte came.
func TestTimesCountsConnects(t *testing.T) {
	s := serve(t)
	p := proxy(t, s.target(), nil)
	p.Apply(netfault.Faults{Requests: netfault.Harm{Hole: true}, Times: 1})
	first := dial(t, p)
	eventually(t, "it is swallowed", func() bool { return p.Fired() == 1 })
	dial(t, p).works("second\n")
	first.unheard(p, "swallowed\n", 1)
}

// Where a reply was swallowed, the next is not taken for it.
func TestGapIsNotBridged(t *testing.T) {
	s := serve(t)
	p := proxy(t, s.target(), nil)
	c := dial(t, p)
	p.Apply(netfault.Faults{Replies: netfault.Harm{Hole: true}, Times: 1})
	c.unheard(p, "unheard\n", 1)
	answer, err := c.ask("next\n", 10*time.Second)
	isReset(t, err)
	equal(t, "the client", []string{answer}, []string{""})
	equal(t, "the server", s.lines(), []string{"unheard\n", "next\n"})
}

// A connect is no turn: a hole from the next turn on lets it stand, and one on new
// connections does not.
func TestHoleAtConnect(t *testing.T) {
	for _, c := range []struct {
		from netfault.Scope
		want int
	}{
		{netfault.Now, 0},
		{netfault.NextTurn, 1},
		{netfault.NewConnections, 0},
	} {
		t.Run(c.from.String(), func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				l := virtualLine(t, nil)
				l.Apply(netfault.Faults{Requests: netfault.Harm{Hole: true}, From: c.from})
				k := l.dial()
				after(time.Hour)
				if got := l.server.connections(); got != c.want {
					t.Errorf("connections at the server: got %d, want %d", got, c.want)
				}
				_, err := k.ask("swallowed\n", time.Hour)
				isSilence(t, err)
				equal(t, "the server", l.server.lines(), nil)
			})
		})
	}
}
