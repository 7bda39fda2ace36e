//go:build unix

package main_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// benchBinary is what users install, also when the tests run with the race detector.
func benchBinary(b *testing.B) string {
	b.Helper()
	if !raceEnabled {
		return binary
	}
	path := filepath.Join(b.TempDir(), "locker")
	if out, err := build(path, false).CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	return path
}

// BenchmarkStart measures from main to the command's exec, and beside it what the device
// takes for the two flushes of a grant. "own" is the difference, and must stay below 5 ms.
// Medians: a busy machine or disk moves a mean by a few slow ones.
func BenchmarkStart(b *testing.B) {
	path, home := benchBinary(b), b.TempDir()
	var started, flushes []time.Duration
	for b.Loop() {
		cmd := exec.Command(path, "run", "--local", "--result", "/dev/stdout", "key", "--", "true")
		cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
		out, err := cmd.Output()
		if err != nil {
			b.Fatal(err)
		}
		var r result
		if err := json.Unmarshal(out, &r); err != nil {
			b.Fatal(err)
		}
		started = append(started, time.Duration(r.StartedMS*float64(time.Millisecond)))
		flushes = append(flushes, twoFlushes(b, home))
	}
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(median(started)), "main-to-exec-ms")
	b.ReportMetric(ms(median(flushes)), "two-flushes-ms")
	b.ReportMetric(ms(median(started)-median(flushes)), "own-ms")
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// twoFlushes does what makes a grant durable: a new file, then its name.
func twoFlushes(b *testing.B, dir string) time.Duration {
	b.Helper()
	d, err := os.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	f, err := os.CreateTemp(dir, "flush")
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(strings.Repeat("x", 300)); err != nil {
		b.Fatal(err)
	}
	begun := time.Now()
	err = f.Sync()
	took := time.Since(begun)
	if err != nil {
		b.Fatal(err)
	}
	if err := os.Link(f.Name(), f.Name()+".linked"); err != nil {
		b.Fatal(err)
	}
	begun = time.Now()
	if err := d.Sync(); err != nil {
		b.Fatal(err)
	}
	return took + time.Since(begun)
}

// BenchmarkProcess compares whole processes: fork to exit, with true(1) as the command.
func BenchmarkProcess(b *testing.B) {
	path, home := benchBinary(b), b.TempDir()
	for name, args := range map[string][]string{
		"locker": {path, "run", "--local", "key", "--", "true"},
		"flock":  {"flock", filepath.Join(home, "lock"), "true"},
		"true":   {"true"},
	} {
		b.Run(name, func(b *testing.B) {
			if _, err := exec.LookPath(args[0]); err != nil {
				b.Skip(err)
			}
			var took []time.Duration
			for b.Loop() {
				begun := time.Now()
				cmd := exec.Command(args[0], args[1:]...)
				cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
				if err := cmd.Run(); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(begun))
			}
			b.ReportMetric(float64(median(took).Microseconds())/1000, "median-ms")
		})
	}
}
