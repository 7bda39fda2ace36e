package netfault_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/conformance/live/netfault"
)

func TestScopes(t *testing.T) {
	s := serve(t)
	p := proxy(t, s.target(), nil)
	old := dial(t, p)
	old.works("old\n")
	p.Apply(netfault.Faults{Requests: netfault.Harm{Reset: true}, From: netfault.NewConnections})
	old.works("old connection\n")
	_, err := dial(t, p).ask("new connection\n", 10*time.Second)
	isReset(t, err)

	p.Apply(netfault.Faults{Replies: netfault.Harm{Delay: 300 * time.Millisecond}})
	if _, err := old.Write([]byte("under way\n")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it arrived", func() bool { return s.count("under way\n") == 1 })
	p.Apply(netfault.Faults{Replies: netfault.Harm{Reset: true}, From: netfault.NextTurn})
	_ = old.SetReadDeadline(time.Now().Add(10 * time.Second))
	if answer, err := old.in.ReadString('\n'); err != nil || answer != "ok under way\n" {
		t.Errorf("the turn under way: got %q, %v", answer, err)
	}
	_, err = old.ask("next turn\n", 10*time.Second)
	isReset(t, err)
}

// What belongs to a turn that had begun is spared, in whatever pieces it comes.
func TestNextTurnSparesThePieces(t *testing.T) {
	s := serve(t)
	p := proxy(t, s.target(), nil)
	c := dial(t, p)
	c.send("a turn in ")
	eventually(t, "the first part passed", func() bool { return p.Counts().Requests == 10 })
	p.Apply(netfault.Faults{Requests: netfault.Harm{Reset: true}, From: netfault.NextTurn})
	c.gets("two parts\n", "ok a turn in two parts\n")
	_, err := c.ask("next\n", 10*time.Second)
	isReset(t, err)
	equal(t, "the server", s.lines(), []string{"a turn in two parts\n"})
}

// A change is in force when Set returns, on the connections that are open, too: nothing that a
// client sends behind it arrives.
func TestChangeIsInForceAtOnce(t *testing.T) {
	s := serve(t)
	p := proxy(t, s.target(), nil)
	var set atomic.Bool
	var clients sync.WaitGroup
	for range 4 {
		c := dial(t, p)
		clients.Go(func() {
			for {
				line := "before\n"
				if set.Load() {
					line = "behind\n"
				}
				if _, err := c.ask(line, silence); err != nil && line == "behind\n" {
					return
				}
			}
		})
	}
	eventually(t, "traffic", func() bool { return p.Counts().Turns > 100 })
	p.Set(conformance.BlackHole, 0)
	set.Store(true)
	clients.Wait()
	if got := s.count("behind\n"); got != 0 {
		t.Errorf("%d requests behind Set arrived, want none", got)
	}
	if p.Fired() < 4 {
		t.Errorf("Fired: got %d, want 4 at least", p.Fired())
	}
}

// A change counts for bytes that a delay holds: they fall into a hole or turn into a reset.
func TestHeldBytesMeetTheChange(t *testing.T) {
	held := netfault.Harm{Delay: time.Second}
	both := func(h netfault.Harm) [2]netfault.Faults {
		return [2]netfault.Faults{{Requests: h}, {Replies: h}}
	}
	for name, change := range map[string]netfault.Harm{"hole": {Hole: true}, "reset": {Reset: true}} {
		for dir, f := range both(change) {
			t.Run(fmt.Sprint(name, " ", [...]string{"of requests", "of replies"}[dir]), func(t *testing.T) {
				virtual(t, func(t *testing.T) {
					l := virtualLine(t, nil)
					c := l.dial()
					c.works("before\n")
					l.Apply(both(held)[dir])
					c.send("held\n")
					after(time.Second / 2)
					before := l.Counts()
					l.Apply(f)
					_, err := c.hear(time.Hour)
					if silent := errors.Is(err, os.ErrDeadlineExceeded); silent != change.Hole || err == nil {
						t.Errorf("the client heard %v", err)
					}
					if got, want := l.server.count("held\n"), dir; got != want {
						t.Errorf("the server had it %d times, want %d", got, want)
					}
					if got := l.Counts(); got.Requests != before.Requests || got.Replies != before.Replies {
						t.Errorf("bytes passed: got %+v, want %+v", got, before)
					}
					if l.Fired() != 1 {
						t.Errorf("Fired: got %d, want 1", l.Fired())
					}
				})
			})
		}
	}
}

// gate is a server's connection that takes its time over a write.
type gate struct {
	net.Conn
	writing, changed, wrote chan struct{}
	behind                  bool // the change returned before the write
}

func (g *gate) Write(b []byte) (int, error) {
	close(g.writing)
	defer close(g.wrote)
	select {
	case <-g.changed:
		g.behind = true
	case <-time.After(silence):
	}
	return len(b), nil
}

// Set does not return while bytes are passing that were judged before it.
func TestChangeAwaitsWhatPasses(t *testing.T) {
	near, far := net.Pipe()
	t.Cleanup(func() { _ = far.Close() })
	g := &gate{Conn: near, writing: make(chan struct{}), changed: make(chan struct{}), wrote: make(chan struct{})}
	front := newPipes()
	p := netfault.ListenOn(front, func(context.Context) (net.Conn, error) { return g, nil }, nil)
	t.Cleanup(func() { _ = p.Close() })
	c, err := front.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	newClient(t, c).send("passing")
	<-g.writing
	p.Set(conformance.BlackHole, 0)
	close(g.changed)
	<-g.wrote
	if g.behind {
		t.Error("bytes passed behind the change")
	}
	if got := p.Counts().Requests; got != 7 || p.Fired() != 0 {
		t.Errorf("%d bytes passed, fired %d; want 7 and 0", got, p.Fired())
	}
}
