package driver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/locker/driver"
)

func TestParseToken(t *testing.T) {
	for _, good := range []driver.Token{1, 9, 1 << 40, driver.MaxToken} {
		if got, err := driver.ParseToken(good.String()); err != nil || got != good {
			t.Errorf("%v: got %v, %v", good, got, err)
		}
	}
	for _, bad := range []string{"", "0", "-1", "+1", "007", "1.0", "9223372036854775808", "x"} {
		if got, err := driver.ParseToken(bad); err == nil {
			t.Errorf("%q: got %v, want an error", bad, got)
		}
	}
}

func TestTokenText(t *testing.T) {
	type doc struct{ T driver.Token }
	for _, d := range []doc{{driver.MaxToken}, {0}} {
		b, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var back doc
		if err := json.Unmarshal(b, &back); err != nil || back != d {
			t.Errorf("%s: got %v, %v", b, back, err)
		}
	}
	b, _ := driver.Token(42).MarshalBinary()
	var tok driver.Token
	if err := tok.UnmarshalBinary(b); err != nil || tok != 42 || string(b) != "42" {
		t.Errorf("binary %q: got %v, %v", b, tok, err)
	}
}

func TestAttempts(t *testing.T) {
	a, b := driver.NewAttempt(), driver.NewAttempt()
	if a == b || a.IsZero() || !(driver.Attempt{}).IsZero() {
		t.Errorf("%v and %v", a, b)
	}
	if got, err := driver.ParseAttempt(a.String()); err != nil || got != a {
		t.Errorf("got %v, %v; want %v", got, err, a)
	}
	for _, bad := range []string{"", "00", strings.Repeat("g", 32), strings.Repeat("0", 34)} {
		if _, err := driver.ParseAttempt(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestIsAmbiguous(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{driver.ErrAmbiguous, true},
		{context.DeadlineExceeded, true},
		{fmt.Errorf("read: %w", io.ErrUnexpectedEOF), true},
		{driver.ErrUnavailable, false},
		{&driver.HeldError{}, false},
		{driver.ErrLost, false},
		{driver.Wrap(driver.ErrUnavailable, context.Canceled), false},
		{driver.Wrap(driver.ErrAmbiguous, driver.ErrLost), true},
	} {
		if got := driver.IsAmbiguous(c.err); got != c.want {
			t.Errorf("%v: got %v, want %v", c.err, got, c.want)
		}
	}
}

func TestErrorsUnwrapToSentinelAndCause(t *testing.T) {
	err := error(&driver.Error{Op: "renew", Key: "k", Backend: "redislock", Err: driver.Wrap(driver.ErrAmbiguous, io.EOF)})
	if !errors.Is(err, driver.ErrAmbiguous) || !errors.Is(err, io.EOF) {
		t.Errorf("%v hides what it wraps", err)
	}
	if got, want := err.Error(), `redislock: renew "k": outcome unknown: EOF`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	held := &driver.HeldError{Owner: "a\nb", Token: 7, ExpiresIn: 29400 * time.Millisecond}
	if got, want := held.Error(), `held by "a\nb" (token 7, 29s left)`; got != want || !errors.Is(held, driver.ErrHeld) {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestInstantTakesTheLargerDifference(t *testing.T) {
	a := driver.Now()
	if d := a.Add(time.Second).Sub(a); d != time.Second {
		t.Errorf("got %v, want 1s", d)
	}
	if d := a.SkewBoot(time.Minute).Sub(a); d != time.Minute {
		t.Errorf("across a suspend: got %v, want 1m", d)
	}
	if d := a.Add(time.Second).SkewBoot(-time.Minute).Sub(a); d != time.Second {
		t.Errorf("with a boot clock that stands still: got %v, want 1s", d)
	}
	p := driver.PackageNow()
	if d := a.SkewBoot(time.Hour).Sub(p); d > time.Minute {
		t.Errorf("against package time alone: got %v", d)
	}
	if !(driver.Instant{}).IsZero() || a.IsZero() {
		t.Error("IsZero")
	}
	one, known := a.Ahead()
	two, _ := a.Add(time.Hour).SkewBoot(time.Second).Ahead()
	if known && (two-one).Round(time.Millisecond) != time.Second {
		t.Errorf("the boot clock gained %v, want the second of suspend", two-one)
	}
}

func TestServerClock(t *testing.T) {
	var c driver.ServerClock
	if _, _, ok := c.Left(time.Hour); ok {
		t.Error("it knows an expiry before any answer")
	}
	sent := driver.PackageNow()
	c.Answered(sent, 100*time.Second)
	from, left, ok := c.Left(107 * time.Second)
	if !ok || from != sent || left != 7*time.Second {
		t.Errorf("got %v from %v, %v", left, from, ok)
	}
	c.Forget()
	if _, _, ok := c.Left(time.Hour); ok {
		t.Error("it knows the clock of a server that it left")
	}
}

func TestIntervals(t *testing.T) {
	for _, c := range []struct{ ttl, poll, horizon, claim time.Duration }{
		{2 * time.Second, 500 * time.Millisecond, 1500 * time.Millisecond, time.Second},
		{20 * time.Second, 5 * time.Second, 15 * time.Second, 10 * time.Second},
		{time.Minute, 5 * time.Second, 15 * time.Second, 10 * time.Second},
	} {
		if p, h, w := driver.PollInterval(c.ttl), driver.Horizon(c.ttl), driver.ClaimWindow(c.ttl); p != c.poll || h != c.horizon || w != c.claim {
			t.Errorf("ttl %v: got %v, %v, %v", c.ttl, p, h, w)
		}
	}
}

// shelf keeps one namespace record.
type shelf struct {
	record           []byte
	reads            int
	loseReply, racer bool
}

func (s *shelf) store() driver.LayoutStore {
	return driver.LayoutStore{
		Read: func(context.Context) ([]byte, error) { s.reads++; return s.record, nil },
		Create: func(_ context.Context, b []byte) (bool, error) {
			if s.racer {
				s.record = []byte(`{"version":1,"backend":"b","token_base":"9"}`)
				return false, nil
			}
			s.record = b
			if s.loseReply {
				return false, io.EOF
			}
			return true, nil
		},
	}
}

func TestLayout(t *testing.T) {
	ctx := context.Background()
	want := driver.Layout{Backend: "b", TokenBase: 5, Settings: map[string]string{"buckets": "256"}}
	for _, s := range []*shelf{{}, {loseReply: true}} {
		if err := want.Agree(ctx, s.store()); err != nil {
			t.Fatal(err)
		}
		if s.reads = 0; want.Agree(ctx, s.store()) != nil || s.reads != 1 {
			t.Errorf("%d reads of a namespace that exists, want 1", s.reads)
		}
		for _, other := range []driver.Layout{
			{Backend: "c", TokenBase: 5, Settings: want.Settings},
			{Backend: "b", Settings: want.Settings},
			{Backend: "b", TokenBase: 5},
			{Backend: "b", TokenBase: 5, Settings: map[string]string{"buckets": "256", "mode": "x"}},
		} {
			if err := other.Agree(ctx, s.store()); !errors.Is(err, driver.ErrLayout) {
				t.Errorf("%+v: got %v, want ErrLayout", other, err)
			}
		}
	}
	if err := want.Agree(ctx, (&shelf{racer: true}).store()); !errors.Is(err, driver.ErrLayout) || !strings.Contains(err.Error(), "token_base") {
		t.Errorf("somebody else was first: got %v, want ErrLayout that names token_base", err)
	}
	for record, is := range map[string]error{
		`{"version":2,"new":true}`: driver.ErrLayout, `{"version":2}`: driver.ErrLayout,
		"garbage": driver.ErrCorrupt, "{}": driver.ErrCorrupt, `{"version":1,"backend":"b","x":1}`: driver.ErrCorrupt,
	} {
		if err := want.Agree(ctx, (&shelf{record: []byte(record)}).store()); !errors.Is(err, is) {
			t.Errorf("%s: got %v, want %v", record, err, is)
		}
	}
}
