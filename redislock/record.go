package redislock

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/locker/driver"
)

// lock is a lock's value as the scripts write it, fit for reading by people:
//
//	<attempt> <token> <since> <t, q or b> <length of owner> <owner><note>
type lock struct {
	attempt driver.Attempt
	token   driver.Token
	// since is when it was granted, in ms on the server's clock. Until the first renewal it is
	// the ttl with a minus, of which what remains tells the rest: reading the clock is a tenth
	// of what a try costs the server.
	since int64
	how   string
	owner string
	note  string
}

// How a grant came about. A broken one is nobody's.
const (
	tried  = "t"
	queued = "q"
	broken = "b"
)

// tail is the part of a value that only people read.
func tail(owner, note string) string { return strconv.Itoa(len(owner)) + " " + owner + note }

// head is how a grant's value begins.
func head(g driver.Grant) string { return g.Attempt.String() + " " + g.Token.String() + " " }

func parseLock(value string) (l lock, err error) {
	parts := strings.SplitN(value, " ", 6)
	if len(parts) != 6 {
		return l, corrupt(value, errors.New("too short"))
	}
	var errs [4]error
	l.attempt, errs[0] = driver.ParseAttempt(parts[0])
	l.token, errs[1] = driver.ParseToken(parts[1])
	l.since, errs[2] = strconv.ParseInt(parts[2], 10, 64)
	n, aerr := strconv.Atoi(parts[4])
	if rest := parts[5]; aerr == nil && n >= 0 && n <= len(rest) {
		l.owner, l.note = rest[:n], rest[n:]
	} else {
		errs[3] = errors.New("the owner's length is wrong")
	}
	l.how = parts[3]
	if err := errors.Join(errs[:]...); err != nil {
		return lock{}, corrupt(value, err)
	}
	return l, nil
}

func corrupt(value string, err error) error {
	return driver.Wrap(driver.ErrCorrupt, fmt.Errorf("%.60q: %w", value, err))
}

// The first element of a granting script's answer, as in lua/lib.lua. A try that is granted
// is answered with the token alone.
const (
	granted = iota
	found
	held
	gone
	exhausted
	done // a break
)

// answer is what a granting script replies.
type answer struct {
	status  int64
	token   driver.Token // granted: of this very run
	lock    lock         // found or held
	expiry  time.Duration
	left    time.Duration // held: until it ends without a renewal
	reading time.Duration // the server's clock, rounded up
	ahead   int
}

// doubt puts the error in the place of whatever the reply says of a grant that stands.
func (r *run) doubt(err error) {
	stands := false
	switch reply := r.reply.(type) {
	case string:
		stands = true
	case int64:
		stands = reply == 1
	case []any:
		if r.script == &renewScript { // each for itself
			for i := range reply {
				if reply[i] == int64(1) {
					reply[i] = err
				}
			}
			return
		}
		stands = len(reply) > 0 && reply[0] == int64(found)
	}
	if stands {
		r.reply, r.err = nil, err
	}
}

var errReply = errors.New("a reply that no script gives")

// parseAnswer reads a reply. One that it cannot read leaves open what was done.
func parseAnswer(reply any) (a answer, err error) {
	if token, ok := reply.(string); ok {
		if a.token, err = driver.ParseToken(token); err != nil {
			err = driver.Wrap(driver.ErrAmbiguous, err)
		}
		return a, err
	}
	r, _ := reply.([]any)
	status, ok := int64(0), false
	if len(r) > 0 {
		status, ok = r[0].(int64)
	}
	if !ok {
		return a, driver.Wrap(driver.ErrAmbiguous, errReply)
	}
	a.status = status
	text := func(i int) (s string) {
		if i < len(r) {
			s, _ = r[i].(string)
		}
		return s
	}
	number := func(i int) (n int64) {
		if i < len(r) {
			n, _ = r[i].(int64)
		}
		return n
	}
	switch a.status {
	case exhausted:
		err = noToken(text(1))
	case found:
		a.expiry, a.reading = millis(number(2)), millis(number(3))
		a.lock, err = parseLock(text(1))
	case held:
		a.left, a.reading, a.ahead = millis(number(2)), millis(number(3)), int(number(4))
		a.lock, err = parseLock(text(1))
	case gone, done:
	default:
		err = driver.Wrap(driver.ErrAmbiguous, errReply)
	}
	return a, err
}

// noToken is why the counter did not give a token: it has reached the end, the user may not
// raise it, or it is no counter.
func noToken(why string) error {
	if strings.Contains(why, "overflow") {
		return driver.Wrap(driver.ErrTokenRegression, fmt.Errorf("no token is left: %s", why))
	}
	if forbidden(why) {
		return driver.Wrap(driver.ErrUnavailable, advised(errors.New(why)))
	}
	return driver.Wrap(driver.ErrCorrupt, fmt.Errorf("the bucket's counter: %s", why))
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// refusal says who holds the key.
func (a answer) refusal() *driver.HeldError {
	return &driver.HeldError{
		Owner: a.lock.owner, Note: a.lock.note, Token: a.lock.token, Attempt: a.lock.attempt,
		ExpiresIn: until(a.left), Ahead: a.ahead,
	}
}

// until is an upper bound of the time until a lock is gone, from its PTTL: to Redis a key
// is there in its last millisecond, too. Zero, unknown: somebody has taken its ttl away.
func until(left time.Duration) time.Duration {
	if left < 0 {
		return 0
	}
	return left + granularity
}
