package redislock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/locker/driver"
)

// reply is an error reply of Redis.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

func TestFailure(t *testing.T) {
	t.Parallel()
	for _, k := range []struct {
		err     error
		written bool
		want    error
	}{
		{io.EOF, true, driver.ErrAmbiguous},
		{io.EOF, false, driver.ErrUnavailable},
		{context.DeadlineExceeded, true, driver.ErrAmbiguous},
		{context.DeadlineExceeded, false, driver.ErrUnavailable},
		{redis.ErrPoolTimeout, false, driver.ErrUnavailable},
		{redis.ErrClosed, false, driver.ErrClosed},
		{reply("OOM command not allowed"), true, driver.ErrUnavailable},
		{reply("READONLY You can not run script with write flag on readonly replica."), true, driver.ErrUnavailable},
		{reply("LOADING Redis is loading the dataset in memory"), true, driver.ErrUnavailable},
		{reply("WRONGTYPE Operation against a key script: abc, on @user_script:4."), true, driver.ErrCorrupt},
		{reply("ERR something script: abc, on @user_script:4."), true, driver.ErrAmbiguous},
		{driver.Wrap(driver.ErrAmbiguous, io.EOF), false, driver.ErrAmbiguous},
	} {
		got := failure(k.err, k.written)
		if !errors.Is(got, k.want) || !errors.Is(got, k.err) {
			t.Errorf("failure(%v, %v): got %v, want %v beside it", k.err, k.written, got, k.want)
		}
		if driver.IsAmbiguous(got) != errors.Is(k.want, driver.ErrAmbiguous) {
			t.Errorf("failure(%v, %v): IsAmbiguous: got %v", k.err, k.written, driver.IsAmbiguous(got))
		}
	}
}

// Where a permission is missing inside a script, the line says whether anything was written.
func TestFailed(t *testing.T) {
	t.Parallel()
	first := 0
	for n := range 500 {
		if tryScript.early[strconv.Itoa(n)] {
			first = n
			break
		}
	}
	for _, text := range []string{
		"ERR The user executing the script can't run this command or subcommand script: abc, on @user_script:%d.",
		"ERR ACL failure in script: User app has no permissions to run the 'get' command script: abc, on @user_script:%d.",
	} {
		for line, want := range map[int]error{first: driver.ErrUnavailable, 1: driver.ErrAmbiguous} {
			r := &run{script: &tryScript, err: reply(fmt.Sprintf(text, line))}
			if got := r.failed(true); !errors.Is(got, want) || !strings.Contains(got.Error(), "redis.md") {
				t.Errorf("failed(%v): got %v, want %v with advice", r.err, got, want)
			}
		}
	}
}

// What is written is noted, and nothing is written behind the end of the call.
func TestGuard(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	late, done := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer done()
	for _, ctx := range []context.Context{ended, late} {
		g := &guard{ctx: ctx}
		if _, err := g.MarshalBinary(); err == nil || g.written.Load() {
			t.Errorf("behind the end: got %v, written %v, want an error and nothing", err, g.written.Load())
		}
	}
	g := &guard{ctx: t.Context()}
	if b, err := g.MarshalBinary(); err != nil || len(b) != 0 || !g.written.Load() {
		t.Errorf("in time: got %q, %v, written %v, want nothing, nil and true", b, err, g.written.Load())
	}
}

func TestNoRetry(t *testing.T) {
	t.Parallel()
	var c redis.Cmder = command{redis.NewCmd(t.Context(), "ping")}
	if !c.NoRetry() {
		t.Error("NoRetry: got false, want true: a second send of an attempt whose first was lost made two grants")
	}
}

// The caller's client is not changed, and the clone ends calls at their deadline.
func TestPrompt(t *testing.T) {
	t.Parallel()
	for _, o := range []redis.Options{{}, {ContextTimeoutEnabled: true}, {ContextTimeoutEnabled: true, ReadTimeout: -1}} {
		c := redis.NewClient(&o)
		before := *c.Options()
		got := prompt(c).Options()
		if !got.ContextTimeoutEnabled || got.ReadTimeout != callLimit || got.WriteTimeout != callLimit {
			t.Errorf("the clone: got context timeouts %v, %v and %v", got.ContextTimeoutEnabled, got.ReadTimeout, got.WriteTimeout)
		}
		if after := c.Options(); after.ContextTimeoutEnabled != before.ContextTimeoutEnabled || after.ReadTimeout != before.ReadTimeout {
			t.Error("the caller's client was changed")
		}
		_ = c.Close()
	}
	c := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true, ReadTimeout: time.Second})
	defer func() { _ = c.Close() }()
	if prompt(c) != c {
		t.Error("a client that is prompt already: got a clone, want itself, hooks and all")
	}
}
