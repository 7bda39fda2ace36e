package s3lock

import (
	"net/http"
	"testing"
	"time"

	"github.com/fencelock/locker/driver"
)

func TestUnfit(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		old, age time.Duration
		unfit    bool
	}{
		{0, 10 * time.Millisecond, false},
		{time.Second, 10 * time.Millisecond, false}, // the second has changed in between
		{2 * time.Second, 10 * time.Millisecond, true},
		{2 * time.Second, 1500 * time.Millisecond, false},
		{-time.Second, 10 * time.Millisecond, false}, // VersityGW
		{-3 * time.Second, 10 * time.Millisecond, false},
		{-4 * time.Second, 10 * time.Millisecond, true},
	} {
		if why, _ := unfit(fresh(at.Add(-c.old), at, c.age, c.age)); (why != "") != c.unfit {
			t.Errorf("%v old at an age of %v: got %q, want unfit %v", c.old, c.age, why, c.unfit)
		}
	}
	for _, c := range []struct{ modified, date time.Time }{{time.Time{}, at}, {at, time.Time{}}} {
		if why, sure := unfit(fresh(c.modified, c.date, time.Second, time.Second)); why == "" || !sure {
			t.Error("a time that is missing fits")
		}
	}
	// Listings have fractions of seconds, and Date has none.
	if why, _ := unfit(fresh(at.Add(990*time.Millisecond), at.Add(-time.Second), 0, time.Millisecond)); why != "" {
		t.Errorf("got %q", why)
	}
	// Requests that took 4 s hide a Date that is 4 s ahead: nothing is known.
	if why, sure := unfit(fresh(at, at.Add(4*time.Second), 0, 4*time.Second)); why == "" || sure {
		t.Errorf("slow requests: got %q, sure %v; want doubt", why, sure)
	}
	if why, sure := unfit(fresh(at, at.Add(6*time.Second), 0, 4*time.Second)); why == "" || !sure {
		t.Errorf("slow requests do not explain it: got %q, sure %v", why, sure)
	}
}

// fresh is an object that was seen at an age between least and most.
func fresh(modified, date time.Time, least, most time.Duration) (write, time.Time, *answer) {
	now := driver.Now()
	return write{now, now.Add(most - least)}, modified, &answer{began: now.Add(most), arrived: now.Add(most), date: date}
}

// An error of the clocks that is not noticed never makes a record look older than the
// margin allows for.
func TestMarginCoversWhatIsNotNoticed(t *testing.T) {
	t.Parallel()
	base := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const step = 100 * time.Millisecond
	for skewed := time.Duration(0); skewed < 5*time.Second; skewed += step {
		for phase := time.Duration(0); phase < time.Second; phase += step {
			written := base.Add(phase)
			date := func(after time.Duration) time.Time { return written.Add(after + skewed).Truncate(time.Second) }
			if why, _ := unfit(fresh(written.Truncate(time.Second), date(0), 0, 0)); why != "" {
				continue
			}
			for age := time.Duration(0); age < 3*time.Second; age += step {
				if idle := date(age).Sub(written.Truncate(time.Second)); idle-margin > age {
					t.Fatalf("a skew of %v at %v is not noticed: %v old is taken for %v", skewed, phase, age, idle)
				}
			}
		}
	}
}

// Between replies that are far apart clocks may drift, and no more.
func TestHeardAfterALongSilence(t *testing.T) {
	t.Parallel()
	for off, trust := range map[time.Duration]bool{0: true, 3 * time.Second: true, 30 * time.Second: false, time.Hour: false} {
		k := newClock("")
		start := driver.Now()
		base := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		for i, jump := range []time.Duration{0, off} {
			after := time.Duration(i) * 30 * time.Minute
			k.heard(&answer{began: start.Add(after), arrived: start.Add(after + 5*time.Millisecond), header: http.Header{}, date: base.Add(after + jump)})
		}
		if k.trusted() != trust {
			t.Errorf("%v apart after half an hour: trusted %v (%s), want %v", off, k.trusted(), k.why(), trust)
		}
	}
}

func TestHeard(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		dates []time.Duration // of replies that come a second apart, against an even clock
		trust bool
	}{
		"even":                 {[]time.Duration{0, 0, 0, 0, 0}, true},
		"cut to seconds":       {[]time.Duration{0, -time.Second, 0, -time.Second}, true},
		"two front ends":       {[]time.Duration{0, 5 * time.Second, 0}, false},
		"set back":             {[]time.Duration{0, 0, -time.Hour}, false},
		"far off, but even":    {[]time.Duration{time.Hour, time.Hour, time.Hour}, true},
		"three seconds apart":  {[]time.Duration{0, 3 * time.Second}, false},
		"one that is set once": {[]time.Duration{0, time.Minute, time.Minute}, false},
	} {
		k := newClock("")
		start := driver.Now()
		base := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		for i, off := range c.dates {
			after := time.Duration(i) * time.Second
			k.heard(&answer{
				began: start.Add(after), arrived: start.Add(after + 5*time.Millisecond), header: http.Header{},
				date: base.Add(after + off),
			})
		}
		if k.trusted() != c.trust {
			t.Errorf("%s: trusted %v (%s), want %v", name, k.trusted(), k.why(), c.trust)
		}
	}
}
