package s3lock

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

const (
	// maxNumber is the greatest number of a key: a name counts down from it, so that the
	// newest comes first in every listing.
	maxNumber    = 9_999_999_999
	numberDigits = 10
	recordSuffix = ".json"

	// layoutName is the namespace record, probePrefix begins what a probe makes. No key is
	// escaped to a name with a dot in front.
	layoutName  = ".locker.json"
	probePrefix = ".probe-"

	// maxName bounds an escaped key: stores that keep objects as files take 255 bytes for
	// one part of a path. Longer keys keep this many readable bytes before their hash.
	maxName      = 200
	readableName = 100
	// maxObjectName is S3's own bound of a whole name.
	maxObjectName = 1024
	hashMark      = "!-"
)

// escape maps keys to one part of an object's name, injectively: letters, digits, '-', '_'
// and inner dots stand for themselves, every other byte is !xx. All of these are safe in
// names everywhere. A name that would be too long ends in "!-" and the key's SHA-256; its
// records tell the key.
func escape(key string) string {
	var b strings.Builder
	for i := range len(key) {
		c := key[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.' && i > 0:
			b.WriteByte(c)
		default:
			b.WriteByte('!')
			b.WriteString(hex.EncodeToString([]byte{c}))
		}
	}
	if b.Len() <= maxName {
		return b.String()
	}
	sum := sha256.Sum256([]byte(key))
	return b.String()[:readableName] + hashMark + hex.EncodeToString(sum[:])
}

// hashed reports whether a name does not tell its key.
func hashed(name string) bool { return strings.Contains(name, hashMark) }

// unescape is the inverse of escape for names that are not hashed.
func unescape(name string) (key string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] != '!' {
			b.WriteByte(name[i])
			continue
		}
		if i+3 > len(name) {
			return "", false
		}
		c, err := hex.DecodeString(name[i+1 : i+3])
		if err != nil {
			return "", false
		}
		b.WriteByte(c[0])
		i += 2
	}
	return b.String(), b.Len() > 0 && escape(b.String()) == name
}

// namePrefix is what the name of every key with this prefix begins with.
func namePrefix(prefix string) string {
	var b strings.Builder
	for i := range len(prefix) { // byte by byte: never hashed
		b.WriteString(escapedByte(prefix[i], i == 0))
	}
	return b.String()[:min(b.Len(), readableName)]
}

func escapedByte(c byte, first bool) string {
	if first || c != '.' {
		return escape(string([]byte{c}))
	}
	return "."
}

// recordName is what number n is called within its key's folder.
func recordName(n uint64) string {
	return fmt.Sprintf("%0*d%s", numberDigits, maxNumber-n, recordSuffix)
}

// number is the inverse of recordName.
func number(name string) (n uint64, ok bool) {
	digits, ok := strings.CutSuffix(name, recordSuffix)
	if !ok || len(digits) != numberDigits || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	rest, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || rest >= maxNumber {
		return 0, false
	}
	return maxNumber - rest, true
}
