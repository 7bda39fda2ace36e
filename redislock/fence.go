package redislock

import (
	"context"
	"fmt"
	"math"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/fence"
)

// Token returns the token of a lease for a fence in Redis. A lease of another backend, or
// one that is over, is an error.
func Token(l *locker.Lease) (driver.Token, error) {
	if _, ours := l.Grant().State.(*Driver); !ours {
		return 0, fmt.Errorf("%s: fence: %w: %q is a lease of another backend", name, driver.ErrUnsupported, l.Key())
	}
	if err := l.Err(); err != nil {
		return 0, fmt.Errorf("%s: fence: %q: %w", name, l.Key(), err)
	}
	return l.Token(), nil
}

// Fence guards a resource that is in Redis itself: the check of the token and the write are
// one script. It needs no driver, and the server may be another one than the locks'.
//
// The mark must be as durable as the resource and as the counter behind the tokens: a mark
// in a server that loses its counters, or keeps them while the locks' server loses its own,
// lets an old holder in or keeps every new one out.
//
// A Fence is safe for concurrent use.
type Fence struct {
	sender
	name, mark, value string
}

// NewFence is a fence around the resource with that name. It keeps the greatest token in the
// key {name}:mark, which must not be deleted, and the value of Read and Write in
// {name}:value. Other keys that Do writes should have the hash tag {name}; in a Cluster they
// must. The name is not empty and does not begin with a closing brace. The client is of a kind
// that NewDriver takes, and nothing is sent yet.
func NewFence(client redis.UniversalClient, resource string) (*Fence, error) {
	if resource == "" || resource[0] == '}' {
		return nil, fmt.Errorf("%s: fence %q: want a name that a hash tag can hold: not empty, and no brace first", name, resource)
	}
	f := &Fence{name: resource, mark: "{" + resource + "}:mark", value: "{" + resource + "}:value"}
	if err := f.use(client); err != nil {
		return nil, f.failed(err)
	}
	return f, nil
}

var fenceScript = newScript("", "fence.lua")

// Raise shows the token to the resource. A holder calls it before its first read: from then
// on every smaller token is refused with a *fence.StaleError, which is driver.ErrStale.
func (f *Fence) Raise(ctx context.Context, t driver.Token) error {
	_, err := f.Do(ctx, t)
	return err
}

// Read returns the value, empty if there is none. It raises nothing.
func (f *Fence) Read(ctx context.Context, t driver.Token) (string, error) {
	reply, err := f.send(ctx, t, "0", []any{"GET", f.value})
	if err != nil {
		return "", err
	}
	value, _ := reply.(string)
	return value, nil
}

// Write writes the value, if no greater token was seen.
func (f *Fence) Write(ctx context.Context, t driver.Token, value string) error {
	_, err := f.Do(ctx, t, "SET", f.value, value)
	return err
}

// Do runs one command of Redis, if no greater token was seen, and raises the mark, in one
// step. It returns the command's reply. A refusal is a *fence.StaleError and has changed
// nothing. An error of the command itself, driver.ErrUnavailable or driver.ErrCorrupt beside
// the redis.Error, comes after the mark was raised. A mark that is no number is
// driver.ErrCorrupt, and stays. An unknown outcome is driver.ErrAmbiguous.
func (f *Fence) Do(ctx context.Context, t driver.Token, cmd ...any) (any, error) {
	return f.send(ctx, t, "1", cmd)
}

func (f *Fence) send(ctx context.Context, t driver.Token, raise string, cmd []any) (any, error) {
	if t == 0 || t > math.MaxInt64 {
		return nil, f.failed(driver.Wrap(driver.ErrStale, fmt.Errorf("%d is no token", uint64(t))))
	}
	reply, err := f.one(ctx, newRun(&fenceScript, []any{f.mark, f.value}, append([]any{t.String(), raise}, cmd...)...))
	if err != nil {
		return nil, f.failed(err)
	}
	answer, _ := reply.([]any)
	if len(answer) == 0 {
		return nil, f.failed(driver.Wrap(driver.ErrAmbiguous, errReply))
	}
	if mark, stale := answer[0].(string); stale && mark != "" {
		seen, err := driver.ParseToken(mark)
		if err != nil {
			return nil, f.failed(driver.Wrap(driver.ErrCorrupt, err))
		}
		return nil, &fence.StaleError{Resource: f.name, Token: t, Mark: seen}
	}
	if len(answer) < 2 {
		return nil, nil
	}
	if len(answer) > 2 { // the command's own error
		text, _ := answer[2].(string)
		return nil, f.failed(refused(said(text)))
	}
	return answer[1], nil
}

func (f *Fence) failed(err error) error { return fmt.Errorf("%s: fence %q: %w", name, f.name, err) }
