package bench_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/conformance/live"
	"github.com/fencelock/locker/redislock"
)

func TestMain(m *testing.M) { live.Main(m) }

var server = live.Once(func(tb testing.TB) *live.RedisServer { return live.Redis(tb, live.RedisOptions{}) })

// ttl is long enough that nobody renews while anything is measured.
const ttl = 30 * time.Second

// peer is one way to lock: a process of its own, with its own client.
type peer interface {
	// try makes one attempt and returns what ends the lock.
	try(ctx context.Context, key string) (release func(context.Context) error, err error)
	// wait is try, until the key is free or ctx ends. A library that gives up by itself is
	// asked again.
	wait(ctx context.Context, key string) (release func(context.Context) error, err error)
	close()
}

// library makes peers, each with a client of its own whose commands are counted.
type library struct {
	name string
	make func(b testing.TB, addr string, sent *counter) peer
}

// peers are the libraries, as they come and tuned.
var peers = []library{
	{"locker", newLocker},
	{"redsync", newRedsync()},
	{"redsync-tuned", newRedsync(redsync.WithRetryDelay(10*time.Millisecond), redsync.WithTries(1<<20))},
	{"bsm-50ms", newBSM(50 * time.Millisecond)},
	{"bsm-10ms", newBSM(10 * time.Millisecond)},
	{"rueidis", newRueidis(rueidislock.LockerOption{})},
	{"rueidis-tuned", newRueidis(rueidislock.LockerOption{KeyMajority: 1, NoLoopTracking: true})},
}

type lockerPeer struct {
	d *redislock.Driver
	l *locker.Locker
}

func newLocker(b testing.TB, addr string, sent *counter) peer {
	d, err := redislock.NewDriver(context.Background(), client(b, addr, sent), nil)
	if err != nil {
		b.Fatal(err)
	}
	l, err := locker.New(d, &locker.Options{TTL: ttl})
	if err != nil {
		b.Fatal(err)
	}
	return lockerPeer{d, l}
}

func (p lockerPeer) try(ctx context.Context, key string) (func(context.Context) error, error) {
	lease, err := p.l.TryAcquire(ctx, key)
	if err != nil {
		return nil, err
	}
	return lease.Release, nil
}

func (p lockerPeer) wait(ctx context.Context, key string) (func(context.Context) error, error) {
	lease, err := p.l.Acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	return lease.Release, nil
}

func (p lockerPeer) close() {
	_ = p.l.Close()
	_ = p.d.Close()
}

type redsyncPeer struct {
	rs      *redsync.Redsync
	options []redsync.Option
}

func newRedsync(options ...redsync.Option) func(testing.TB, string, *counter) peer {
	return func(b testing.TB, addr string, sent *counter) peer {
		return redsyncPeer{redsync.New(goredis.NewPool(client(b, addr, sent))), options}
	}
}

func (p redsyncPeer) mutex(key string) *redsync.Mutex {
	return p.rs.NewMutex(key, append([]redsync.Option{redsync.WithExpiry(ttl)}, p.options...)...)
}

func unlock(m *redsync.Mutex) func(context.Context) error {
	return func(ctx context.Context) error {
		ok, err := m.UnlockContext(ctx)
		if err == nil && !ok {
			err = errors.New("it was not held")
		}
		return err
	}
}

func (p redsyncPeer) try(ctx context.Context, key string) (func(context.Context) error, error) {
	m := p.mutex(key)
	if err := m.TryLockContext(ctx); err != nil {
		return nil, err
	}
	return unlock(m), nil
}

