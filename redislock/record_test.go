package redislock

import (
	"errors"
	"strings"
	"testing"

	"github.com/fencelock/locker/driver"
)

func TestParseLock(t *testing.T) {
	t.Parallel()
	a := driver.NewAttempt()
	want := lock{attempt: a, token: 7, granted: 1700000000000000, how: tried, owner: "web 3:81", note: "a note\nof \x00 bytes"}
	value := a.String() + " 7 1700000000000000 t " + tail(want.owner, want.note)
	got, err := parseLock(value)
	if err != nil || got != want {
		t.Errorf("parseLock(%q): got %+v and %v, want %+v", value, got, err, want)
	}
	if g := (driver.Grant{Request: driver.Request{Attempt: a}, Token: 7}); !strings.HasPrefix(value, head(g)) {
		t.Errorf("head: got %q, want how %q begins", head(g), value)
	}
	for _, bad := range []string{
		"", "hello", strings.Replace(value, " 7 ", " 0 ", 1), strings.Replace(value, a.String(), "xx", 1),
		a.String() + " 7 1 t 9 short", a.String() + " 7 1 t -1 short", a.String() + " 7 x t 0 ",
	} {
		if got, err := parseLock(bad); !errors.Is(err, driver.ErrCorrupt) {
			t.Errorf("parseLock(%q): got %+v and %v, want %v", bad, got, err, driver.ErrCorrupt)
		}
	}
}

func TestParseAnswer(t *testing.T) {
	t.Parallel()
	for name, k := range map[string]struct {
		reply any
		want  error
	}{
		"nothing":             {nil, driver.ErrAmbiguous},
		"a number":            {int64(1), driver.ErrAmbiguous},
		"empty":               {[]any{}, driver.ErrAmbiguous},
		"of another status":   {[]any{int64(99)}, driver.ErrAmbiguous},
		"granted no token":    {[]any{int64(granted)}, driver.ErrAmbiguous},
		"granted a word":      {[]any{int64(granted), "x"}, driver.ErrAmbiguous},
		"held by nobody":      {[]any{int64(held), "x", int64(1), int64(1), int64(0)}, driver.ErrCorrupt},
		"no token is left":    {[]any{int64(exhausted), "ERR increment or decrement would overflow"}, driver.ErrTokenRegression},
		"counter is no count": {[]any{int64(exhausted), "ERR value is not an integer or out of range"}, driver.ErrCorrupt},
	} {
		if a, err := parseAnswer(k.reply); !errors.Is(err, k.want) {
			t.Errorf("%s: got %+v and %v, want %v", name, a, err, k.want)
		}
	}
	if a, err := parseAnswer([]any{int64(granted), "9223372036854775807"}); err != nil || a.token != driver.MaxToken {
		t.Errorf("the greatest token: got %v and %v, want %v", a.token, err, driver.MaxToken)
	}
}
