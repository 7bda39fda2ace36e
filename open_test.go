package locker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/memlock"
)

// closedDriver counts its Close.
type closedDriver struct {
	*memlock.Driver
	closed int
}

func (d *closedDriver) Close() error { d.closed++; return d.Driver.Close() }

func TestOpen(t *testing.T) {
	ctx := t.Context()
	a, err := locker.Open(ctx, "mem://open?ttl=45s&owner=me", nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := locker.Open(ctx, "mem://open", nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := locker.Open(ctx, "mem://open?ns=other", nil)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := a.TryAcquire(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	if lease.TTL() != 45*time.Second {
		t.Errorf("ttl: got %v, want the URL's", lease.TTL())
	}
	var held *locker.HeldError
	if _, err := b.TryAcquire(ctx, "k"); !errors.As(err, &held) || held.Owner != "me" {
		t.Errorf("through another client: got %v, want held by me", err)
	}
	if _, err := other.TryAcquire(ctx, "k"); err != nil {
		t.Errorf("in another namespace: %v", err)
	}
	for _, l := range []*locker.Locker{a, b, other} {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestOpenOptionsWinOverTheURL(t *testing.T) {
	l, err := locker.Open(t.Context(), "mem://options?ttl=45s&owner=url", &locker.Options{TTL: time.Minute, Owner: "code"})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := l.TryAcquire(t.Context(), "k")
	if err != nil || lease.TTL() != time.Minute || lease.Grant().Owner != "code" {
		t.Errorf("got %v, %+v", err, lease.Grant())
	}
	_ = l.Close()
}

func TestOpenClosesWhatItMade(t *testing.T) {
	d := &closedDriver{Driver: memlock.NewServer().Driver()}
	locker.Register(locker.Scheme{Name: "closing", Open: func(context.Context, *locker.URL) (driver.Driver, error) { return d, nil }})
	l, err := locker.Open(t.Context(), "closing://x", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil || d.closed != 1 {
		t.Errorf("closed %d times (%v), want once", d.closed, err)
	}
	if _, err := locker.Open(t.Context(), "closing://x?require=consensus-tokens", nil); !errors.Is(err, locker.ErrUnsupported) || d.closed != 2 {
		t.Errorf("got %v and %d closes, want ErrUnsupported and the driver closed", err, d.closed)
	}
}

func TestOwnClosesTheDriver(t *testing.T) {
	d := &closedDriver{Driver: memlock.NewServer().Driver()}
	l, err := locker.Own(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil || d.closed != 1 {
		t.Errorf("closed %d times (%v), want once", d.closed, err)
	}
	if _, err := locker.Own(d, &locker.Options{TTL: -1}); !errors.Is(err, locker.ErrInvalidTTL) || d.closed != 2 {
		t.Errorf("got %v and %d closes, want ErrInvalidTTL and the driver closed", err, d.closed)
	}
	if _, err := locker.Own(nil, nil); err == nil {
		t.Error("no driver: got nil, want an error")
	}
}

func TestOpenReadsEachParameter(t *testing.T) {
	var got locker.URL
	locker.Register(locker.Scheme{Name: "params", Params: []string{"mode", "flag", "every"}, Passthrough: []string{"sslmode"},
		Open: func(_ context.Context, u *locker.URL) (driver.Driver, error) {
			got = *u
			_, err1 := u.Choice("mode", "fast", "safe")
			_, err2 := u.Bool("flag", false)
			_, err3 := u.Duration("every", time.Second)
			return memlock.NewServer().Driver(), errors.Join(err1, err2, err3)
		}})
	if _, err := locker.Open(t.Context(), "params://u:p@h:1/db?ns=app&mode=safe&flag=true&every=3s&sslmode=require&token_base=7", nil); err != nil {
		t.Fatal(err)
	}
	if s := got.Client.String(); s != "params://u:p@h:1/db?sslmode=require" {
		t.Errorf("the client's URL: got %s, want none of our parameters", s)
	}
	if got.Namespace != "app" || got.TokenBase != 7 || got.Param("mode", "fast") != "safe" {
		t.Errorf("got %+v", got)
	}
	for _, bad := range []string{"mode=slow", "flag=1", "every=-3s", "every=soon"} {
		if _, err := locker.Open(t.Context(), "params://h?"+bad, nil); err == nil || !strings.Contains(err.Error(), strings.SplitN(bad, "=", 2)[0]) {
			t.Errorf("%s: got %v, want an error that names it", bad, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	for raw, want := range map[string]string{
		"reddis://h":                         "forgotten import",
		"h:6379":                             "unknown scheme",
		"":                                   "unknown scheme",
		"mem://x?tll=30s":                    `did you mean "ttl"`,
		"mem://x?ttl=30":                     "want a positive duration",
		"mem://x?ttl=0s":                     "want a positive duration",
		"mem://x?ttl=1ms":                    "invalid ttl",
		"mem://x?ttl=1s&ttl=2s":              "given 2 times",
		"mem://x?ns=":                        "ns is empty",
		"mem://x?token_base=-1":              "token_base",
		"mem://x?require=durable-tokens":     "does not offer durable-tokens (its tokens are ",
		"mem://x?require=magic":              "want consensus-tokens, durable-tokens, processes or queue",
		"mem://x/path":                       "want mem://name",
		"mem://":                             "want mem://name",
		"mem://x?a=%zz":                      "escape it",
		"mem://u:hunter2@h\x7f?x":            "open",
		"mem://x?tlt=30s":                    `did you mean "ttl"`,
		"mem://x?max_retries=3":              `unknown parameter "max_retries": known are`,
		"mem://u:hunter2@x?password=hunter2": `unknown parameter "password": known are`,
		"mem://user:hunter2/x@host":          "escape",
		"mem:user:hunter2@host":              "two slashes",
		"mem://x#a":                          "write %23",
		"mem:/user:hunter2@host":             "want mem://name",
	} {
		_, err := locker.Open(t.Context(), raw, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", raw, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: the error shows the secret: %v", raw, err)
		}
	}
}

func TestOpenTokenBaseIsPartOfTheLayout(t *testing.T) {
	l, err := locker.Open(t.Context(), "mem://based?token_base=100", nil)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := l.TryAcquire(t.Context(), "k")
	if err != nil || lease.Token() != 101 {
		t.Errorf("got token %v (%v), want 101", lease.Token(), err)
	}
	if _, err := locker.Open(t.Context(), "mem://based?token_base=50", nil); !errors.Is(err, locker.ErrLayout) {
		t.Errorf("another token_base: got %v, want ErrLayout", err)
	}
	if !lease.Valid() {
		t.Error("the refused client harmed the namespace")
	}
	_ = l.Close()
}

func TestRedactURL(t *testing.T) {
	for raw, want := range map[string]string{
		"redis://u:hunter2@h/0?ns=a":            "redis://u:xxxxx@h/0?ns=a",
		"postgres://h/db?password=hunter2&ns=a": "postgres://h/db?ns=a&password=xxxxx",
		"s3://b?token_base=7":                   "s3://b?token_base=7",
		"etcd://h?pwd=hunter2":                  "etcd://h?pwd=xxxxx",
		"mem:user:hunter2@host":                 "mem:xxxxx",
		"mem:/user:hunter2@host":                "mem:/xxxxx@host",
		"mem://h#hunter2":                       "mem://h#xxxxx",
		"file:///home/me@work/locks":            "file:///home/me@work/locks",
		"x://h?secret_key=hunter2;b":            "x://h?xxxxx",
		"://hunter2":                            "(unreadable URL)",
	} {
		if got := locker.RedactURL(raw); got != want {
			t.Errorf("%s: got %s, want %s", raw, got, want)
		}
	}
}

func TestRegisterTwicePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	locker.Register(locker.Scheme{Name: "mem", Open: func(context.Context, *locker.URL) (driver.Driver, error) { return nil, nil }})
}
