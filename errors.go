package locker

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/fencelock/locker/driver"
)

// The errors, re-exported from package driver so that callers need one import. Compare
// with errors.Is; *HeldError and *Error with errors.As.
var (
	ErrHeld            = driver.ErrHeld            // somebody else holds the key
	ErrLost            = driver.ErrLost            // the lease is over: expired, taken over, broken or removed
	ErrReleased        = driver.ErrReleased        // the lease was released
	ErrMaxHold         = driver.ErrMaxHold         // the lease was held as long as WithMaxHold allows
	ErrStale           = driver.ErrStale           // a fence has seen a greater token
	ErrAmbiguous       = driver.ErrAmbiguous       // the backend may or may not have applied the request
	ErrUnavailable     = driver.ErrUnavailable     // definitely not applied, worth trying again
	ErrUnsupported     = driver.ErrUnsupported     // this backend or platform cannot do it
	ErrClosed          = driver.ErrClosed          // the Locker was closed
	ErrInvalidKey      = driver.ErrInvalidKey      // empty, longer than 512 bytes, not UTF-8, or with NUL
	ErrInvalidTTL      = driver.ErrInvalidTTL      // zero, negative, or outside what the backend takes
	ErrTokenRegression = driver.ErrTokenRegression // the backend lost its token counter
	ErrCorrupt         = driver.ErrCorrupt         // a stored record is not what the layout allows
	ErrLayout          = driver.ErrLayout          // the namespace was created with other settings
)

// HeldError says who holds a key. It matches ErrHeld.
type HeldError = driver.HeldError

// Error is an operation on a key that failed. It unwraps to the sentinel and to the
// client's own error.
type Error = driver.Error

// fail wraps an error once, at the boundary.
func (c *core) fail(op, key string, err error) error {
	if err == nil {
		return nil
	}
	if _, wrapped := as[*Error](err); wrapped {
		return err
	}
	return &Error{Op: op, Key: key, Backend: c.info.Name, Err: err}
}

// as is errors.As; only who has an error pays for the variable.
func as[E error](err error) (E, bool) {
	var e E
	ok := errors.As(err, &e)
	return e, ok
}

// plain puts a driver's error into the form that the core reasons with: a doubt is
// ErrAmbiguous and nothing else, and a refusal is a *HeldError. A definite sentinel beside
// a doubt is hidden: what is not certain must not be taken for an answer.
func plain(err error) error {
	switch {
	case err == nil:
		return nil
	case driver.IsAmbiguous(err):
		if errors.Is(err, ErrAmbiguous) && !definite(err) {
			return err
		}
		return driver.Wrap(ErrAmbiguous, opaque{err})
	case errors.Is(err, ErrHeld):
		if _, known := as[*HeldError](err); !known {
			return driver.Wrap(&HeldError{}, err)
		}
	}
	return err
}

// definite reports whether a portable error that says what happened is somewhere in err.
func definite(err error) bool {
	for _, d := range portable {
		if errors.Is(err, d) {
			return true
		}
	}
	return false
}

// portable are the errors that are answers.
var portable = []error{ErrHeld, ErrLost, ErrReleased, ErrMaxHold, ErrStale, ErrUnavailable, ErrUnsupported, ErrClosed,
	ErrInvalidKey, ErrInvalidTTL, ErrTokenRegression, ErrCorrupt, ErrLayout}

// opaque is an error without the answers in it: the client's own errors can still be found.
type opaque struct{ err error }

func (o opaque) Error() string { return o.err.Error() }

// Is finds what is not portable.
func (o opaque) Is(target error) bool {
	for _, p := range portable {
		if target == p {
			return false
		}
	}
	return target != ErrAmbiguous && errors.Is(o.err, target)
}

// As finds what is not a refusal.
func (o opaque) As(target any) bool {
	if _, refusal := target.(**HeldError); refusal {
		return false
	}
	return errors.As(o.err, target)
}

// waitError is a wait that ended without a lease: it is the context's error, the last
// refusal if there was one, and ErrAmbiguous if a request was still open.
type waitError struct {
	waited    time.Duration
	held      *HeldError
	ambiguous bool
	ended     error // the context's error
}

func (e *waitError) Error() string {
	s := "waited " + roundWait(e.waited).String()
	known := ""
	switch {
	case e.held != nil:
		known = e.held.Error()
	case e.ambiguous:
		known = ErrAmbiguous.Error()
	}
	if known == "" || !errors.Is(e.ended, errDeadline) {
		s += ": " + e.ended.Error()
	}
	if known != "" {
		s += ": " + known
	}
	return s
}

func (e *waitError) Unwrap() []error {
	errs := []error{e.ended}
	if e.held != nil {
		errs = append(errs, e.held)
	}
	if e.ambiguous {
		errs = append(errs, ErrAmbiguous)
	}
	return errs
}

func roundWait(d time.Duration) time.Duration {
	if d >= time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}

const (
	maxKey  = 512     // bytes; what every backend can map injectively
	maxText = 1 << 10 // bytes of an owner or a note: they are stored beside each grant
)

// checkKey is R15, on the full key.
func checkKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: it is empty", ErrInvalidKey)
	case len(key) > maxKey:
		return fmt.Errorf("%w: it has %d bytes and may have %d, prefix included: hash the long part", ErrInvalidKey, len(key), maxKey)
	case !utf8.ValidString(key):
		return fmt.Errorf("%w: it is not valid UTF-8: encode binary keys, for example in hex", ErrInvalidKey)
	}
	for i := range len(key) {
		if key[i] == 0 {
			return fmt.Errorf("%w: it contains a NUL byte", ErrInvalidKey)
		}
	}
	return nil
}

func checkText(what, s string) error {
	if len(s) > maxText || !utf8.ValidString(s) {
		return fmt.Errorf("%s: want at most %d bytes of valid UTF-8", what, maxText)
	}
	for i := range len(s) {
		if s[i] == 0 {
			return fmt.Errorf("%s: it contains a NUL byte", what)
		}
	}
	return nil
}

// maxTTL keeps the arithmetic of deadlines far from overflow. A lock that nobody may
// touch for a year after its holder died is a mistake in units.
const maxTTL = 366 * 24 * time.Hour

// checkTTL is R11.
func checkTTL(ttl time.Duration, info driver.Info) error {
	switch {
	case ttl <= 0:
		return fmt.Errorf("%w: %v: want a positive duration; leave it out for the default", ErrInvalidTTL, ttl)
	case ttl < info.MinTTL:
		return fmt.Errorf("%w: %v: %s takes %v or more", ErrInvalidTTL, ttl, info.Name, info.MinTTL)
	case ttl > maxTTL:
		return fmt.Errorf("%w: %v: want at most %v", ErrInvalidTTL, ttl, maxTTL)
	}
	return nil
}
