package epoch

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencelock/locker/driver"
)

// twice is a store with one record, behind something that delivers every end twice and
// passes the second answer on.
type twice struct {
	Store
	n       uint64
	record  Record
	version int
	applies bool // ends; else somebody else's came first
}

func (s *twice) Newest(context.Context, string) (uint64, error) { return s.n, nil }

func (s *twice) Create(_ context.Context, _ string, n uint64, r Record) (Version, error) {
	s.n, s.record = n, r
	s.version++
	return s.version, nil
}

func (s *twice) Read(context.Context, string, uint64, Version) (View, error) {
	kind := s.record.Ending.Kind
	return View{Record: s.record, Version: s.version, Ended: kind.Ends(), Broken: kind == Broken}, nil
}

func (s *twice) End(_ context.Context, _ string, _ uint64, v Version, r Record) error {
	if v == s.version {
		if !s.applies {
			r.Writer, r.Ending.Kind = driver.NewAttempt(), BrokenNow
		}
		s.record = r
		s.version++
	}
	return ErrChanged
}

func (s *twice) Drop(Version) {}

// An end that was delivered twice is known by its writer. Somebody else's is not one's own.
func TestEndThatIsDeliveredTwice(t *testing.T) {
	t.Parallel()
	for _, applies := range []bool{true, false} {
		var want error
		if !applies {
			want = driver.ErrLost
		}
		for name, end := range map[string]func(*Driver, driver.Grant) error{
			"release": func(d *Driver, g driver.Grant) error { return d.Release(t.Context(), g) },
			"break now": func(d *Driver, g driver.Grant) error {
				return d.Break(t.Context(), "k", g.Token, driver.Break{Now: true})
			},
		} {
			d := New(&twice{applies: applies}, Options{})
			g, err := d.TryAcquire(t.Context(), driver.Request{Key: "k", Attempt: driver.NewAttempt(), TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			if err := end(d, g); !errors.Is(err, want) {
				t.Errorf("%s, applied %v: got %v, want %v", name, applies, err, want)
			}
			if err := d.Release(t.Context(), g); !errors.Is(err, driver.ErrLost) {
				t.Errorf("%s, applied %v, and a release: got %v, want ErrLost", name, applies, err)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