func (p redsyncPeer) wait(ctx context.Context, key string) (func(context.Context) error, error) {
	for {
		m := p.mutex(key)
		err := m.LockContext(ctx)
		if err == nil {
			return unlock(m), nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
	}
}

func (redsyncPeer) close() {}

type bsmPeer struct {
	c     *bsm.Client
	every time.Duration
}

func newBSM(every time.Duration) func(testing.TB, string, *counter) peer {
	return func(b testing.TB, addr string, sent *counter) peer {
		return bsmPeer{bsm.New(client(b, addr, sent)), every}
	}
}

func (p bsmPeer) try(ctx context.Context, key string) (func(context.Context) error, error) {
	l, err := p.c.Obtain(ctx, key, ttl, nil)
	if err != nil {
		return nil, err
	}
	return l.Release, nil
}

func (p bsmPeer) wait(ctx context.Context, key string) (func(context.Context) error, error) {
	l, err := p.c.Obtain(ctx, key, ttl, &bsm.Options{RetryStrategy: bsm.LinearBackoff(p.every)})
	if err != nil {
		return nil, err
	}
	return l.Release, nil
}

func (bsmPeer) close() {}

type rueidisPeer struct{ l rueidislock.Locker }

func newRueidis(o rueidislock.LockerOption) func(testing.TB, string, *counter) peer {
	return func(b testing.TB, addr string, sent *counter) peer {
		o := o
		o.KeyValidity = ttl
		o.TryNextAfter = time.Second // not 20 ms: a key that comes late on a slow machine is no failure
		o.ClientOption = rueidis.ClientOption{InitAddress: []string{addr}}
		o.ClientBuilder = func(co rueidis.ClientOption) (rueidis.Client, error) {
			c, err := rueidis.NewClient(co)
			return countedRueidis{c, sent}, err
		}
		l, err := rueidislock.NewLocker(o)
		if err != nil {
			b.Fatal(err)
		}
		return rueidisPeer{l}
	}
}

// released is a release that tells of no error.
func released(cancel context.CancelFunc) func(context.Context) error {
	return func(context.Context) error {
		cancel()
		return nil
	}
}

func (p rueidisPeer) try(ctx context.Context, key string) (func(context.Context) error, error) {
	_, cancel, err := p.l.TryWithContext(ctx, key)
	if err != nil {
		return nil, err
	}
	return released(cancel), nil
}

func (p rueidisPeer) wait(ctx context.Context, key string) (func(context.Context) error, error) {
	_, cancel, err := p.l.WithContext(ctx, key)
	if err != nil {
		return nil, err
	}
	return released(cancel), nil
}

func (p rueidisPeer) close() { p.l.Close() }

// countedRueidis counts what rueidislock sends: it runs its scripts by Do.
type countedRueidis struct {
	rueidis.Client
	sent *counter
}

func (c countedRueidis) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	c.sent.n.Add(1)
	return c.Client.Do(ctx, cmd)
}

// counter counts the commands that clients send; those inside a script are the server's.
type counter struct{ n atomic.Int64 }

func (*counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.n.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

// client is a client like an ordinary program's. With the timeouts that a Locker wants it is
// not cloned, and so its hooks see what a Locker sends.
func client(b testing.TB, addr string, sent *counter) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, ReadTimeout: time.Second, WriteTimeout: time.Second})
	c.AddHook(sent)
	b.Cleanup(func() { _ = c.Close() })
	return c
}

// BenchmarkUncontended is an acquire and a release of a free key. The libraries take turns,
// twenty of each in a row, so that whatever the machine does meanwhile harms all alike, and
// nobody finds the server's and the processor's caches as another library has left them. How
// a library waits does not matter here: each takes part once, but for rueidislock, which comes
// with three keys for each lock and is told by its documentation to take one on one server.
func BenchmarkUncontended(b *testing.B) {
	const turn = 20
	ctx, addr := b.Context(), server(b).Addr()
	names := []string{"locker", "redsync", "bsm-50ms", "rueidis", "rueidis-tuned"}
	ways := make([]peer, len(names))
	took := make([][]time.Duration, len(names))
	for i, name := range names {
		at := slices.IndexFunc(peers, func(p library) bool { return p.name == name })
		ways[i] = peers[at].make(b, addr, &counter{})
		b.Cleanup(ways[i].close)
	}
	once := func(i int) {
		release, err := ways[i].try(ctx, "free "+names[i])
		if err == nil {
			err = release(ctx)
		}
		if err != nil {
			b.Fatalf("%s: %v", names[i], err)
		}
	}
	for n := 0; b.Loop(); n++ {
		for i := range ways {
			at := (i + n) % len(ways)
			once(at) // what the one before has left behind
			for range turn {
				begun := time.Now()
				once(at)
				took[at] = append(took[at], time.Since(begun))
			}
		}
	}
	fastest := time.Duration(math.MaxInt64)
	for i, name := range names {
		slices.Sort(took[i])
		median := took[i][len(took[i])/2]
		b.ReportMetric(float64(median.Nanoseconds())/1000, name+"-µs")
		if i > 0 {
			fastest = min(fastest, median)
		}
	}
	b.ReportMetric(float64(took[0][len(took[0])/2])/float64(fastest), "locker/fastest")
}

