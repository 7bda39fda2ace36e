package locker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
)

func TestPanicsBreakNothing(t *testing.T) {
	for name, panics := range map[string]func(w *world, l *locker.Locker, tp *tap){
		"driver": func(w *world, l *locker.Locker, tp *tap) {
			tp.when(opTry, func(ctx context.Context, _ seen, send next) (driver.Grant, error) {
				_, _ = send(ctx)
				panic("boom")
			})
			_, _ = l.TryAcquire(w.ctx, "k")
		},
		"listener, granted": func(w *world, l *locker.Locker, _ *tap) { _, _ = l.TryAcquire(w.ctx, "k") },
		"listener, refused": func(w *world, l *locker.Locker, _ *tap) {
			lease := w.acquire(w.locker(tenSeconds()), "k")
			defer func() { _ = lease.Release(w.ctx) }()
			_, _ = l.Acquire(w.ctx, "k")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				armed := true
				l, tp := w.tapped(&locker.Options{TTL: ttl, OnEvent: func(locker.Event) {
					if armed && name != "driver" {
						armed = false
						panic("boom")
					}
				}})
				func() {
					defer func() {
						if recover() == nil {
							t.Error("the panic was swallowed")
						}
					}()
					panics(w, l, tp)
				}()
				tp.when(opTry, nil)
				pass(time.Second)
				w.free("k")
				w.wants(w.acquire(l, "k", locker.WithWait(time.Second)).Release(w.ctx))
				w.nothingLeft(l)
			})
		})
	}
}

func TestPanicsWhileReleasingBreakNothing(t *testing.T) {
	for _, kind := range []locker.EventKind{locker.EventGranted, locker.EventEnded, locker.EventReleased, 0} {
		for _, way := range []string{"Release", "Do", "Close"} {
			t.Run(fmt.Sprint(way, " ", kind), func(t *testing.T) {
				inWorld(t, func(w *world) {
					armed := kind != 0
					l, tp := w.tapped(&locker.Options{TTL: ttl, OnEvent: func(e locker.Event) {
						if armed && e.Kind == kind {
							armed = false
							panic("boom")
						}
					}})
					if kind == 0 {
						tp.when(opRelease, first(1, func(context.Context, seen, next) (driver.Grant, error) { panic("boom") }))
					}
					func() {
						defer func() { _ = recover() }()
						switch way {
						case "Release":
							_ = w.acquire(l, "k").Release(w.ctx)
						case "Do":
							_ = l.Do(w.ctx, "k", func(context.Context, *locker.Lease) error { return nil })
						case "Close":
							if kind != locker.EventEnded {
								return // Close releases on goroutines of its own
							}
							w.acquire(l, "k")
							_ = l.Close()
						}
					}()
					pass(time.Second)
					w.free("k")
					if way != "Close" {
						w.wants(w.acquire(l, "k", locker.WithWait(time.Second)).Release(w.ctx))
						w.nothingLeft(l)
					}
					begun := time.Now()
					_ = l.Close()
					if d := time.Since(begun); d > time.Second {
						t.Errorf("Close took %v", d)
					}
				})
			})
		}
	}
}

func TestPanickingListenerIsToldTheRest(t *testing.T) {
	inWorld(t, func(w *world) {
		var mu sync.Mutex
		told := map[locker.EventKind]int{}
		l, tp := w.tapped(&locker.Options{TTL: ttl, OnEvent: func(e locker.Event) {
			mu.Lock()
			told[e.Kind]++
			mu.Unlock()
			if e.Kind == locker.EventGranted {
				<-time.After(2 * ttl)
				panic("boom")
			}
		}})
		tp.when(opRenew, unavailable)
		func() {
			defer func() { _ = recover() }()
			_, _ = l.TryAcquire(w.ctx, "k")
		}()
		pass(ttl)
		mu.Lock()
		defer mu.Unlock()
		if told[locker.EventEnded] != 1 {
			t.Errorf("told %v, want the end once", told)
		}
	})
}
