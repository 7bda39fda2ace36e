//go:build unix

package locker_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/memlock"
)

func benchLocker(b *testing.B, d driver.Driver, o *locker.Options) *locker.Locker {
	b.Helper()
	l, err := locker.New(d, o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	return l
}

// BenchmarkTryAcquireRelease: nobody else wants the key.
func BenchmarkTryAcquireRelease(b *testing.B) {
	l := benchLocker(b, memlock.NewServer().Driver(), nil)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		lease, err := l.TryAcquire(ctx, "k")
		if err != nil {
			b.Fatal(err)
		}
		if err := lease.Release(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAcquireRelease(b *testing.B) {
	l := benchLocker(b, memlock.NewServer().Driver(), nil)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		lease, err := l.Acquire(ctx, "k")
		if err != nil {
			b.Fatal(err)
		}
		_ = lease.Release(ctx)
	}
}

// BenchmarkValid is what a holder asks before each step of its work: with the memory
// driver on package time, and with the boot clock as with every other backend.
func BenchmarkValid(b *testing.B) {
	for _, c := range []struct {
		name string
		boot bool
	}{{"package time", false}, {"boot clock", true}} {
		b.Run(c.name, func(b *testing.B) {
			d := &tap{d: memlock.NewServer().Driver(), info: func(i driver.Info) driver.Info { i.PackageTime = !c.boot; return i }}
			l := benchLocker(b, d, nil)
			lease, err := l.TryAcquire(b.Context(), "k")
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if !lease.Valid() {
					b.Fatal(lease.Err())
				}
			}
		})
	}
}

// BenchmarkHeldLeases holds 100 000 leases over a backend that answers at once, and
// reports what each costs: bytes, goroutines (none), and the share of one core that
// renewing them all takes. The share is measured at a ttl of 3 s over 6 s, and reported
// for 30 s, where the same renewals are spread over ten times as long.
func BenchmarkHeldLeases(b *testing.B) {
	const n = 100_000
	const ttl, asked = 3 * time.Second, 30 * time.Second
	for b.Loop() {
		keys := make([]string, n)
		for i := range keys {
			keys[i] = fmt.Sprint("key-", i)
		}
		l := benchLocker(b, echo{}, &locker.Options{TTL: ttl})
		before, goroutines := heap(), runtime.NumGoroutine()
		for _, k := range keys {
			if _, err := l.TryAcquire(b.Context(), k); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(heap()-before)/n, "B/lease")
		b.ReportMetric(float64(runtime.NumGoroutine()-goroutines), "goroutines")
		spent, begun := cpu(b), time.Now()
		<-time.After(2 * ttl)
		share := float64(cpu(b)-spent) / float64(time.Since(begun)) * 100
		b.ReportMetric(share*float64(ttl)/float64(asked), "%core@30s")
		_ = l.Close()
		runtime.KeepAlive(keys)
	}
	b.ReportMetric(0, "ns/op") // means nothing here
}

// heap is what is in use after a collection.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// cpu is the processor time this process has used.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkHotKey has 1000 goroutines of one Locker compete for one key, and reports
// requests and time for each hand-off.
func BenchmarkHotKey(b *testing.B) {
	d := &tap{d: memlock.NewServer().Driver(), info: func(i driver.Info) driver.Info { return i }}
	l := benchLocker(b, d, nil)
	ctx := context.Background()
	begun := time.Now()
	grants := 0
	for b.Loop() {
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				lease, err := l.Acquire(ctx, "k")
				if err != nil {
					b.Error(err)
					return
				}
				_ = lease.Release(ctx)
			})
		}
		wg.Wait()
		grants += 1000
	}
	b.ReportMetric(float64(d.requests(opTry, opEnqueue, opPoll, opRelease, opRenew))/float64(grants), "requests/hand-off")
	b.ReportMetric(float64(time.Since(begun).Microseconds())/float64(grants), "us/hand-off")
}
