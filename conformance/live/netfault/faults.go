package netfault

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/fencelock/locker/conformance"
)

// Faults is all that can be wrong with a [Proxy]. The zero value is a sound network.
type Faults struct {
	// Requests and Replies are the two directions: from the client, and to it.
	Requests, Replies Harm
	// OneIn resets about one turn in so many, half of them before and half after the
	// server had the request. Zero: none.
	OneIn int
	// Copies delivers the client's bytes of each turn a second time, CopyAfter later than
	// the server's answer, so that no copy overtakes its original, on a connection of their
	// own, behind the bytes of the connection's handshake. A turn that is never answered is
	// not copied, nor is one that had begun before Apply. The replies are thrown away.
	// Protocols that can be replayed so: RESP2 and RESP3, HTTP/1. Not:
	// whatever numbers its frames or draws a challenge (HTTP/2, TLS, Postgres).
	Copies    bool
	CopyAfter time.Duration
	// From says where the faults begin to count.
	From Scope
	// Times is after how many harmed turns the network is sound again; a connect that a
	// Hole swallows is one. Zero: at the next Apply. A connection with a gap is not sound
	// again: the next bytes behind the gap are a reset.
	Times int
}

// Harm is what happens to the bytes of one direction. A turn of the connection's handshake
// (Options.Handshake) is spared the harm of replies, so that later requests arrive.
type Harm struct {
	// Delay is how much later bytes arrive, Jitter a random time up to which more is
	// added. Bytes never overtake each other.
	Delay, Jitter time.Duration
	// Hole swallows bytes in silence. In a hole of requests a new connection stands, as
	// far as the client sees, and nothing is behind it: it is not led to the server before
	// the next Apply, which resets it.
	Hole bool
	// Reset puts a reset in the place of the next bytes, those that a delay holds among
	// them.
	Reset bool
	// Cut, if positive, lets so many bytes pass and then resets. It counts from the
	// beginning of each turn, the first being one that begins after Apply (a chunk may be
	// under way), or with NewConnections from the connection's.
	Cut int64
}

// Scope is where faults begin to count.
type Scope int

const (
	// Now: with the next bytes, also in the middle of a turn.
	Now Scope = iota
	// NextTurn: on each connection with the first turn that begins afterwards.
	NextTurn
	// NewConnections: on connections that are opened afterwards.
	NewConnections
)

// String returns the scope in words.
func (s Scope) String() string {
	return [...]string{"now", "from the next turn", "on new connections"}[s]
}

// String returns the faults in words.
func (f Faults) String() string {
	var words []string
	say := func(which string, h Harm) {
		if h.Delay > 0 || h.Jitter > 0 {
			words = append(words, fmt.Sprintf("%s %v to %v late", which, h.Delay, h.Delay+h.Jitter))
		}
		if h.Hole {
			words = append(words, which+" swallowed")
		}
		if h.Reset {
			words = append(words, which+" reset")
		}
		if h.Cut > 0 {
			words = append(words, fmt.Sprintf("%s cut after %d bytes", which, h.Cut))
		}
	}
	say("requests", f.Requests)
	say("replies", f.Replies)
	if f.OneIn > 0 {
		words = append(words, fmt.Sprintf("one turn in %d reset", f.OneIn))
	}
	if f.Copies {
		words = append(words, fmt.Sprintf("copies %v later", f.CopyAfter))
	}
	if len(words) == 0 {
		return "sound"
	}
	if f.From != Now {
		words = append(words, f.From.String())
	}
	if f.Times > 0 {
		words = append(words, fmt.Sprintf("%d times", f.Times))
	}
	return strings.Join(words, ", ")
}

// resetOneIn is how often conformance.Resets resets.
const resetOneIn = 10

// Of returns the Faults that the suite means.
func Of(f conformance.NetworkFault, d time.Duration) Faults {
	switch f {
	case conformance.LoseRequests:
		return Faults{Requests: Harm{Reset: true}}
	case conformance.LoseReplies:
		return Faults{Replies: Harm{Reset: true}}
	case conformance.BlackHole:
		return Faults{Requests: Harm{Hole: true}, Replies: Harm{Hole: true}}
	case conformance.Mute:
		return Faults{Replies: Harm{Hole: true}}
	case conformance.Delays:
		return Faults{Requests: Harm{Jitter: d}, Replies: Harm{Jitter: d}}
	case conformance.Resets:
		return Faults{OneIn: resetOneIn}
	case conformance.Copies:
		return Faults{Copies: true, CopyAfter: d}
	default:
		return Faults{}
	}
}

// What a number is drawn for.
const (
	forReset uint64 = iota
	forRequestDelay
	forReplyDelay
)

// dice draws numbers that depend on nothing but what they are drawn for.
type dice uint64

func (d dice) draw(what, conn, ordinal uint64) *rand.Rand {
	return rand.New(rand.NewPCG(uint64(d)^what<<56, conn<<32^ordinal)) //nolint:gosec // a seeded fault, no secret
}

// late returns a time from h's delay to its delay and jitter.
func (d dice) late(h Harm, what, conn, ordinal uint64) time.Duration {
	if h.Jitter <= 0 {
		return h.Delay
	}
	return h.Delay + time.Duration(d.draw(what, conn, ordinal).Int64N(int64(h.Jitter)+1))
}

// reset reports whether this turn is one of those to reset, before or after the server.
func (d dice) reset(oneIn int, conn, ordinal uint64) (before, after bool) {
	if oneIn <= 0 {
		return false, false
	}
	r := d.draw(forReset, conn, ordinal)
	if r.IntN(oneIn) != 0 {
		return false, false
	}
	before = r.IntN(2) == 0
	return before, !before
}
