package filelock

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

const (
	recordPrefix = "lock-"
	endSuffix    = ".end"
	seenSuffix   = ".seen"
	tempPrefix   = ".tmp-"
	// layoutName is the namespace record. No key is escaped to a name with a dot in
	// front.
	layoutName = ".locker.json"

	// maxName bounds an escaped key: file systems take 255 bytes, ecryptfs 143. Longer
	// ones keep this many readable bytes before their hash.
	maxName      = 140
	readableName = 60
)

// escape maps keys to names of directories, injectively, also where the file system
// folds case or normalizes Unicode: lower-case letters, digits, '-', '_' and inner dots
// stand for themselves, every other byte is %xx. A name that would be too long ends in
// '~' and the key's SHA-256; its records tell the key.
func escape(key string) string {
	var b strings.Builder
	for i := range len(key) {
		c := key[i]
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_', c == '.' && i > 0:
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteString(hex.EncodeToString([]byte{c}))
		}
	}
	if b.Len() <= maxName {
		return b.String()
	}
	sum := sha256.Sum256([]byte(key))
	return b.String()[:readableName] + "~" + hex.EncodeToString(sum[:])
}

// unescape is the inverse of escape for names that are not hashed.
func unescape(name string) (key string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] != '%' {
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

func recordName(n uint64) string { return recordPrefix + strconv.FormatUint(n, 10) }

// number parses the name of a record, or of what belongs to one.
func number(name string) (n uint64, suffix string, ok bool) {
	digits, ok := strings.CutPrefix(name, recordPrefix)
	if !ok {
		return 0, "", false
	}
	if i := strings.IndexByte(digits, '.'); i >= 0 {
		digits, suffix = digits[:i], digits[i:]
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || n == 0 || digits[0] == '0' || digits[0] == '+' {
		return 0, "", false
	}
	return n, suffix, true
}
