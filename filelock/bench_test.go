//go:build linux

package filelock

import (
	"context"
	"slices"
	"testing"
	"time"
)

// BenchmarkAcquireRelease is one uncontended acquire and release, with the system calls
// and fsyncs it takes.
func BenchmarkAcquireRelease(b *testing.B) {
	for name, o := range map[string]*Options{"sync": nil, "nosync": {NoSync: true}} {
		b.Run(name, func(b *testing.B) {
			sys := newDouble()
			d := on(b, b.TempDir(), sys, here(b), o)
			sys.reset()
			var took []time.Duration
			for b.Loop() {
				from := time.Now()
				g, err := d.TryAcquire(context.Background(), request("k"))
				if err != nil {
					b.Fatal(err)
				}
				if err := d.Release(context.Background(), g); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(from))
			}
			slices.Sort(took)
			all, syncs := sys.total()
			b.ReportMetric(float64(all)/float64(b.N), "syscalls/op")
			b.ReportMetric(float64(syncs)/float64(b.N), "fsyncs/op")
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
		})
	}
}

// BenchmarkFresh is what a command that runs once pays: open, acquire, release, close.
func BenchmarkFresh(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		d, err := NewDriver(context.Background(), dir, nil)
		if err != nil {
			b.Fatal(err)
		}
		g, err := d.TryAcquire(context.Background(), request("k"))
		if err != nil {
			b.Fatal(err)
		}
		if err := d.Release(context.Background(), g); err != nil {
			b.Fatal(err)
		}
		if err := d.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRenew is one renewal.
func BenchmarkRenew(b *testing.B) {
	d := opened(b, b.TempDir())
	r := request("k")
	r.TTL = time.Hour
	g, err := d.TryAcquire(context.Background(), r)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if g, err = d.Renew(context.Background(), g); err != nil {
			b.Fatal(err)
		}
	}
}
