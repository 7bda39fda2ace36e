package redislock

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/fencelock/locker/driver"
)

func TestParseLock(t *testing.T) {
	t.Parallel()
	a := driver.NewAttempt()
	want := lock{attempt: a, token: 7, since: 1700000000000000, how: tried, owner: "web 3:81", note: "a note\nof \x00 bytes"}
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
		a.String() + " 7 1 t 9 short", a.String() + " 7 1 t -1 short", a.String() + " 7 x t 0 ", a.String() + " 7 - t 0 ",
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
		"granted a word":      {"x", driver.ErrAmbiguous},
		"granted no token":    {"", driver.ErrAmbiguous},
		"a token in a list":   {[]any{int64(granted), "7"}, driver.ErrAmbiguous},
		"held by nobody":      {[]any{int64(held), "x", int64(1), int64(1), int64(0)}, driver.ErrCorrupt},
		"no token is left":    {[]any{int64(exhausted), "ERR increment or decrement would overflow"}, driver.ErrTokenRegression},
		"counter is no count": {[]any{int64(exhausted), "ERR value is not an integer or out of range"}, driver.ErrCorrupt},
	} {
		if a, err := parseAnswer(k.reply); !errors.Is(err, k.want) {
			t.Errorf("%s: got %+v and %v, want %v", name, a, err, k.want)
		}
	}
	if a, err := parseAnswer("9223372036854775807"); err != nil || a.status != granted || a.token != driver.MaxToken {
		t.Errorf("the greatest token: got %v and %v, want %v", a.token, err, driver.MaxToken)
	}
}

// A WAIT that falls short takes back what says that a grant stands, and nothing else.
func TestDoubt(t *testing.T) {
	t.Parallel()
	doubt := errors.New("doubt")
	for name, k := range map[string]struct {
		script      *script
		reply, want any
		whole       bool
	}{
		"a granted try":               {&tryScript, "7", nil, true},
		"found":                       {&tryScript, []any{int64(found), "…", int64(1), int64(1)}, nil, true},
		"held, with one ahead":        {&enqueueScript, []any{int64(held), "…", int64(1), int64(1), int64(1)}, []any{int64(held), "…", int64(1), int64(1), int64(1)}, false},
		"gone":                        {&pollScript, []any{int64(gone)}, []any{int64(gone)}, false},
		"released":                    {&releaseScript, int64(1), nil, true},
		"not mine":                    {&releaseScript, int64(0), int64(0), false},
		"renewed":                     {&renewScript, []any{int64(1)}, []any{doubt}, false},
		"one renewed, and others not": {&renewScript, []any{int64(0), "ERR", int64(1)}, []any{int64(0), "ERR", doubt}, false},
		"nothing":                     {&renewScript, nil, nil, false},
	} {
		r := &run{script: k.script, reply: k.reply}
		if r.doubt(doubt); !reflect.DeepEqual(r.reply, k.want) || (r.err != nil) != k.whole {
			t.Errorf("%s: got %v and %v, want %v and a doubt of the whole: %v", name, r.reply, r.err, k.want, k.whole)
		}
	}
}
