package epoch

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/fencelock/locker/driver"
)

// The definite answers of a Store. An error that wraps one of the definite errors of
// package driver (ErrUnavailable, ErrCorrupt, …) is definite too: nothing was applied.
// Any other error means that the request may have been applied, or may still be.
var (
	// ErrExist: the number is taken, by whomever.
	ErrExist = errors.New("the epoch exists")
	// ErrNotExist: there is no record of that number.
	ErrNotExist = errors.New("the epoch does not exist")
	// ErrChanged: the version is not the current one, or the record has ended.
	ErrChanged = errors.New("the epoch has changed")
)

// Version is a store's own name for one state of one record, as returned by Create,
// Beat and Read. The algorithm never looks inside.
type Version any

// Store keeps the records. It speaks in steps of the algorithm, so that an object
// store and a directory fit without a branch. Every method may be called from many
// goroutines at once, MUST return by the deadline of its context, and MUST NOT apply
// anything it begins after that deadline.
type Store interface {
	// Newest returns the greatest number that exists, ended or not: at least the one
	// that was newest when the call began. 0: none.
	Newest(ctx context.Context, key string) (n uint64, err error)
	// Below returns the greatest number below n that exists, ended or not. 0: none.
	Below(ctx context.Context, key string, n uint64) (uint64, error)
	// Read returns one record. since is the version of an earlier Read of the same
	// number, or nil; a store that can tell cheaply that nothing was written since
	// answers Unchanged, with everything but the Record, Ended and Broken. A record
	// that is not what the layout allows is driver.ErrCorrupt, beside a View whose
	// Version can be ended and whose Shift is [ShiftOf] what was read.
	Read(ctx context.Context, key string, n uint64, since Version) (View, error)
	// Create makes the record only if the number is free, else ErrExist. A record
	// whose Ending is set is a tombstone: it is ended from birth.
	Create(ctx context.Context, key string, n uint64, r Record) (Version, error)
	// Beat is the holder's renewal: the record is young again. ErrChanged: v is not
	// the current version, or the record was ended or broken. ErrNotExist: it is gone.
	Beat(ctx context.Context, key string, n uint64, v Version, r Record) (Version, error)
	// End writes r.Ending. ErrChanged: v is not the current version, or the record has
	// ended (a broken one can still be ended). A store whose End cannot compare what a
	// Beat changes must take View.Idle as said there.
	End(ctx context.Context, key string, n uint64, v Version, r Record) error
	// Delete removes one number and whatever belongs to it. A number that does not
	// exist is no error.
	Delete(ctx context.Context, key string, n uint64) error
	// Sweep removes every number up to and including n, and left-overs of writers that
	// died.
	Sweep(ctx context.Context, key string, n uint64) error
	// Keys yields every key that was ever used and has the prefix.
	Keys(ctx context.Context, prefix string) iter.Seq2[string, error]
	// Drop says that the grant of v is over: let go of what it holds open. It may be
	// called with any version, more than once, and after the Driver's Close.
	Drop(v Version)
}

// Confirmer is a Store whose Newest may be answered by something that remembers an older
// answer. A number that was used and collected is free again, and was the newest once.
type Confirmer interface {
	// Confirm is Newest, by an answer from after v was written: where it is n, the answer
	// shows v, or what n became since. Any other answer is an error.
	Confirm(ctx context.Context, key string, n uint64, v Version) (newest uint64, err error)
}

// View is what a Read shows.
type View struct {
	Record
	// Ended frees the key. Broken only takes the right to renew: the key is held until
	// it has lapsed or its holder is Dead.
	Ended, Broken bool
	Version       Version
	// Unchanged: nothing was written since the version that was passed in.
	Unchanged bool
	// ID is equal in two Views if nothing was written in between, up to Margin.
	ID string
	// Known says that Idle is. Idle − Margin is at most the true time since the last
	// Create, Beat or Break; 0 if in doubt. Where End cannot compare what a Beat
	// changes, the clock behind it MUST have been read before the record was: a beat
	// that the record does not show yet is then answered after the deadline.
	Known bool
	Idle  time.Duration
	// Margin is how far the store's clock may mislead.
	Margin time.Duration
	// Dead: the holder is certainly gone.
	Dead bool
	// Since is the time since Create by the store's clock, for people. Zero: unknown.
	Since time.Duration
	// Unheld: a process that holds this record needs something open that this store
	// has not (a descriptor). One's own attempt is then ended instead of adopted.
	Unheld bool
}

// definite reports whether a store's error says that nothing was applied.
func definite(err error) bool {
	return errors.Is(err, ErrExist) || errors.Is(err, ErrNotExist) || errors.Is(err, ErrChanged) || !driver.IsAmbiguous(err)
}

// unavailable turns the failure of a step that can have granted nothing into a
// definite error.
func unavailable(err error) error {
	if definite(err) && driver.IsAmbiguous(err) { // a Store sentinel where none was expected
		return driver.Wrap(driver.ErrUnavailable, err)
	}
	if !driver.IsAmbiguous(err) {
		return err
	}
	return &notAppliedError{err}
}

// notAppliedError hides the sentinels of the raw error: a read that timed out has changed
// nothing, whatever its own error says about itself.
type notAppliedError struct{ raw error }

func (e *notAppliedError) Error() string { return driver.ErrUnavailable.Error() + ": " + e.raw.Error() }
func (e *notAppliedError) Is(target error) bool {
	return target == driver.ErrUnavailable || (target != driver.ErrAmbiguous && errors.Is(e.raw, target))
}
func (e *notAppliedError) As(target any) bool { return errors.As(e.raw, target) }

// ambiguous says that the outcome of a step is not known.
func ambiguous(err error) error { return driver.Wrap(driver.ErrAmbiguous, err) }
