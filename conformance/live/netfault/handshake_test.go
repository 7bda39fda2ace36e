package netfault_test

import (
	"testing"
	"time"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/conformance/live/netfault"
)

// A handshake is spared what is done to replies, resets of OneIn and copies, so that later
// requests arrive at all.
func TestHandshakeIsSpared(t *testing.T) {
	for _, f := range []netfault.Faults{
		netfault.Of(conformance.LoseReplies, 0),
		netfault.Of(conformance.Mute, 0),
		{Replies: netfault.Harm{Cut: 1}},
		{OneIn: 1},
	} {
		t.Run(f.String(), func(t *testing.T) {
			s := serve(t)
			p := proxy(t, s.target(), &netfault.Options{Seed: 1, Handshake: func(turn int, _ []byte) bool { return turn < 2 }})
			p.Apply(f)
			c := dial(t, p)
			c.works("hello\n")
			c.works("hello again\n")
			if p.Fired() != 0 {
				t.Errorf("Fired: got %d, want 0", p.Fired())
			}
			if answer, err := c.ask("request\n", silence); err == nil {
				t.Errorf("behind the handshake: got %q, want an error", answer)
			}
			eventually(t, "the request is harmed", func() bool { return p.Fired() == 1 })
		})
	}
}

// The first turn that is none ends the handshake: what comes later is none, whatever it is.
func TestHandshakeEndsOnce(t *testing.T) {
	s := serve(t)
	p := proxy(t, s.target(), &netfault.Options{Handshake: func(_ int, first []byte) bool { return string(first) == "hello\n" }})
	c := dial(t, p)
	c.works("hello\n")
	c.works("request\n")
	p.Set(conformance.LoseReplies, 0)
	_, err := c.ask("hello\n", 10*time.Second)
	isReset(t, err)
}

func TestRESPHandshake(t *testing.T) {
	for first, want := range map[string]bool{
		"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n":                    true,
		"*2\r\n$5\r\nhello\r\n$1\r\n3\r\n":                    true,
		"*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n":                     true,
		"*2\r\n$6\r\nSELECT\r\n$1\r\n1\r\n":                   true,
		"*3\r\n$6\r\nclient\r\n$7\r\nSETNAME\r\n$1\r\nx\r\n":  true,
		"*1\r\n$8\r\nREADONLY\r\n":                            true,
		"*2\r\n$5\r\nhello\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n": true, // the first command decides
		"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n":                      false,
		"*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nk\r\n":                false,
		"*2\r\n$3\r\nGET\r\n$5\r\nHELLO\r\n":                  false,
		"*1\r\n$4\r\nPING\r\n":                                false,
		"*1\r\n$6\r\nHELLO2\r\n":                              false,
		"HELLO 3\r\n":                                         false,
		"x\r\n$5\r\nHELLO\r\n":                                false,
		"*2\r\nx\r\nHELLO\r\n":                                false,
		"*2\r\n$5\r\nHELLO":                                   false,
		"":                                                    false,
	} {
		if got := netfault.RESP(0, []byte(first)); got != want {
			t.Errorf("%q: got %v, want %v", first, got, want)
		}
	}
}
