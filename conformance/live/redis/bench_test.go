//go:build unix

package redis_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/conformance/live"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/redislock"
)

// recorder keeps the arguments of the scripts that a client runs.
type recorder struct {
	mu   sync.Mutex
	runs [][]any
}

func (*recorder) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			args := append([]any{}, cmd.Args()...)
			args[len(args)-1] = "" // the driver's guard
			r.mu.Lock()
			r.runs = append(r.runs, args)
			r.mu.Unlock()
		}
		return next(ctx, cmd)
	}
}

// An acquire and a release, uncontended: through a Locker, through the driver, and the two
// scripts sent by the bare client.
func BenchmarkAcquireRelease(b *testing.B) {
	s := shared(b)
	o := &redislock.Options{Namespace: namespace()}
	c := redis.NewClient(&redis.Options{Addr: s.Addr()})
	b.Cleanup(func() { _ = c.Close() })
	d, err := redislock.NewDriver(b.Context(), c, o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = d.Close() })
	l, err := locker.New(d, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	ctx := b.Context()
	viaLocker := func(b *testing.B) {
		lease, err := l.TryAcquire(ctx, "k")
		if err == nil {
			err = lease.Release(ctx)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	viaDriver := func(b *testing.B) {
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		g, err := d.TryAcquire(call, request("k"))
		if err == nil {
			err = d.Release(call, g)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	hooked, rec := redis.NewClient(&redis.Options{
		Addr: s.Addr(), ContextTimeoutEnabled: true, ReadTimeout: time.Second, WriteTimeout: time.Second,
	}), &recorder{}
	b.Cleanup(func() { _ = hooked.Close() })
	hooked.AddHook(rec)
	dr, err := redislock.NewDriver(ctx, hooked, o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = dr.Close() })
	g, err := dr.TryAcquire(ctx, request("k"))
	if err == nil {
		err = dr.Release(ctx, g)
	}
	if err != nil || len(rec.runs) != 2 {
		b.Fatalf("scripts of an acquire and a release: got %d and %v, want 2", len(rec.runs), err)
	}
	bare := func(b *testing.B) {
		for _, args := range rec.runs {
			if err := c.Do(ctx, args...).Err(); err != nil {
				b.Fatal(err)
			}
		}
	}
	ways := []struct {
		name string
		once func(*testing.B)
	}{{"bare", bare}, {"driver", viaDriver}, {"locker", viaLocker}}
	for _, w := range ways {
		b.Run(w.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w.once(b)
			}
		})
	}
	// One behind the other, so that what the machine does meanwhile harms all alike.
	b.Run("ratios", func(b *testing.B) {
		var took [3]time.Duration
		for b.Loop() {
			for i, w := range ways {
				begun := time.Now()
				w.once(b)
				took[i] += time.Since(begun)
			}
		}
		b.ReportMetric(float64(took[1])/float64(took[0]), "driver/bare")
		b.ReportMetric(float64(took[2])/float64(took[0]), "locker/bare")
	})
}

// cpu is what this process has used.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// serverCPU is what the server has used.
func serverCPU(b *testing.B, s *live.RedisServer) time.Duration {
	b.Helper()
	info := information(b, s, "cpu")
	sum := 0.0
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		f, err := strconv.ParseFloat(info[name], 64)
		if err != nil {
			b.Fatal(err)
		}
		sum += f
	}
	return time.Duration(sum * float64(time.Second))
}

func information(b *testing.B, s *live.RedisServer, section string) map[string]string {
	b.Helper()
	v, err := s.Do(b.Context(), "INFO", section)
	if err != nil {
		b.Fatal(err)
	}
	m := map[string]string{}
	text, _ := v.(string)
	for line := range strings.Lines(text) {
		k, val, _ := strings.Cut(strings.TrimSpace(line), ":")
		m[k] = val
	}
	return m
}

// calls is how many commands clients have sent that the subsystem counts, those inside of
// scripts left out.
func calls(b *testing.B, s *live.RedisServer) (n int64) {
	b.Helper()
	info := information(b, s, "commandstats")
	for _, name := range []string{"evalsha", "eval", "ping", "subscribe"} {
		head, _, _ := strings.Cut(info["cmdstat_"+name], ",")
		c, _ := strconv.ParseInt(strings.TrimPrefix(head, "calls="), 10, 64)
		n += c
	}
	return n
}

