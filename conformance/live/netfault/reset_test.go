package netfault_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/conformance/live/netfault"
)

func TestLostRequestNeverArrives(t *testing.T) {
	s := serve(t)
	p := proxy(t, s.target(), nil)
	old := dial(t, p)
	old.works("before\n")
	p.Set(conformance.LoseRequests, 0)
	_, err := old.ask("lost\n", time.Second)
	isReset(t, err)
	_, err = dial(t, p).ask("lost too\n", time.Second)
	isReset(t, err)
	if p.Fired() != 2 {
		t.Errorf("Fired: got %d, want 2", p.Fired())
	}
	p.Set(conformance.Sound, 0)
	dial(t, p).works("after\n")
	equal(t, "the server", s.lines(), []string{"before\n", "after\n"})
}

func TestLostReplyIsApplied(t *testing.T) {
	s := serve(t)
	p := proxy(t, s.target(), nil)
	c := dial(t, p)
	c.works("before\n")
	p.Set(conformance.LoseReplies, 0)
	_, err := c.ask("applied\n", 10*time.Second)
	isReset(t, err)
	_, err = dial(t, p).ask("on a new connection\n", 10*time.Second)
	isReset(t, err)
	if got := p.Counts(); got.HarmedReplies != 2 || got.HarmedRequests != 0 || p.Fired() != 2 {
		t.Errorf("got %+v, fired %d; want two harmed replies", got, p.Fired())
	}
	p.Set(conformance.Sound, 0)
	dial(t, p).works("after\n")
	equal(t, "the server", s.lines(), []string{"before\n", "applied\n", "on a new connection\n", "after\n"})
}

func TestTimesEndsTheFault(t *testing.T) {
	s := serve(t)
	p := proxy(t, s.target(), nil)
	p.Apply(netfault.Faults{Replies: netfault.Harm{Reset: true}, Times: 1})
	_, err := dial(t, p).ask("first\n", 10*time.Second)
	isReset(t, err)
	dial(t, p).works("second\n")
	if p.Fired() != 1 {
		t.Errorf("Fired: got %d, want 1", p.Fired())
	}
}

// A turn in many pieces is harmed once.
func TestFiredCountsTurns(t *testing.T) {
	virtual(t, func(t *testing.T) {
		l := virtualLine(t, nil)
		l.Apply(netfault.Faults{Requests: netfault.Harm{Delay: time.Second}})
		c := l.dial()
		for range 3 {
			c.send("x")
			after(0)
		}
		c.gets("\n", "ok xxx\n")
		if got := l.Counts(); l.Fired() != 1 || got.HarmedRequests != 1 {
			t.Errorf("got %+v, fired %d; want 1", got, l.Fired())
		}
	})
}

// A turn that is harmed there and back is one of Faults.Times.
func TestTimesCountsTurns(t *testing.T) {
	virtual(t, func(t *testing.T) {
		l := virtualLine(t, nil)
		late := netfault.Harm{Delay: time.Second}
		l.Apply(netfault.Faults{Requests: late, Replies: late, Times: 2})
		c := l.dial()
		for i, want := range []time.Duration{2 * time.Second, 2 * time.Second, 0} {
			begun := time.Now()
			c.works("x\n")
			if got := time.Since(begun); got != want {
				t.Errorf("turn %d took %v, want %v", i, got, want)
			}
		}
		if l.Fired() != 4 {
			t.Errorf("Fired: got %d, want 4 (requests and replies)", l.Fired())
		}
	})
}

// About one turn in ten is reset, before or after the server had it, and the same seed
// resets the same turns.
func TestResets(t *testing.T) {
	run := func() (lost, applied []string) {
		s := serve(t)
		p := proxy(t, s.target(), &netfault.Options{Seed: 42})
		p.Set(conformance.Resets, 0)
		c := dial(t, p)
		for i := range 400 {
			line := fmt.Sprintf("%d\n", i)
			if _, err := c.ask(line, 10*time.Second); err == nil {
				continue
			}
			if s.count(line) == 0 {
				lost = append(lost, line)
			} else {
				applied = append(applied, line)
			}
			c = dial(t, p)
		}
		if got, want := p.Fired(), len(lost)+len(applied); got != want {
			t.Errorf("Fired: got %d, want %d", got, want)
		}
		return lost, applied
	}
	lost, applied := run()
	if len(lost) < 8 || len(applied) < 8 || len(lost)+len(applied) > 80 {
		t.Errorf("%d before and %d after the server had it, of 400", len(lost), len(applied))
	}
	again, too := run()
	equal(t, "before, again", again, lost)
	equal(t, "after, again", too, applied)
}

// Reset is for the connections that are open, once, and no fault.
func TestResetOfAll(t *testing.T) {
	s := serve(t)
	p := proxy(t, s.target(), nil)
	all := []*client{dial(t, p), dial(t, p)}
	for _, c := range all {
		c.works("before\n")
	}
	p.Reset()
	for _, c := range all {
		_, err := c.hear(10 * time.Second)
		isReset(t, err)
	}
	eventually(t, "the server's connections end", func() bool { return s.connections() == 0 })
	dial(t, p).works("after\n")
	if p.Fired() != 0 {
		t.Errorf("Fired: got %d, want 0", p.Fired())
	}
}

// A server's reset is a reset at the client, and its ordinary end is an end.
func TestEndOfTheServer(t *testing.T) {
	for name, reset := range map[string]bool{"reset": true, "end": false} {
		t.Run(name, func(t *testing.T) {
			s := serve(t)
			p := proxy(t, s.target(), nil)
			c := dial(t, p)
			c.works("before\n")
			s.end(reset)
			_, err := c.hear(10 * time.Second)
			if reset {
				isReset(t, err)
			} else if !errors.Is(err, io.EOF) {
				t.Errorf("got %v, want %v", err, io.EOF)
			}
		})
	}
}

// A client that has said all still hears the answer.
func TestEndOfTheClient(t *testing.T) {
	s := serve(t)
	p := proxy(t, s.target(), nil)
	c := dial(t, p)
	c.send("last\n")
	if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, want := rest(c), "ok last\n false"; got != want {
		t.Errorf("the client read %q, want %q", got, want)
	}
}
