package driver

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
)

// Token is a fencing token: 1 to 1<<63 − 1, so that it fits a signed 64-bit column.
// For one key a grant that begins after another one returned carries a strictly
// greater token. Tokens of different keys are not comparable. Zero is no token.
type Token uint64

// MaxToken is the greatest token.
const MaxToken Token = math.MaxInt64

// String returns the token in decimal.
func (t Token) String() string { return strconv.FormatUint(uint64(t), 10) }

// ParseToken reads a token in decimal, without sign or leading zeros.
func ParseToken(s string) (Token, error) {
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || n == 0 || s[0] == '0' || s[0] == '+' {
		return 0, fmt.Errorf("token %q: want a whole number from 1 to %d", s, uint64(MaxToken))
	}
	return Token(n), nil
}

// MarshalText returns the token in decimal. JSON gets a string: numbers of that size
// are rounded by many readers. The zero Token, no token, is the empty text.
func (t Token) MarshalText() ([]byte, error) {
	if t == 0 {
		return []byte{}, nil
	}
	return strconv.AppendUint(nil, uint64(t), 10), nil
}

// UnmarshalText reads what MarshalText wrote.
func (t *Token) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*t = 0
		return nil
	}
	n, err := ParseToken(string(b))
	if err != nil {
		return err
	}
	*t = n
	return nil
}

// MarshalBinary is MarshalText: a token has one form everywhere, so that a client
// that stores values through this interface stores what a person can read.
func (t Token) MarshalBinary() ([]byte, error) { return t.MarshalText() }

// UnmarshalBinary reads what MarshalBinary wrote.
func (t *Token) UnmarshalBinary(b []byte) error { return t.UnmarshalText(b) }

// Attempt is the random 128-bit id of one attempt to get a key. Ownership is always
// compared by attempt: tokens and owner names can repeat, attempts cannot. The zero
// Attempt is none.
type Attempt [16]byte

// NewAttempt returns a fresh attempt.
func NewAttempt() Attempt {
	var a Attempt
	_, _ = rand.Read(a[:]) // never fails: crypto/rand ends the program instead
	return a
}

// IsZero reports whether a is no attempt.
func (a Attempt) IsZero() bool { return a == Attempt{} }

// String returns the attempt as 32 hexadecimal digits.
func (a Attempt) String() string { return hex.EncodeToString(a[:]) }

// ParseAttempt reads what String wrote.
func ParseAttempt(s string) (Attempt, error) {
	var a Attempt
	if len(s) != hex.EncodedLen(len(a)) {
		return a, fmt.Errorf("attempt %q: want %d hexadecimal digits", s, hex.EncodedLen(len(a)))
	}
	if _, err := hex.Decode(a[:], []byte(s)); err != nil {
		return Attempt{}, fmt.Errorf("attempt %q: %w", s, err)
	}
	return a, nil
}

// MarshalText returns the 32 hexadecimal digits.
func (a Attempt) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (a *Attempt) UnmarshalText(b []byte) (err error) {
	*a, err = ParseAttempt(string(b))
	return err
}