// The renewal of many leases, in batches as the core sends them.
func BenchmarkRenewBatch(b *testing.B) {
	s := live.Redis(b, live.RedisOptions{Own: true})
	d, err := open(b.Context(), s.Addr(), nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = d.Close() })
	n := 10_000
	if full() {
		n = 100_000
	}
	gs := make([]driver.Grant, n)
	for i := range gs {
		r := request(fmt.Sprintf("tenant-%d/job", i))
		r.TTL = 10 * time.Minute
		if gs[i], err = d.TryAcquire(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
	batch := d.Info().MaxBatch
	renewed := 0
	client, server := cpu(b), serverCPU(b, s)
	b.ReportAllocs()
	for b.Loop() {
		for i := 0; i < n; i += batch {
			ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
			err := d.(driver.BatchRenewer).RenewBatch(ctx, gs[i:min(i+batch, n)], func(_ int, _ driver.Grant, err error) {
				if err != nil {
					b.Error(err)
				}
				renewed++
			})
			cancel()
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	per := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / float64(renewed) }
	b.ReportMetric(per(cpu(b)-client), "client-µs/renewal")
	b.ReportMetric(per(serverCPU(b, s)-server), "server-µs/renewal")
	b.ReportMetric(0, "ns/op")
}

// One key that everybody wants: N Lockers on a few drivers, ttl 30 s, holding for 5 ms.
func BenchmarkHotKey(b *testing.B) {
	lockers, drivers, rounds := 100, 4, 5
	if full() {
		lockers, drivers = 1000, 20
	}
	s := live.Redis(b, live.RedisOptions{Own: true})
	ls := make([]*locker.Locker, lockers)
	ds := make([]driver.Driver, drivers)
	for i := range ds {
		d, err := open(b.Context(), s.Addr(), nil)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = d.Close() })
		ds[i] = d
	}
	for i := range ls {
		l, err := locker.New(ds[i%drivers], &locker.Options{TTL: 30 * time.Second})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = l.Close() })
		ls[i] = l
	}
	for b.Loop() {
		hotKey(b, s, ls, rounds)
	}
	b.ReportMetric(0, "ns/op")
}

func hotKey(b *testing.B, s *live.RedisServer, ls []*locker.Locker, rounds int) {
	const hold = 5 * time.Millisecond
	served := make([]int64, len(ls))
	var total, held atomic.Int64
	// Everybody queues before the first hand-off is counted.
	gate, err := ls[0].Acquire(b.Context(), "hot")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var all sync.WaitGroup
	most := int64(rounds * len(ls))
	for i, l := range ls {
		all.Go(func() {
			for ctx.Err() == nil {
				lease, err := l.Acquire(ctx, "hot")
				if err != nil {
					if ctx.Err() == nil {
						b.Errorf("locker %d: %v", i, err)
					}
					return
				}
				begun := time.Now()
				<-time.After(hold)
				held.Add(int64(time.Since(begun)))
				if err := lease.Release(b.Context()); err != nil {
					b.Errorf("locker %d releases: %v", i, err)
				}
				served[i]++
				if total.Add(1) >= most {
					cancel()
				}
			}
		})
	}
	for end := time.Now().Add(time.Minute); ; <-time.After(20 * time.Millisecond) {
		st, err := ls[0].Inspect(b.Context(), "hot")
		if err == nil && st.Waiters >= len(ls)-1 {
			break
		}
		if time.Now().After(end) {
			b.Fatalf("waiters: got %d and %v, want %d", st.Waiters, err, len(ls)-1)
		}
	}
	sent, begun, used, server := calls(b, s), time.Now(), cpu(b), serverCPU(b, s)
	if err := gate.Release(b.Context()); err != nil {
		b.Fatal(err)
	}
	<-ctx.Done()
	took, n := time.Since(begun), float64(total.Load())
	commands, load := float64(calls(b, s)-sent), float64(cpu(b)-used+serverCPU(b, s)-server)/float64(took)
	all.Wait()
	starved, sum, squares := 0, 0.0, 0.0
	for _, x := range served {
		if x == 0 {
			starved++
		}
		sum += float64(x)
		squares += float64(x) * float64(x)
	}
	rate, ceiling := n/took.Seconds(), n/time.Duration(held.Load()).Seconds()
	b.ReportMetric(rate, "hand-offs/s")
	b.ReportMetric(100*rate/ceiling, "%-of-ceiling")
	b.ReportMetric(commands/n, "commands/hand-off")
	b.ReportMetric(sum*sum/(float64(len(ls))*squares), "jain")
	b.ReportMetric(float64(starved), "starved")
	b.ReportMetric(load, "cores")
}