// BenchmarkHotKey lets contenders, each a process of its own, acquire one key, hold it for
// 5 ms and release it, again and again.
func BenchmarkHotKey(b *testing.B) {
	sizes, lasts := []int{2, 20}, time.Second
	if os.Getenv("LOCKER_TEST_SIZE") != "" {
		sizes, lasts = []int{2, 20, 100}, 5*time.Second
	}
	for _, n := range sizes {
		for _, p := range peers {
			b.Run(fmt.Sprintf("%s/contenders=%d", p.name, n), func(b *testing.B) {
				var sum hot
				for i := 0; b.Loop(); i++ {
					sum.add(hotKey(b, p.make, n, lasts, fmt.Sprintf("hot %s %d %d", p.name, n, i)))
				}
				sum.report(b)
			})
		}
	}
}

const hold = 5 * time.Millisecond

// hot is what came of it.
type hot struct {
	served   []int // by contender
	held     time.Duration
	elapsed  time.Duration
	commands int64
}

func (h *hot) add(o hot) {
	h.served = append(h.served, o.served...)
	h.held += o.held
	h.elapsed += o.elapsed
	h.commands += o.commands
}

func (h *hot) report(b *testing.B) {
	var sum, squares float64
	starved := 0
	for _, n := range h.served {
		sum += float64(n)
		squares += float64(n) * float64(n)
		if n == 0 {
			starved++
		}
	}
	if sum == 0 {
		b.Fatal("nobody was served")
	}
	perSecond := sum / h.elapsed.Seconds()
	b.ReportMetric(perSecond, "hand-offs/s")
	b.ReportMetric(perSecond*h.held.Seconds()/sum, "of-ceiling") // 1/(measured mean hold)
	b.ReportMetric(float64(h.commands)/sum, "commands/hand-off")
	b.ReportMetric(sum*sum/(float64(len(h.served))*squares), "jain")
	b.ReportMetric(float64(starved), "never-served")
}

func hotKey(b *testing.B, join func(testing.TB, string, *counter) peer, n int, lasts time.Duration, key string) hot {
	count := &counter{}
	addr := server(b).Addr()
	contenders := make([]peer, n)
	for i := range contenders {
		contenders[i] = join(b, addr, count)
		b.Cleanup(contenders[i].close)
		release, err := contenders[i].try(b.Context(), fmt.Sprintf("%s, alone %d", key, i)) // connects
		if err == nil {
			err = release(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(b.Context(), lasts)
	defer cancel()
	begun, before := time.Now(), count.n.Load()+listening(b, addr)
	h := hot{served: make([]int, n)}
	var held atomic.Int64
	var inside atomic.Int32
	var all sync.WaitGroup
	for i, p := range contenders {
		all.Go(func() {
			for ctx.Err() == nil {
				release, err := p.wait(ctx, key)
				if err != nil {
					if ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
						b.Error(err)
					}
					return
				}
				got := time.Now()
				if inside.Add(1) > 1 {
					b.Error("two hold it")
				}
				<-time.After(hold)
				inside.Add(-1)
				held.Add(int64(time.Since(got)))
				h.served[i]++
				if err := release(context.WithoutCancel(ctx)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
	h.elapsed, h.commands, h.held = time.Since(begun), count.n.Load()+listening(b, addr)-before, time.Duration(held.Load())
	return h
}

// listening is how many commands the server has got that no counter sees: those on
// connections that a client keeps to be told something.
func listening(b *testing.B, addr string) (n int64) {
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = c.Close() }()
	stats, err := c.Info(b.Context(), "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(stats) {
		name, rest, _ := strings.Cut(line, ":calls=")
		if name == "cmdstat_subscribe" || name == "cmdstat_ping" {
			calls, _, _ := strings.Cut(rest, ",")
			more, err := strconv.ParseInt(calls, 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			n += more
		}
	}
	return n
}
