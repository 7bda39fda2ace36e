package netfault_test

import (
	"testing"
	"time"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/conformance/live/netfault"
)

// Of what is cut, exactly so many bytes arrive; what was under way before is not counted.
func TestCut(t *testing.T) {
	s := serve(t)
	p := proxy(t, s.target(), nil)
	c := dial(t, p)
	c.works("before\n")
	p.Apply(netfault.Faults{Requests: netfault.Harm{Cut: 4}})
	_, err := c.ask("0123456789\n", 10*time.Second)
	isReset(t, err)
	eventually(t, "four bytes arrive", func() bool { return s.count("0123") == 1 })

	p.Set(conformance.Sound, 0)
	c = dial(t, p)
	c.works("again\n")
	p.Apply(netfault.Faults{Replies: netfault.Harm{Cut: 5}})
	if _, err := c.Write([]byte("answer\n")); err != nil {
		t.Fatal(err)
	}
	if got, want := rest(c), "ok an true"; got != want {
		t.Errorf("the client read %q, want %q", got, want)
	}
}

func TestCutSparesTheTurnUnderWay(t *testing.T) {
	s := serve(t)
	p := proxy(t, s.target(), nil)
	c := dial(t, p)
	if _, err := c.Write([]byte("a turn in ")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first part passed", func() bool { return p.Counts().Requests == 10 })
	p.Apply(netfault.Faults{Requests: netfault.Harm{Cut: 3}})
	if answer, err := c.ask("two parts\n", 10*time.Second); err != nil || answer != "ok a turn in two parts\n" {
		t.Fatalf("got %q, %v", answer, err)
	}
	_, err := c.ask("next\n", 10*time.Second)
	isReset(t, err)
	eventually(t, "three bytes arrive", func() bool { return s.count("nex") == 1 })
}

// A cut counts from the beginning of each turn, and lets a turn pass that ends before it.
func TestCutOfEachTurn(t *testing.T) {
	s := serve(t)
	p := proxy(t, s.target(), nil)
	c := dial(t, p)
	p.Apply(netfault.Faults{Requests: netfault.Harm{Cut: 4}})
	c.works("123\n")
	c.works("456\n")
	_, err := c.ask("7890\n", 10*time.Second)
	isReset(t, err)
	eventually(t, "four bytes arrive", func() bool { return s.count("7890") == 1 })
	if p.Fired() != 1 {
		t.Errorf("Fired: got %d, want 1", p.Fired())
	}
}

// On new connections it counts from the beginning of each, over all its turns, and spares
// the old.
func TestCutOfEachConnection(t *testing.T) {
	s := serve(t)
	p := proxy(t, s.target(), nil)
	old := dial(t, p)
	old.works("123\n")

	p.Apply(netfault.Faults{Requests: netfault.Harm{Cut: 6}, From: netfault.NewConnections})
	for range 2 {
		c := dial(t, p)
		c.works("123\n")
		_, err := c.ask("456\n", 10*time.Second)
		isReset(t, err)
	}
	eventually(t, "two bytes of the second turn arrive", func() bool { return s.count("45") == 2 })

	p.Apply(netfault.Faults{Replies: netfault.Harm{Cut: 10}, From: netfault.NewConnections})
	c := dial(t, p)
	c.works("123\n")
	c.send("456\n")
	if got, want := rest(c), "ok  true"; got != want {
		t.Errorf("the client read %q, want %q", got, want)
	}
	old.works("a line that is longer\n")
}

// The reply to a turn that was under way is not cut, that to the next is.
func TestCutOfRepliesSparesTheTurnUnderWay(t *testing.T) {
	s := serve(t)
	p := proxy(t, s.target(), nil)
	c := dial(t, p)
	c.send("a turn in ")
	eventually(t, "the first part passed", func() bool { return p.Counts().Requests == 10 })
	p.Apply(netfault.Faults{Replies: netfault.Harm{Cut: 4}})
	if answer, err := c.ask("two parts\n", 10*time.Second); err != nil || answer != "ok a turn in two parts\n" {
		t.Fatalf("got %q, %v", answer, err)
	}
	c.send("next\n")
	if got, want := rest(c), "ok n true"; got != want {
		t.Errorf("the client read %q, want %q", got, want)
	}
}
