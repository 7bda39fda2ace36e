package redislock

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// buckets is how many counters a namespace has, each with the locks of its bucket under one
// hash tag, so that a script's keys are in one slot of a Cluster and counters do not
// accumulate with keys. It is a part of the layout: two clients that disagreed would give
// one key two counters.
const buckets = 256

// space names everything that a namespace has in Redis.
type space struct {
	ns      string
	buckets [buckets]bucket
}

// bucket is what the names of a bucket's keys begin with, and the two that it has but once,
// as a command takes them.
type bucket struct {
	tag         string
	token, live any
}

// maxNamespace keeps names readable.
const maxNamespace = 128

func newSpace(ns string) (*space, error) {
	if ns == "" || len(ns) > maxNamespace {
		return nil, fmt.Errorf("namespace %q: want 1 to %d bytes", ns, maxNamespace)
	}
	bad := func(r rune) bool { return r == '{' || r == '}' || unicode.IsSpace(r) || !unicode.IsPrint(r) }
	if strings.IndexFunc(ns, bad) >= 0 {
		return nil, errors.New("namespace: no braces, spaces or control characters: it is a part of a hash tag")
	}
	s := &space{ns: ns}
	for i := range s.buckets {
		tag := fmt.Sprintf("{%s:%02x}:", ns, i)
		s.buckets[i] = bucket{tag: tag, token: tag + "token", live: tag + "live"}
	}
	return s, nil
}

// record is the key of the namespace record.
func (s *space) record() string { return "{" + s.ns + "}:layout" }

// channel is where a driver hears of its waiters' grants.
func (s *space) channel(driver string) string { return "{" + s.ns + "}:push:" + driver }

// bucket is the one that the key is in: FNV-1a, of 32 bits.
func (s *space) bucket(key string) *bucket {
	h := uint32(2166136261)
	for i := range len(key) {
		h = (h ^ uint32(key[i])) * 16777619
	}
	return &s.buckets[h%buckets]
}

const lockPart = "lock:"

// lock is the key of the lock alone.
func (s *space) lock(key string) string { return s.bucket(key).tag + lockPart + key }

// keys are those that the scripts which may grant use, in the order of lua/lib.lua.
func (s *space) keys(key string) [5]any {
	b := s.bucket(key)
	return [...]any{b.tag + lockPart + key, b.token, b.tag + "queue:" + key, b.tag + "places:" + key, b.live}
}

// pattern matches the lock keys of every key with the prefix, and maybe more.
func (s *space) pattern(prefix string) string {
	return globbed("{"+s.ns+":") + "??}:" + lockPart + globbed(prefix) + "*"
}

// globbed escapes what SCAN's MATCH would take for a pattern.
func globbed(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}

// key is the inverse of lock. False: it is something else.
func (s *space) key(lock string) (string, bool) {
	tag, key, ok := strings.Cut(lock, "}:"+lockPart)
	return key, ok && strings.HasPrefix(tag, "{"+s.ns+":") && s.lock(key) == lock
}
