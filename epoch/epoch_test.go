package epoch

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/locker/driver"
)

func TestRecordCheck(t *testing.T) {
	t.Parallel()
	good := Record{Layout: 1, Key: "k", Epoch: 3, Holder: driver.NewAttempt(), ValidityMS: 1000}
	if err := good.Check("k", 3); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Record){
		"version 2":   func(r *Record) { r.Layout = 2 },
		"no version":  func(r *Record) { r.Layout = 0 },
		"key":         func(r *Record) { r.Key = "l" },
		"epoch":       func(r *Record) { r.Epoch = 4 },
		"attempt":     func(r *Record) { r.Holder = driver.Attempt{} },
		"no validity": func(r *Record) { r.ValidityMS = 0 },
		"too valid":   func(r *Record) { r.ValidityMS = 1 << 62 },
		"shift":       func(r *Record) { r.Shift = 1 << 63 },
	} {
		r := good
		spoil(&r)
		if err := r.Check("k", 3); !errors.Is(err, driver.ErrCorrupt) {
			t.Errorf("%s: got %v, want ErrCorrupt", name, err)
		}
	}
	if b, err := Encode(good); err != nil || !strings.HasSuffix(string(b), "}\n") || strings.Contains(string(b), "ending") {
		t.Errorf("%s, %v", b, err)
	}
}

func TestKindEnds(t *testing.T) {
	t.Parallel()
	for k, want := range map[Kind]bool{Released: true, Undone: true, Sealed: true, Discarded: true, BrokenNow: true, Broken: false, "": false, "later": false} {
		if got := k.Ends(); got != want {
			t.Errorf("%q.Ends() = %v", k, got)
		}
	}
}

// A failure that can have granted nothing is definite, whatever the raw error is.
func TestUnavailableIsDefinite(t *testing.T) {
	t.Parallel()
	raw := driver.Wrap(driver.ErrAmbiguous, errors.New("timeout"))
	err := unavailable(raw)
	if driver.IsAmbiguous(err) || !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrAmbiguous) {
		t.Errorf("got %v", err)
	}
	if err := unavailable(ErrNotExist); driver.IsAmbiguous(err) {
		t.Errorf("a store's own sentinel: got %v", err)
	}
	if err := unavailable(driver.ErrCorrupt); !errors.Is(err, driver.ErrCorrupt) {
		t.Errorf("got %v", err)
	}
}

func TestGrantedRoundsUp(t *testing.T) {
	t.Parallel()
	for in, want := range map[time.Duration]time.Duration{
		time.Second: time.Second, time.Millisecond + 1: 2 * time.Millisecond, 1: time.Millisecond,
	} {
		if got := granted(in); got != want {
			t.Errorf("granted(%v) = %v, want %v", in, got, want)
		}
	}
}

// A floor raises the shift and never the number; tokens end before they wrap.
func TestNext(t *testing.T) {
	t.Parallel()
	d := New(nil, Options{TokenBase: 100})
	for _, c := range []struct {
		at       place
		floor    driver.Token
		n, shift uint64
	}{
		{place{}, 0, 1, 0},
		{place{n: 4, shift: 7}, 0, 5, 7},
		{place{n: 4, shift: 7}, 112, 5, 8},
		{place{n: 4}, 1000, 5, 896},
	} {
		n, shift, err := d.next(c.at, c.floor)
		if err != nil || n != c.n || shift != c.shift {
			t.Errorf("next(%v, %v) = %d, %d, %v, want %d, %d", c.at, c.floor, n, shift, err, c.n, c.shift)
		}
		if got := d.token(n, shift); got <= c.floor {
			t.Errorf("token %v is not above the floor %v", got, c.floor)
		}
	}
	if _, _, err := d.next(place{n: 1}, driver.MaxToken); !errors.Is(err, driver.ErrTokenRegression) {
		t.Errorf("above the greatest token: got %v, want ErrTokenRegression", err)
	}
}

// Lapsed is never earlier than the rules say.
func TestLapsed(t *testing.T) {
	t.Parallel()
	d := New(nil, Options{})
	s := func(v View, quiet time.Duration) sight {
		v.ValidityMS, v.Margin = 2000, 10*time.Millisecond
		return sight{View: v, quiet: quiet}
	}
	const validity = 2 * time.Second
	for name, c := range map[string]struct {
		s    sight
		want bool
	}{
		"dead":                {s(View{Dead: true}, 0), true},
		"known, old":          {s(View{Known: true, Idle: validity + 10*time.Millisecond}, 0), true},
		"known, margin":       {s(View{Known: true, Idle: validity + 10*time.Millisecond - 1}, time.Hour), false},
		"observed, new":       {s(View{}, 0), false},
		"observed, validity":  {s(View{}, validity+10*time.Millisecond), false},
		"observed, rates too": {s(View{}, validity+30*time.Millisecond), true},
	} {
		if got := d.lapsed(c.s); got != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestShiftOf(t *testing.T) {
	t.Parallel()
	whole, err := Encode(Record{Shift: 100, Token: 101})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]uint64{
		string(whole): 100, `{"shift": 100, "tok`: 100, `{"shift": 10`: 0, `{"shift": 99999999999999999999, `: 0, `{"shift": -1,`: 0, "": 0, "hello": 0,
	} {
		if got := ShiftOf([]byte(text)); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
}
