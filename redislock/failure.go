package redislock

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/locker/driver"
)

// failure says what an error of the client means: nothing was done, or nobody knows.
func failure(err error, written bool) error {
	var reply redis.Error
	switch {
	case errors.Is(err, driver.ErrAmbiguous), errors.Is(err, driver.ErrClosed):
		return err
	case errors.As(err, &reply):
		return replied(err)
	case written:
		return driver.Wrap(driver.ErrAmbiguous, err)
	case errors.Is(err, redis.ErrClosed):
		return driver.Wrap(driver.ErrClosed, err)
	}
	return driver.Wrap(driver.ErrUnavailable, advised(err))
}

// replied says what an error reply of the server means. It is definite, unless it was
// raised by a command inside a script: Redis takes nothing back that the script did before.
// Redis names the script in those. A key of a wrong type is found by the first read.
func replied(err error) error {
	if text := err.Error(); strings.Contains(text, "script: ") && !strings.Contains(text, wrongType) {
		return driver.Wrap(driver.ErrAmbiguous, advised(err))
	}
	return refused(err)
}

const wrongType = "WRONGTYPE"

// said is an error of the server that came as text inside of an answer: go-redis stops at some
// errors there, and takes what is left for the next answers.
type said string

func (s said) Error() string { return string(s) }

// RedisError makes it a redis.Error.
func (said) RedisError() {}

var _ redis.Error = said("")

// onlyRead is failure where nothing can have been done.
func onlyRead(err error) error {
	for _, cause := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, driver.ErrAmbiguous) && errors.Is(err, cause) { // a detached call was given up
			return driver.Wrap(driver.ErrUnavailable, cause)
		}
	}
	return failure(err, false)
}

// refused says what an error reply means behind which nothing was done.
func refused(err error) error {
	if strings.Contains(err.Error(), wrongType) {
		return driver.Wrap(driver.ErrCorrupt, fmt.Errorf("a key of the namespace is something else's: %w", err))
	}
	return driver.Wrap(driver.ErrUnavailable, advised(err))
}

// failed is failure, knowing the script: where the user lacks the permission for a call
// before which nothing was written, the error is definite.
func (r *run) failed(written bool) error {
	if _, at, ok := strings.Cut(r.err.Error(), "@user_script:"); ok && forbidden(r.err.Error()) {
		if line, _, _ := strings.Cut(at, "."); r.script.early[line] {
			return driver.Wrap(driver.ErrUnavailable, advised(r.err))
		}
	}
	return failure(r.err, written)
}

// forbidden reports whether an error of a script, or of a call in it, says that the user
// lacks a permission.
func forbidden(text string) bool {
	return strings.Contains(text, "NOPERM") ||
		strings.Contains(text, "The user executing the script can't") || // Redis 7.0
		strings.Contains(text, "ACL failure in script") // later, and Valkey
}
