package locker_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/memlock"
)

func TestSmoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memlock.NewServer()
		a, err := locker.New(s.Driver(), nil)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := locker.New(s.Driver(), nil)
		ctx := context.Background()
		la, err := a.Acquire(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.TryAcquire(ctx, "k"); !errors.Is(err, locker.ErrHeld) {
			t.Fatal(err)
		} else {
			t.Log(err)
		}
		_, err = b.Acquire(ctx, "k", locker.WithWait(2*time.Second))
		t.Log(err)
		time.Sleep(10 * time.Minute) //nolint:forbidigo // virtual time
		if !la.Valid() {
			t.Fatal(la.Err())
		}
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				l, err := b.Acquire(ctx, "k")
				if err != nil {
					t.Error(err)
					return
				}
				t.Log(l.Token(), l.Remaining())
				time.Sleep(time.Second) //nolint:forbidigo // virtual time
				l.Release(ctx)
			})
		}
		synctest.Wait()
		la.Release(ctx)
		start := time.Now()
		wg.Wait()
		t.Log(time.Since(start))
		a.Close()
		b.Close()
	})
}

func BenchmarkTry(b *testing.B) {
	a, _ := locker.New(memlock.NewServer().Driver(), nil)
	b.ReportAllocs()
	ctx := context.Background()
	for b.Loop() {
		l, err := a.TryAcquire(ctx, "k")
		if err != nil {
			b.Fatal(err)
		}
		l.Release(ctx)
	}
}
