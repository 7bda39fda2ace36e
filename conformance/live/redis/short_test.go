package redis_test

import (
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // the name that Redis gives to a script
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/redislock"
)

// cutting takes the short ways out of the scripts that a driver loads and runs.
type cutting struct {
	short []string          // their texts
	names map[string]string // the whole scripts' names: those of what is left
}

func (*cutting) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *cutting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			args := cmd.Args()
			if len(args) != 3 || args[0] != "script" {
				continue
			}
			whole, _ := args[2].(string)
			for _, s := range c.short {
				if rest := strings.Replace(whole, s, "", 1); rest != whole {
					args[2], c.names[named(whole)] = rest, named(rest)
				}
			}
		}
		return next(ctx, cmds)
	}
}

func (c *cutting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); cmd.Name() == "evalsha" {
			name, _ := args[1].(string)
			args[1] = cmp.Or(c.names[name], name)
		}
		return next(ctx, cmd)
	}
}

func named(source string) string {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}

// counters are what an operator, or time, may have made of the counter.
var counters = []string{
	"DEL K/token", "SET K/token 41", "SET K/token 9007199254740990", "SET K/token 9007199254740992", "SET K/token 4611686018427387904",
	"SET K/token 9223372036854775806", "SET K/token 9223372036854775807", "SET K/token -3", "SET K/token many", "SET K/token 7 PX 60000",
}

// foreign keys stand where ours would, and others' are gone.
var foreign = []string{
	"SET K/lock:k nonsense PX 60000", "HSET K/lock:k f v", "SET K/queue:k junk", "SET K/places:k junk", "SET K/live junk",
	"DEL K/queue:k", "DEL K/places:k", "DEL K/live", "ZADD K/queue:k 1 nobody", "PERSIST K/lock:k", "HSET K/token f v",
}

// step chooses what both sides are asked next.
func step(r *rand.Rand, attempts []driver.Request) (what string, do func(t *testing.T, s *side) seen) {
	i := r.IntN(len(attempts))
	q := attempts[i]
	a := fmt.Sprintf(" %c", 'A'+i)
	raw := func(commands ...string) (string, func(t *testing.T, s *side) seen) {
		return strings.Join(commands, "; "), func(t *testing.T, s *side) seen {
			for _, c := range commands {
				s.raw(t, c)
			}
			return seen{}
		}
	}
	switch n := r.IntN(100); {
	case n < 30:
		if n < 3 {
			q.Floor = driver.Token(r.IntN(60))
			a += " above " + q.Floor.String()
		}
		return "try" + a, func(t *testing.T, s *side) seen { return answered(s.TryAcquire(short(t), q)) }
	case n < 38:
		return "enqueue" + a, func(t *testing.T, s *side) seen { return answered(s.Enqueue(short(t), q)) }
	case n < 44:
		return "poll" + a, func(t *testing.T, s *side) seen { return answered(s.Poll(short(t), q)) }
	case n < 48:
		return "renew" + a, func(t *testing.T, s *side) seen {
			return answered(s.Renew(short(t), driver.Grant{Request: q, Token: max(s.token, 1)}))
		}
	case n < 74:
		return "release" + a, func(t *testing.T, s *side) seen {
			return answered(driver.Grant{}, s.Release(short(t), driver.Grant{Request: q}))
		}
	case n < 78:
		b := driver.Break{Now: n < 76, By: "test"}
		return fmt.Sprint("break, now ", b.Now), func(t *testing.T, s *side) seen {
			return answered(driver.Grant{}, s.Break(short(t), "k", max(s.token, 1), b))
		}
	case n < 82: // dead waiters
		return raw("ZADD K/live XX 1 " + q.Attempt.String())
	case n < 86: // the next one finds a lock that has expired, and Redis has not noticed
		what, do := step(r, attempts)
		return "expiry and " + what, func(t *testing.T, s *side) seen {
			s.raw(t, "PEXPIRE K/lock:k 1")
			begun := s.redis.Time(short(t)).Val()
			eventually(t, 5*time.Second, "three milliseconds", func() bool {
				return s.redis.Time(short(t)).Val().Sub(begun) > 3*time.Millisecond
			})
			return do(t, s)
		}
	case n < 90:
		return raw(counters[r.IntN(len(counters))])
	case n < 94:
		return raw(foreign[r.IntN(len(foreign))])
	}
	return raw("DEL K/lock:k K/queue:k K/places:k K/live", "SET K/token 5")
}

// The short ways of a try and a release answer and write what the scripts without them do,
// in whatever state they find the key.
func TestShortWay(t *testing.T) {
	t.Parallel()
	s := shared(t)
	var texts []string
	for _, file := range []string{"try_free.lua", "release_alone.lua"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "redislock", "lua", file))
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	for seed := range uint64(32) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			var o redislock.Options
			switch seed % 6 {
			case 1:
				o.TokenBase = 100
			case 2:
				o.ClockFloor = true
			}
			protocol := 2 + int(seed/6)%2
			cut := &cutting{short: texts, names: map[string]string{}}
			sides := [2]*side{newSide(t, s, protocol, o, nil), newSide(t, s, protocol, o, cut)}
			alike(t, sides, rand.New(rand.NewPCG(seed, 0))) //nolint:gosec // to be repeated
		})
	}
}

// alike asks both sides the same at random.
func alike(t *testing.T, sides [2]*side, r *rand.Rand) {
	attempts := make([]driver.Request, 3)
	for i := range attempts {
		attempts[i] = request("k")
		attempts[i].TTL = time.Minute
		attempts[i].Owner, attempts[i].Note = fmt.Sprintf("owner %d", i), "a note"
	}
	var did []string
	apart := 10 * time.Millisecond // in time, at most, were the two asked the same
	begun := time.Now()
	for range 80 {
		if time.Since(begun) > driver.Horizon(attempts[0].TTL)/3 {
			return // so slow that places and claims would soon end by themselves
		}
		what, do := step(r, attempts)
		did = append(did, what)
		var answers, keep [2]seen
		asked := time.Now()
		for i, side := range sides {
			answers[i] = do(t, side)
		}
		for i, side := range sides {
			keep[i] = side.keeps(t)
		}
		apart = max(apart, time.Since(asked)+10*time.Millisecond)
		if differ(answers[0], answers[1], apart) {
			t.Errorf("answer with the short way: got %+v, want %+v, as without it", answers[0], answers[1])
		}
		if differ(keep[0], keep[1], apart) {
			t.Errorf("kept with the short way: got %+v, want %+v, as without it", keep[0], keep[1])
		}
		if t.Failed() {
			t.Fatalf("the steps, on a connection of RESP%d: %s", sides[0].redis.Options().Protocol, strings.Join(did, ", "))
		}
	}
}
