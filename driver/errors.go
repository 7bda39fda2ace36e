package driver

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The portable errors. Every error of the library is one of these or wraps one, next
// to the client's own error; compare with errors.Is.
var (
	// ErrHeld: somebody else holds the key. As a type: *HeldError.
	ErrHeld = errors.New("held")
	// ErrLost: the grant is not, or no longer, ours: expired, taken over, broken or
	// removed. One name, because a caller can do only one thing about it.
	ErrLost = errors.New("lost")
	// ErrReleased: the lease was released by its own holder.
	ErrReleased = errors.New("released")
	// ErrMaxHold: the lease ended because it was held as long as WithMaxHold allows.
	ErrMaxHold = errors.New("held for the maximum time")
	// ErrStale: a fence has seen a greater token. The write was not applied.
	ErrStale = errors.New("stale token")
	// ErrAmbiguous: the backend may or may not have applied the request.
	ErrAmbiguous = errors.New("outcome unknown")
	// ErrUnavailable: definitely not applied, and worth trying again.
	ErrUnavailable = errors.New("unavailable")
	// ErrUnsupported: the backend or the platform cannot do this. Nothing was sent.
	ErrUnsupported = errors.New("not supported")
	// ErrClosed: the Locker or the driver was closed.
	ErrClosed = errors.New("closed")
	// ErrInvalidKey: the key is empty, too long, not UTF-8, or contains NUL.
	ErrInvalidKey = errors.New("invalid key")
	// ErrInvalidTTL: the ttl is impossible.
	ErrInvalidTTL = errors.New("invalid ttl")
	// ErrTokenRegression: the backend granted a token that is not greater than one
	// already seen: it has lost its counter. See Locker.AcceptTokenReset.
	ErrTokenRegression = errors.New("token regression")
	// ErrCorrupt: what is stored is not what the layout allows.
	ErrCorrupt = errors.New("corrupt record")
	// ErrLayout: the namespace was created with other settings, or by another version.
	ErrLayout = errors.New("namespace layout differs")
)

// HeldError is a refusal: who holds the key, as far as the backend says. It matches
// ErrHeld.
type HeldError struct {
	// Owner, Note, Token and Attempt are the holder's. Zero: unknown. A queued
	// waiter that is told of no holder (between two grants) gets zeros too.
	Owner, Note string
	Token       Token
	Attempt     Attempt
	// ExpiresIn is an upper bound of the time until the grant ends without a renewal,
	// when the answer was made. Zero: unknown.
	ExpiresIn time.Duration
	// Ahead is how many live waiters stand before this one in the queue: 0, or at
	// least 1 where the backend does not count. It means nothing for a refused
	// TryAcquire.
	Ahead int
}

// Error says it in one line: held by web-3:81 (token 7, 29s left).
func (e *HeldError) Error() string {
	var b strings.Builder
	b.WriteString("held")
	if e.Owner != "" {
		b.WriteString(" by ")
		b.WriteString(printable(e.Owner))
	}
	var facts []string
	if e.Token != 0 {
		facts = append(facts, "token "+e.Token.String())
	}
	if e.ExpiresIn > 0 {
		facts = append(facts, roundForPeople(e.ExpiresIn).String()+" left")
	}
	if len(facts) > 0 {
		fmt.Fprintf(&b, " (%s)", strings.Join(facts, ", "))
	}
	return b.String()
}

// printable keeps an owner's name on one line: it came from another program.
func printable(s string) string {
	if q := strconv.Quote(s); q != `"`+s+`"` {
		return q
	}
	return s
}

// roundForPeople keeps three or so digits: nobody reads nanoseconds in a sentence.
func roundForPeople(d time.Duration) time.Duration {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second)
	case d >= time.Second:
		return d.Round(100 * time.Millisecond)
	default:
		return max(d.Round(time.Millisecond), time.Millisecond)
	}
}

// Is reports that a HeldError is ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// Error is what the library returns: which operation, on which key, of which
// backend. It unwraps to the sentinel and to the client's raw error.
type Error struct {
	Op      string // acquire, renew, release, …
	Key     string // the full key; empty where there is none
	Backend string // Info.Name
	Err     error
}

// Error reads: redislock: acquire "k": held by web-3:81 (token 7, 29s left).
func (e *Error) Error() string {
	s := e.Op
	if e.Key != "" {
		s += " " + strconv.Quote(e.Key)
	}
	if e.Backend != "" {
		s = e.Backend + ": " + s
	}
	return s + ": " + e.Err.Error()
}

// Unwrap returns what went wrong.
func (e *Error) Unwrap() error { return e.Err }

// Wrap joins a portable sentinel with the client's raw error, so that errors.Is finds
// both. A driver returns this and adds no operation or key: the core does.
func Wrap(sentinel, raw error) error {
	switch {
	case raw == nil:
		return sentinel
	case errors.Is(raw, sentinel):
		return raw
	}
	return &wrapped{sentinel: sentinel, raw: raw}
}

type wrapped struct{ sentinel, raw error }

func (w *wrapped) Error() string   { return w.sentinel.Error() + ": " + w.raw.Error() }
func (w *wrapped) Unwrap() []error { return []error{w.sentinel, w.raw} }

// definite lists what a driver may answer only if nothing was applied.
var definite = []error{
	ErrHeld, ErrLost, ErrUnavailable, ErrUnsupported, ErrClosed, ErrInvalidKey, ErrInvalidTTL,
	ErrCorrupt, ErrLayout, ErrStale, ErrReleased, ErrTokenRegression,
}

// IsAmbiguous reports whether an error of a driver call leaves open whether the
// backend applied the request: ErrAmbiguous, a bare context error, and everything
// that is none of the portable errors. When in doubt it is in doubt. A driver that
// knows better says so: Wrap(ErrUnavailable, ctx.Err()) is definite.
func IsAmbiguous(err error) bool {
	if err == nil {
		return false
	}
	if errors.Is(err, ErrAmbiguous) {
		return true
	}
	for _, d := range definite {
		if errors.Is(err, d) {
			return false
		}
	}
	return true
}
