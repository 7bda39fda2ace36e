package s3lock

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/fence"
	"github.com/fencelock/locker/memlock"
)

func newFence(t *testing.T, s *double) *Fence {
	t.Helper()
	f, err := NewFence(s.client(), testBucket, "report.csv")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFence(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	f := newFence(t, s)
	if got, err := f.Read(within(t), 1); got != "" || err != nil {
		t.Errorf("no object: got %q, %v", got, err)
	}
	if err := f.Write(within(t), 7, "seven"); err != nil {
		t.Fatal(err)
	}
	if err := f.Write(within(t), 7, "seven again"); err != nil {
		t.Errorf("the same token: got %v", err)
	}
	if err := f.Raise(within(t), 9); err != nil {
		t.Fatal(err)
	}
	var stale *fence.StaleError
	if err := f.Write(within(t), 8, "eight"); !errors.Is(err, driver.ErrStale) || !errors.As(err, &stale) || stale.Mark != 9 || stale.Token != 8 {
		t.Errorf("a stale write: got %v", err)
	}
	if err := f.Raise(within(t), 8); !errors.Is(err, driver.ErrStale) {
		t.Errorf("a stale raise: got %v", err)
	}
	if _, err := f.Read(within(t), 8); !errors.Is(err, driver.ErrStale) {
		t.Errorf("a stale read: got %v", err)
	}
	if got, err := f.Read(within(t), 9); got != "seven again" || err != nil {
		t.Errorf("read: got %q, %v; want what was there before the raise", got, err)
	}
	if err := f.Write(within(t), 0, "none"); !errors.Is(err, driver.ErrStale) {
		t.Errorf("no token: got %v", err)
	}
	s.mu.Lock()
	meta := s.objects["report.csv"].meta
	s.mu.Unlock()
	if meta.Get("X-Amz-Meta-Fencing-Token") != "9" {
		t.Errorf("metadata: got %v", meta)
	}
}

// The check and the write are one step: whatever the order, the newest token wins, and a
// raise between somebody's read and write refuses the write.
func TestFenceIsAtomic(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	var wg sync.WaitGroup
	const writers = 12
	errs := make([]error, writers+1)
	for i := 1; i <= writers; i++ {
		wg.Go(func() { errs[i] = newFence(t, s).Write(within(t), driver.Token(i), fmt.Sprint(i)) })
	}
	wg.Wait()
	got, err := newFence(t, s).Read(within(t), writers)
	if err != nil || got != fmt.Sprint(writers) || errs[writers] != nil {
		t.Errorf("got %q, %v, and the newest writer %v", got, err, errs[writers])
	}
	for i, err := range errs {
		if err != nil && !errors.Is(err, driver.ErrStale) {
			t.Errorf("writer %d: %v", i, err)
		}
	}
}

// A write whose outcome is unknown says so.
func TestFenceUnknown(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	f := newFence(t, s)
	s.wrong(func(s *double) { s.answer = refuses("If-None-Match", 500, "InternalError") })
	if err := f.Write(within(t), 1, "x"); !errors.Is(err, driver.ErrAmbiguous) {
		t.Errorf("got %v, want ErrAmbiguous", err)
	}
}

func TestTokenOfALease(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	l, err := New(within(t), s.client(), testBucket, nil, &locker.Options{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := l.Acquire(within(t), "k")
	if err != nil {
		t.Fatal(err)
	}
	if token, err := Token(lease); token != lease.Token() || err != nil {
		t.Errorf("got %v, %v; want %v", token, err, lease.Token())
	}
	if err := lease.Release(within(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := Token(lease); !errors.Is(err, locker.ErrReleased) {
		t.Errorf("after the release: got %v, want ErrReleased", err)
	}
	if err := l.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	d := memlock.NewServer().Driver()
	other, err := locker.New(d, &locker.Options{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(other.Close(), d.Close()) }()
	foreign, err := other.Acquire(within(t), "k")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Token(foreign); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("another backend's lease: got %v, want ErrUnsupported", err)
	}
}
