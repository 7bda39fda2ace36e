package redis_test

import (
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/locker/conformance/live"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/redislock"
)

// side is one of two drivers that are asked the same.
type side struct {
	*redislock.Driver
	redis  *redis.Client
	ns     string
	bucket string       // what the names of the key's bucket begin with
	token  driver.Token // of the lock, as last seen
}

func newSide(t *testing.T, s *live.RedisServer, protocol int, o redislock.Options, c *cutting) *side {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr: s.Addr(), Protocol: protocol,
		ContextTimeoutEnabled: true, ReadTimeout: 2 * time.Second, WriteTimeout: 2 * time.Second, // keeps its hooks
	})
	t.Cleanup(func() { _ = client.Close() })
	if c != nil {
		client.AddHook(c)
	}
	o.Namespace = namespace()
	d, err := redislock.NewDriver(short(t), client, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if c != nil && len(c.names) != len(c.short) {
		t.Fatalf("scripts with a short way: got %d, want %d", len(c.names), len(c.short))
	}
	return &side{Driver: d, redis: client, ns: o.Namespace, bucket: fmt.Sprintf("{%s:%02x}:", o.Namespace, bucketOf("k"))}
}

// bucketOf is the number of the bucket that a key is in.
func bucketOf(key string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return h.Sum32() % 256
}

// raw sends a command that is none of the driver's. K in it stands for the bucket.
func (s *side) raw(t *testing.T, command string) {
	t.Helper()
	var args []any
	for _, word := range strings.Fields(command) {
		args = append(args, strings.Replace(word, "K/", s.bucket, 1))
	}
	if err := s.redis.Do(short(t), args...).Err(); err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
		t.Fatalf("%s: %v", command, err)
	}
}

// seen is what a side answered or keeps: words that must be the same on both, and numbers
// that its clock made.
type seen struct {
	words  string
	clocks []int64 // µs
}

func (s *seen) clock(micros int64) { s.clocks = append(s.clocks, micros) }

// token is the word for a token. With a clock floor it is a reading of the clock.
func (s *seen) token(text string) string {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1e15 || n > 4e15 {
		return text
	}
	s.clock(n)
	return "clocked"
}

// stored is a program that shows everything that the server has of the key.
const stored = `
local all = {}
for i, part in ipairs({'lock:k', 'token', 'queue:k', 'places:k', 'live'}) do
  local key = ARGV[1] .. part
  local is = redis.call('TYPE', key).ok
  local has = {}
  if is == 'string' then
    has[1] = redis.call('GET', key)
  elseif is == 'hash' then
    local all = redis.call('HGETALL', key)
    for n = 1, #all, 2 do has[#has + 1] = all[n] .. '=' .. all[n + 1] end
    table.sort(has)
  elseif is == 'zset' then
    local all = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
    for n = 1, #all, 2 do
      if part == 'live' and all[n + 1] ~= '1' then all[n + 1] = 'lives' end
      has[#has + 1] = all[n] .. '=' .. all[n + 1]
    end
    if part == 'live' then table.sort(has) end
  end
  all[i] = {part, is, table.concat(has, '\n'), redis.call('PTTL', key)}
end
return all`

var channelName = regexp.MustCompile(`push:[0-9a-f]{32}`)

// keeps is what the server has of the side's key.
func (s *side) keeps(t *testing.T) (got seen) {
	t.Helper()
	all, err := s.redis.Eval(short(t), stored, nil, s.bucket).Slice()
	if err != nil {
		t.Fatal(err)
	}
	s.token = 0
	for _, one := range all {
		f := one.([]any)
		part, text, left := f[0].(string), f[2].(string), f[3].(int64)
		switch lock := strings.SplitN(text, " ", 5); {
		case part == "token":
			text = got.token(text)
		case part == "lock:k" && len(lock) == 5:
			s.token, _ = driver.ParseToken(lock[1])
			lock[1] = got.token(lock[1])
			if since, err := strconv.ParseInt(lock[2], 10, 64); err == nil && since > 0 {
				got.clock(since * 1000)
				lock[2] = "since"
			}
			if lock[3] == "b" {
				lock[0] = "nobody"
			}
			text = strings.Join(lock, " ")
		}
		lasts := "for ever"
		if left >= 0 {
			lasts = "a while"
			got.clock(left * 1000)
		}
		text = channelName.ReplaceAllString(strings.ReplaceAll(text, s.ns, "ns"), "push")
		got.words += fmt.Sprintf("\n%s, %v, %s: %q", part, f[1], lasts, text)
	}
	return got
}

// answered is what a call returned.
func answered(g driver.Grant, err error) (got seen) {
	var held *driver.HeldError
	switch {
	case err == nil:
		got.words = "granted, token " + got.token(g.Token.String())
		got.clock(g.Left.Microseconds())
	case errors.As(err, &held):
		got.words = fmt.Sprintf("held: token %s, %q, %q, %d ahead", got.token(held.Token.String()), held.Owner, held.Note, held.Ahead)
		got.clock(held.ExpiresIn.Microseconds())
	default:
		for _, is := range []error{
			driver.ErrLost, driver.ErrCorrupt, driver.ErrTokenRegression, driver.ErrUnavailable, driver.ErrAmbiguous,
		} {
			if errors.Is(err, is) {
				got.words += is.Error() + "; "
			}
		}
	}
	return got
}

// differ reports whether two sides answered or keep something else. What their clocks made
// may be as far apart as the two were asked.
func differ(a, b seen, apart time.Duration) bool {
	if a.words != b.words || len(a.clocks) != len(b.clocks) {
		return true
	}
	for i := range a.clocks {
		if d := a.clocks[i] - b.clocks[i]; max(d, -d) > apart.Microseconds() {
			return true
		}
	}
	return false
}
