package netfault_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/conformance/live/netfault"
)

func TestSoundPassesAndCounts(t *testing.T) {
	s := serve(t)
	p := proxy(t, s.target(), nil)
	a, b := dial(t, p), dial(t, p)
	a.works("one\n")
	a.works("two\n")
	b.works("three\n")
	want := netfault.Counts{Connections: 2, Turns: 3, Requests: 14, Replies: 23}
	if got := p.Counts(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if p.Fired() != 0 {
		t.Errorf("Fired: got %d, want 0", p.Fired())
	}
}

// A request that is sent in many pieces is one turn, and so is an answer in many pieces.
func TestTurnIsARoundTrip(t *testing.T) {
	s := serve(t)
	p := proxy(t, s.target(), nil)
	c := dial(t, p)
	for i := range 20 {
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		eventually(t, fmt.Sprint("piece ", i), func() bool { return p.Counts().Requests == int64(i+1) })
	}
	long := strings.Repeat("y", 200<<10)
	if answer, err := c.ask(long+"\n", 10*time.Second); err != nil || len(answer) != len(long)+24 {
		t.Fatalf("got %d bytes, %v", len(answer), err)
	}
	if got := p.Counts(); got.Turns != 1 || got.Replies != int64(len(long)+24) {
		t.Errorf("got %+v, want one turn", got)
	}
}

// One address stands over restarts of the server, which may come back elsewhere.
func TestServerMoves(t *testing.T) {
	first, second := serve(t), serve(t)
	var now atomic.Pointer[lines]
	now.Store(first)
	p := proxy(t, func(context.Context) (string, error) { return now.Load().listener.Addr().String(), nil }, nil)
	c := dial(t, p)
	c.works("here\n")
	first.stop()
	if _, err := c.ask("gone\n", 10*time.Second); err == nil {
		t.Error("the connection to a server that has gone works")
	}
	// The reset may come before the connection stands.
	if c, err := net.Dial("tcp", p.Addr()); err == nil {
		t.Cleanup(func() { _ = c.Close() })
		if _, err := (&client{t, c, bufio.NewReader(c)}).ask("nobody\n", 10*time.Second); err == nil {
			t.Error("a server that is gone answers")
		}
	}
	now.Store(second)
	dial(t, p).works("there\n")
}

// Close waits for what the proxy has begun.
func TestCloseWaits(t *testing.T) {
	virtual(t, func(t *testing.T) {
		front := newPipes()
		p := netfault.ListenOn(front, func(context.Context) (net.Conn, error) {
			pass(time.Minute)
			return nil, net.ErrClosed
		}, nil)
		c, err := front.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		after(0)
		begun := time.Now()
		_ = p.Close()
		if took := time.Since(begun); took != time.Minute {
			t.Errorf("Close took %v, want the minute that the connect takes", took)
		}
	})
}

func TestCloseLeavesNothing(t *testing.T) {
	s := serve(t)
	p := proxy(t, s.target(), nil)
	for range 5 {
		dial(t, p).works("x\n")
	}
	p.Set(conformance.Copies, time.Hour)
	dial(t, p).works("copied in an hour\n")
	p.Set(conformance.BlackHole, 0)
	dial(t, p).unheard(p, "swallowed\n", 1)
	if err := p.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
	eventually(t, "the server's connections end", func() bool { return s.connections() == 0 })
	eventually(t, "no goroutine is left", func() bool { return goroutines() == 0 })
}

// refusing is a listener that fails at first, as one does without descriptors.
type refusing struct {
	*pipes
	left atomic.Int64
}

func (r *refusing) Accept() (net.Conn, error) {
	if r.left.Add(-1) >= 0 {
		return nil, syscall.EMFILE
	}
	return r.pipes.Accept()
}

// A connect that cannot be accepted is tried again, and not at full speed.
func TestAcceptBacksOff(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const failures = 100
		front, back := &refusing{pipes: newPipes()}, newPipes()
		s := serveOn(t, back)
		front.left.Store(failures)
		begun := time.Now()
		p := netfault.ListenOn(front, back.dial, nil)
		t.Cleanup(func() { _ = p.Close() })
		c, err := front.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		newClient(t, c).works("x\n")
		if took := time.Since(begun); took < failures*time.Millisecond {
			t.Errorf("%d failures took %v, want 1ms each at least", failures, took)
		}
		equal(t, "the server", s.lines(), []string{"x\n"})
	})
}
