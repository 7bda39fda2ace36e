package locker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
)

func TestCloseFinishesItsUndos(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		tp.when(opTry, lostReply)
		tp.when(opRelease, late(200*time.Millisecond))
		ctx, cancel := context.WithTimeout(w.ctx, time.Millisecond)
		defer cancel()
		const n = 100
		for i := range n {
			go func() { _, _ = l.TryAcquire(ctx, fmt.Sprint(i)) }()
		}
		pass(2 * time.Millisecond)
		w.wants(l.Close())
		for i := range n {
			w.free(fmt.Sprint(i))
		}
		w.nothingLeft(l)
	})
}

func TestCloseWaitsForAReleaseUnderWay(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		lease := w.acquire(l, "k")
		tp.when(opRelease, func(ctx context.Context, _ seen, send next) (driver.Grant, error) {
			<-time.After(time.Second)
			return send(ctx)
		})
		go func() { _ = lease.Release(w.ctx) }()
		synctest.Wait()
		w.wants(l.Close())
		w.free("k")
	})
}

func TestCloseFromAListenerOrBesideAStuckDriverReturns(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		w.acquire(l, "k")
		tp.when(opRenew, func(context.Context, seen, next) (driver.Grant, error) {
			<-time.After(24 * time.Hour)
			return driver.Grant{}, driver.ErrAmbiguous
		})
		pass(ttl / 2)
		begun := time.Now()
		w.wants(l.Close())
		if d := time.Since(begun); d > 20*time.Second {
			t.Errorf("Close took %v", d)
		}
		pass(48 * time.Hour)
	})
	inBubble(t, func(w *world) {
		var l *locker.Locker
		var once sync.Once
		closed := make(chan struct{})
		l, _ = w.tapped(&locker.Options{TTL: ttl, OnEvent: func(e locker.Event) {
			if e.Kind == locker.EventRenewed {
				once.Do(func() { _ = l.Close(); close(closed) })
			}
		}})
		w.acquire(l, "k")
		<-closed
	})
}

func TestCloseWaitsForAFunctionWhoseLeaseWasTaken(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		tp.when(opRenew, func(context.Context, seen, next) (driver.Grant, error) { return driver.Grant{}, driver.ErrLost })
		returned := false
		go func() {
			_ = l.Do(w.ctx, "k", func(ctx context.Context, _ *locker.Lease) error {
				<-ctx.Done()
				<-time.After(2 * time.Second)
				returned = true
				return nil
			})
		}()
		pass(ttl/3 + time.Second)
		w.wants(l.Close())
		if !returned {
			t.Error("Close did not wait for the function")
		}
	})
}

func TestCloseWaitsForAReleaseBegunMeanwhile(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		lease := w.acquire(l, "k")
		tp.when(opRelease, func(ctx context.Context, _ seen, send next) (driver.Grant, error) {
			<-time.After(time.Second)
			return send(ctx)
		})
		go func() { // the usual holder: woken by Close itself
			<-lease.Done()
			_ = lease.Release(w.ctx)
		}()
		go func() {
			_ = l.Do(w.ctx, "other", func(ctx context.Context, _ *locker.Lease) error {
				<-ctx.Done()
				<-time.After(100 * time.Millisecond)
				return nil
			})
		}()
		synctest.Wait()
		w.wants(l.Close())
		w.free("k")
		w.free("other")
	})
}

func TestCloseTellsOfAReleaseWithoutAnAnswer(t *testing.T) {
	inWorld(t, func(w *world) {
		l, tp := w.tapped(tenSeconds())
		w.acquire(l, "k")
		tp.when(opRelease, func(context.Context, seen, next) (driver.Grant, error) {
			<-time.After(time.Hour)
			return driver.Grant{}, driver.ErrAmbiguous
		})
		w.wants(l.Close(), locker.ErrAmbiguous)
		pass(2 * time.Hour)
	})
}
