package epoch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/fencelock/locker/driver"
)

// RecordVersion is the version of the record this release writes and reads.
const RecordVersion = 1

// Record is the body of one epoch. A store may write further fields beside it.
type Record struct {
	Layout int            `json:"layout"`
	Key    string         `json:"key"`
	Epoch  uint64         `json:"epoch"`
	Shift  uint64         `json:"shift,omitempty"`
	Token  driver.Token   `json:"token"` // for people: the token follows from epoch and shift
	Holder driver.Attempt `json:"attempt"`
	Owner  string         `json:"owner,omitempty"`
	Note   string         `json:"note,omitempty"`
	// ValidityMS is the granted ttl in milliseconds: how long the record counts after
	// its last beat.
	ValidityMS int64 `json:"validity_ms"`
	// Time is the holder's wall clock at the grant, for people. Nothing ever compares it.
	Time string `json:"time,omitempty"`
	// Writer is fresh for every write, so that equal bodies are equal writes and a
	// holder knows its own unanswered renewals again. Renewals counts them.
	Writer   driver.Attempt `json:"writer"`
	Renewals uint64         `json:"renewals,omitempty"`
	// Ending says how the grant ended, or that it was broken. Zero: neither.
	Ending Ending `json:"ending,omitzero"`
}

// Ending is why a record no longer grants anything.
type Ending struct {
	Kind   Kind   `json:"kind"`
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Kind names the ways in which a record ends.
type Kind string

const (
	// Released by its holder, after its grant was returned.
	Released Kind = "released"
	// Undone by its maker, who never learned whether it had been granted.
	Undone Kind = "undone"
	// Sealed by a contender after it had lapsed.
	Sealed Kind = "sealed"
	// Discarded by its maker: the number had been used before.
	Discarded Kind = "discarded"
	// Broken by hand: no longer renewable, held until it has lapsed.
	Broken Kind = "broken"
	// BrokenNow by hand, and given away at once.
	BrokenNow Kind = "broken-now"
)

// Ends reports whether this ending frees the key. A broken record and an ending that
// nobody knows are held until they have lapsed.
func (k Kind) Ends() bool {
	switch k {
	case Released, Undone, Sealed, Discarded, BrokenNow:
		return true
	default:
		return false
	}
}

// Validity is how long the record counts after its last beat.
func (r Record) Validity() time.Duration { return time.Duration(r.ValidityMS) * time.Millisecond }

// maxValidityMS keeps Validity, and sums with it, within a time.Duration.
const maxValidityMS = math.MaxInt64 / int64(time.Millisecond) / 4

// Encode returns the record as one JSON object per line of fields, for people.
func Encode(r any) ([]byte, error) {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(b, '\n'), nil
}

// ShiftOf returns the shift that a damaged record still shows, as Encode writes it; 0:
// none that could be one.
func ShiftOf(damaged []byte) uint64 {
	_, after, _ := bytes.Cut(damaged, []byte(`"shift": `))
	end := bytes.IndexFunc(after, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 { // cut off: what follows the digits is not known
		return 0
	}
	shift, err := strconv.ParseUint(string(after[:end]), 10, 64)
	if err != nil || shift > uint64(driver.MaxToken) {
		return 0
	}
	return shift
}

// Check reports, as driver.ErrCorrupt, what is wrong with a record that was read as
// number n of key.
func (r Record) Check(key string, n uint64) error {
	switch {
	case r.Layout > RecordVersion:
		return fmt.Errorf("%w: version %d, this program knows %d", driver.ErrCorrupt, r.Layout, RecordVersion)
	case r.Layout < 1:
		return fmt.Errorf("%w: no layout version", driver.ErrCorrupt)
	case r.Key != key:
		return fmt.Errorf("%w: it belongs to key %q", driver.ErrCorrupt, r.Key)
	case r.Epoch != n:
		return fmt.Errorf("%w: it says epoch %d and is stored as %d", driver.ErrCorrupt, r.Epoch, n)
	case r.Holder.IsZero():
		return fmt.Errorf("%w: no attempt", driver.ErrCorrupt)
	case r.ValidityMS <= 0 || r.ValidityMS > maxValidityMS:
		return fmt.Errorf("%w: validity_ms %d", driver.ErrCorrupt, r.ValidityMS)
	case r.Shift > uint64(driver.MaxToken):
		return fmt.Errorf("%w: shift %d", driver.ErrCorrupt, r.Shift)
	}
	return nil
}
