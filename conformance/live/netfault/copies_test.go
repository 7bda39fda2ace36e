package netfault_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/conformance/live/netfault"
)

// A copy comes later than the answer, on a connection of its own, behind the handshake's bytes.
func TestCopies(t *testing.T) {
	const d = 150 * time.Millisecond
	virtual(t, func(t *testing.T) {
		l := virtualLine(t, &netfault.Options{Handshake: func(_ int, first []byte) bool {
			return strings.HasPrefix(string(first), "hello")
		}})
		l.Set(conformance.Copies, d)
		c := l.dial()
		c.works("hello me\n")
		c.works("first\n")
		if l.Fired() != 1 {
			t.Errorf("Fired: got %d, want 1 (a handshake is not copied)", l.Fired())
		}
		l.Set(conformance.Sound, 0) // what is under way comes all the same
		c.works("second\n")
		after(time.Hour)
		equal(t, "the server", l.server.lines(), []string{"hello me\n", "first\n", "second\n", "hello me\n", "first\n"})
		arrived := l.server.arrived()
		if len(arrived) != 5 {
			return
		}
		first, copied := arrived[1], arrived[4]
		if got := copied.at.Sub(first.at); copied.conn == first.conn || got != d {
			t.Errorf("the copy came on connection %d after %v, the first on %d", copied.conn, got, first.conn)
		}
	})
}

// No copy overtakes its original, however late that is, and however slow its server.
func TestCopyFollowsItsOriginal(t *testing.T) {
	virtual(t, func(t *testing.T) {
		l := virtualLine(t, nil)
		l.Apply(netfault.Faults{Requests: netfault.Harm{Delay: time.Minute}, Copies: true})
		l.server.answer(func(string) { pass(time.Hour) })
		c := l.dial()
		c.send("x\n")
		after(30 * time.Minute)
		equal(t, "before the answer", l.server.lines(), []string{"x\n"})
		if answer, err := c.hear(time.Hour); err != nil || answer != "ok x\n" {
			t.Fatalf("got %q, %v", answer, err)
		}
		after(0)
		equal(t, "behind the answer", l.server.lines(), []string{"x\n", "x\n"})
	})
}

// A turn that the server never answers is not copied.
func TestNoCopyWithoutAnAnswer(t *testing.T) {
	virtual(t, func(t *testing.T) {
		l := virtualLine(t, nil)
		l.Set(conformance.Copies, 0)
		l.server.answer(func(string) { pass(time.Minute) })
		l.dial().send("x\n")
		after(time.Second)
		l.Reset()
		after(time.Hour)
		equal(t, "the server", l.server.lines(), []string{"x\n"})
	})
}

// All of a turn is copied, whatever pieces it comes in and whatever changes meanwhile, or
// none of it.
func TestCopyIsWhole(t *testing.T) {
	virtual(t, func(t *testing.T) {
		l := virtualLine(t, nil)
		c := l.dial()
		piece := strings.Repeat("y", 50<<10)
		c.send("not ")
		after(0)
		l.Set(conformance.Copies, 0)
		c.gets("this\n", "ok not this\n")
		c.send("a")
		after(0)
		c.send(piece)
		l.Set(conformance.Sound, 0)
		c.gets("z\n", "ok a"+piece+"z\n")
		after(0)
		equal(t, "the server", l.server.lines(), []string{"not this\n", "a" + piece + "z\n", "a" + piece + "z\n"})
	})
}

// The copy's connection ends two seconds behind the server's last bytes: an earlier end might
// take the request back.
func TestCopyStaysForTheAnswer(t *testing.T) {
	virtual(t, func(t *testing.T) {
		l := virtualLine(t, nil)
		l.Set(conformance.Copies, 0)
		l.server.answer(func(string) { pass(time.Second) })
		l.dial().works("x\n")
		after(time.Second + 1900*time.Millisecond)
		if got := l.server.connections(); got != 2 {
			t.Errorf("before its end: got %d connections at the server, want 2", got)
		}
		after(200 * time.Millisecond)
		if got := l.server.connections(); got != 1 {
			t.Errorf("behind its end: got %d connections at the server, want 1", got)
		}
	})
}

// Close does not wait for a copy's connection.
func TestCloseEndsCopies(t *testing.T) {
	virtual(t, func(t *testing.T) {
		l := virtualLine(t, nil)
		l.Set(conformance.Copies, 0)
		l.dial().works("x\n")
		after(0)
		equal(t, "the server", l.server.lines(), []string{"x\n", "x\n"})
		begun := time.Now()
		_ = l.Close()
		if took := time.Since(begun); took != 0 {
			t.Errorf("Close took %v", took)
		}
	})
}
