package epoch

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
)

// modelStore is one client's view of the world's store. It is an object store whose
// writes are conditional or, with bounds.unlinked, a directory: beats go to the record
// they belong to but nobody's End can compare them.
type modelStore struct {
	w *world
	t *thread
}

var errUnanswered = errors.New("no answer")

func (s *modelStore) thread(ctx context.Context) *thread {
	if t, ok := ctx.Value(threadKey{}).(*thread); ok {
		return t
	}
	return s.t
}

// call is one request: it leaves, is applied or not, and is answered or not.
func (s *modelStore) call(ctx context.Context, op string, n uint64, changes bool, apply func() error) error {
	t := s.thread(ctx)
	t.learn(op, int(n))
	t.pause(op)
	if t.stopped {
		return errStopped
	}
	if s.w.lost < s.w.b.lost && !s.w.calm && t.choose("answer "+op, 2) == 1 {
		s.w.lost++
		if changes {
			s.w.late = append(s.w.late, lateCall{fmt.Sprint(t.name, " ", op, " ", n, " ", t.hist), func() { _ = apply() }})
		}
		t.unread = true
		t.learn("unanswered")
		return errUnanswered
	}
	err := apply()
	t.unread = true
	switch {
	case errors.Is(err, ErrExist):
		t.learn("exist")
	case errors.Is(err, ErrNotExist):
		t.learn("not exist")
	case errors.Is(err, ErrChanged):
		t.learn("changed")
	}
	return err
}

func (s *modelStore) Newest(ctx context.Context, _ string) (newest uint64, err error) {
	err = s.call(ctx, "newest", 0, false, func() error {
		for n := range s.w.recs {
			newest = max(newest, n)
		}
		return nil
	})
	s.thread(ctx).learn("newest", int(newest))
	return newest, err
}

// Below is for records that cannot be read, of which the model has none.
func (s *modelStore) Below(context.Context, string, uint64) (uint64, error) {
	panic("the model damages no record")
}

func (s *modelStore) Read(ctx context.Context, _ string, n uint64, _ Version) (v View, err error) {
	t := s.thread(ctx)
	clock, mtime := s.w.now, 0
	if s.w.b.unlinked && !s.w.b.lateClock && !s.w.b.observed {
		t.arrive()
		clock = s.w.now
		t.learn("clock", clock)
	}
	err = s.call(ctx, "read", n, false, func() error {
		r := s.w.recs[n]
		if r == nil {
			return ErrNotExist
		}
		if !s.w.b.unlinked { // the store's own clock
			clock = s.w.now
		}
		mtime = r.mtime
		v = View{Record: r.r, Ended: r.ended, Broken: r.broken, Version: version{r.birth, r.writes}, Known: !s.w.b.observed}
		t.learn("view", int(v.Holder[0]), int(v.Holder[1]), r.birth, r.writes)
		if r.ended {
			t.learn("ended")
		}
		if r.broken {
			t.learn("broken")
		}
		return nil
	})
	if err != nil {
		return v, err
	}
	if s.w.b.lateClock { // the negative control
		t.arrive()
		clock = s.w.now
	}
	if v.Known {
		v.Idle = time.Duration(max(0, clock-mtime)) * tick
		t.learn("idle", min(clock-mtime, s.w.b.ttl))
	} else {
		v.ID = fmt.Sprint(v.Version, mtime)
		t.learn("id", mtime)
	}
	return v, nil
}

func (s *modelStore) Create(ctx context.Context, _ string, n uint64, r Record) (v Version, err error) {
	if n > s.w.b.epochs {
		return nil, ErrNotExist // outside the bounds; definite, and granted to nobody
	}
	err = s.call(ctx, "create", n, true, func() error {
		if s.w.recs[n] != nil {
			return ErrExist
		}
		s.w.births[n]++
		s.w.recs[n] = &stored{r: r, birth: s.w.births[n], mtime: s.w.now, ended: r.Ending.Kind.Ends()}
		v = version{s.w.births[n], 0}
		return nil
	})
	return v, err
}

func (s *modelStore) Beat(ctx context.Context, _ string, n uint64, v Version, r Record) (Version, error) {
	if s.w.b.unlinked {
		return v, s.touch(ctx, n, v.(version).birth)
	}
	var now Version
	err := s.call(ctx, "beat", n, true, func() error {
		have := s.w.recs[n]
		switch {
		case have == nil:
			return ErrNotExist
		case s.w.b.overwrite:
			have.ended, have.broken = false, false
		case v != Version(version{have.birth, have.writes}), have.ended, have.broken:
			return ErrChanged
		}
		have.r, have.mtime = r, s.w.now
		have.writes++
		now = version{have.birth, have.writes}
		return nil
	})
	return now, err
}

// touch is a renewal in a directory, step by step: read the clock, set the mtime, look
// whether the record is still in its place and has no end.
func (s *modelStore) touch(ctx context.Context, n uint64, birth int) error {
	t := s.thread(ctx)
	t.arrive()
	clock := s.w.now
	t.learn("clock", clock)
	have := s.w.recs[n]
	t.pause("touch")
	if have != nil && have.birth == birth {
		have.mtime = clock
	}
	return s.call(ctx, "look for the end", n, false, func() error {
		switch r := s.w.recs[n]; {
		case r == nil:
			return ErrNotExist
		case r != have || r.birth != birth, r.ended, r.broken:
			return ErrChanged
		}
		return nil
	})
}

func (s *modelStore) End(ctx context.Context, _ string, n uint64, v Version, r Record) error {
	return s.call(ctx, "end", n, true, func() error {
		have := s.w.recs[n]
		ver := v.(version)
		switch {
		case have == nil:
			return ErrNotExist
		case have.ended, have.birth != ver.birth, !s.w.b.unlinked && have.writes != ver.writes:
			return ErrChanged
		case s.w.b.unlinked && have.broken && !r.Ending.Kind.Ends():
			return ErrChanged
		}
		if !s.w.b.unlinked {
			have.writes++
			have.r.Writer = r.Writer
			if !r.Ending.Kind.Ends() {
				have.mtime = s.w.now // a break is a write, and counts from itself
			}
		}
		have.ended, have.broken = r.Ending.Kind.Ends(), !r.Ending.Kind.Ends()
		have.r.Ending = r.Ending
		return nil
	})
}

func (s *modelStore) Delete(ctx context.Context, _ string, n uint64) error {
	return s.call(ctx, "delete", n, true, func() error {
		delete(s.w.recs, n)
		return nil
	})
}

func (s *modelStore) Sweep(ctx context.Context, _ string, n uint64) error {
	return s.call(ctx, "sweep", n, true, func() error {
		for old := range s.w.recs {
			if old <= n {
				delete(s.w.recs, old)
			}
		}
		return nil
	})
}

func (s *modelStore) Keys(context.Context, string) iter.Seq2[string, error] {
	return func(func(string, error) bool) {}
}

func (s *modelStore) Drop(Version) {}
