package netfault_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
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

func TestBlackHoleIsSilent(t *testing.T) {
	s := serve(t)
	p := proxy(t, s.target(), nil)
	old := dial(t, p)
	old.works("before\n")
	p.Set(conformance.BlackHole, 0)
	fresh := dial(t, p)
	for _, c := range []*client{old, fresh} {
		_, err := c.ask("swallowed\n", silence)
		isSilence(t, err)
	}
	if p.Fired() < 2 {
		t.Errorf("Fired: got %d, want 2 at least", p.Fired())
	}
	p.Set(conformance.Sound, 0)
	for _, c := range []*client{old, fresh} { // a stream with a gap cannot go on
		_, err := c.ask("behind the gap\n", 10*time.Second)
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
	_, err := c.ask("applied\n", silence)
	isSilence(t, err)
	_, err = c.ask("this too\n", silence)
	isSilence(t, err)
	p.Set(conformance.Sound, 0)
	_, err = c.ask("behind the gap\n", 10*time.Second)
	isReset(t, err)
	equal(t, "the server", s.lines(), []string{"before\n", "applied\n", "this too\n"})
}

func TestDelayOfEachDirection(t *testing.T) {
	const d = 150 * time.Millisecond
	s := serve(t)
	p := proxy(t, s.target(), nil)
	c := dial(t, p)
	c.works("before\n")

	p.Apply(netfault.Faults{Requests: netfault.Harm{Delay: d}})
	begun := time.Now()
	c.works("late request\n")
	if arrived := s.got[1].at.Sub(begun); arrived < d {
		t.Errorf("the request arrived after %v, want %v at least", arrived, d)
	}
	p.Apply(netfault.Faults{Replies: netfault.Harm{Delay: d}})
	begun = time.Now()
	c.works("late reply\n")
	took := time.Since(begun)
	if arrived := s.got[2].at.Sub(begun); arrived >= took || took < d {
		t.Errorf("the request arrived after %v, the reply after %v; want %v at least", arrived, took, d)
	}
}

func TestJitterVariesAndKeepsOrder(t *testing.T) {
	s := serve(t)
	p := proxy(t, s.target(), &netfault.Options{Seed: 7})
	p.Set(conformance.Delays, 30*time.Millisecond)
	c := dial(t, p)
	var shortest, longest time.Duration
	for i := range 20 {
		begun := time.Now()
		c.works(fmt.Sprintf("%d\n", i))
		took := time.Since(begun)
		if i == 0 || took < shortest {
			shortest = took
		}
		longest = max(longest, took)
	}
	if longest-shortest < 10*time.Millisecond {
		t.Errorf("round trips from %v to %v: want them to differ", shortest, longest)
	}
	if p.Fired() < 20 {
		t.Errorf("Fired: got %d, want 20 at least", p.Fired())
	}
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

// A copy comes later, on a connection of its own, behind the handshake's bytes.
func TestCopies(t *testing.T) {
	const d = 150 * time.Millisecond
	s := serve(t)
	p := proxy(t, s.target(), &netfault.Options{Handshake: func(turn int, first []byte) bool {
		return strings.HasPrefix(string(first), "hello")
	}})
	p.Set(conformance.Copies, d)
	c := dial(t, p)
	c.works("hello me\n")
	c.works("first\n")
	if p.Fired() != 1 {
		t.Errorf("Fired: got %d, want 1 (a handshake is not copied)", p.Fired())
	}
	p.Set(conformance.Sound, 0) // what is under way comes all the same
	c.works("second\n")
	eventually(t, "the copy", func() bool { return s.count("first\n") == 2 })
	equal(t, "the server", s.lines(), []string{"hello me\n", "first\n", "second\n", "hello me\n", "first\n"})
	first, copied := s.got[1], s.got[4]
	if copied.conn == first.conn || copied.at.Sub(first.at) < d-10*time.Millisecond {
		t.Errorf("the copy came on connection %d after %v, the first on %d", copied.conn, copied.at.Sub(first.at), first.conn)
	}
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

// Replies of the handshake are spared, so that requests can arrive at all.
func TestHandshakeIsSpared(t *testing.T) {
	s := serve(t)
	p := proxy(t, s.target(), &netfault.Options{Handshake: func(turn int, _ []byte) bool { return turn == 0 }})
	p.Set(conformance.LoseReplies, 0)
	c := dial(t, p)
	c.works("hello\n")
	_, err := c.ask("request\n", 10*time.Second)
	isReset(t, err)
	equal(t, "the server", s.lines(), []string{"hello\n", "request\n"})
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

// A change is in force when Set returns, whatever is going on.
func TestChangeIsInForceAtOnce(t *testing.T) {
	s := serve(t)
	p := proxy(t, s.target(), nil)
	stop := make(chan struct{})
	for range 4 {
		c := dial(t, p)
		s.wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := c.ask(fmt.Sprintf("%d\n", i), silence); err != nil {
					return
				}
			}
		})
	}
	eventually(t, "traffic", func() bool { return p.Counts().Turns > 100 })
	p.Set(conformance.BlackHole, 0)
	passed := p.Counts().Requests
	eventually(t, "all are swallowed", func() bool { return p.Fired() >= 4 })
	if got := p.Counts().Requests; got != passed {
		t.Errorf("%d bytes passed behind Set", got-passed)
	}
	close(stop)
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
	_, err := dial(t, p).ask("swallowed\n", silence)
	isSilence(t, err)
	if err := p.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
	eventually(t, "the server's connections end", func() bool { return s.connections() == 0 })
	eventually(t, "no goroutine is left", func() bool { return goroutines() == 0 })
}

func TestString(t *testing.T) {
	p := proxy(t, netfault.At("127.0.0.1:1"), &netfault.Options{Seed: 255})
	p.Apply(netfault.Faults{Requests: netfault.Harm{Delay: time.Second}, Replies: netfault.Harm{Cut: 3}, From: netfault.NextTurn, Times: 2})
	want := "netfault seed 0xff: requests 1s to 1s late, replies cut after 3 bytes, from the next turn, 2 times"
	if got := p.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRESPHandshake(t *testing.T) {
	for first, want := range map[string]bool{
		"*2\r\n$5\r\nhello\r\n$1\r\n3\r\n":  true,
		"*2\r\n$6\r\nSELECT\r\n$1\r\n1\r\n": true,
		"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n":    false,
		"PING\r\n":                          false,
		"":                                  false,
	} {
		if got := netfault.RESP(0, []byte(first)); got != want {
			t.Errorf("%q: got %v, want %v", first, got, want)
		}
	}
}
