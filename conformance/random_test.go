package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/conformance/history"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/faultlock"
	"github.com/fencelock/locker/memlock"
)

// Random histories: several Lockers over one server in memory, each behind a network that
// fails by a seed, in virtual time. A failing seed is printed; -seed runs it alone, with
// the same decisions about faults, and its history is saved, and checked again by
// -history.
var (
	seedFlag    = flag.Uint64("seed", 0, "run this seed alone in TestRandom")
	historyFlag = flag.String("history", "", "check this saved history in TestRandom")
)

const (
	// randomSeeds per push, and in a full run.
	randomSeeds, randomSeedsFull = 2000, 20_000
	randomTTL                    = 2 * time.Second
)

func TestRandom(t *testing.T) {
	switch {
	case *historyFlag != "":
		b, err := os.ReadFile(*historyFlag)
		if err != nil {
			t.Fatal(err)
		}
		var ops []history.Op
		if err := json.Unmarshal(b, &ops); err != nil {
			t.Fatal(err)
		}
		if err := history.Check(ops, randomOptions()); err != nil {
			t.Fatal(err)
		}
	case *seedFlag != 0:
		newRandom(*seedFlag).check(t)
	default:
		seeds := randomSeeds
		if size := os.Getenv(conformance.SizeVariable); size == "full" || size == "soak" {
			seeds = randomSeedsFull
		}
		var leases, faults, ops atomic.Int64
		t.Run("seeds", func(t *testing.T) {
			const shards = 16
			for shard := range shards {
				t.Run(fmt.Sprint(shard), func(t *testing.T) {
					t.Parallel()
					for seed := shard + 1; seed <= seeds && !t.Failed(); seed += shards {
						r := newRandom(uint64(seed))
						r.check(t)
						leases.Add(int64(r.leases.Load()))
						faults.Add(int64(r.fired))
						ops.Add(int64(len(r.ops)))
					}
				})
			}
		})
		t.Logf("%d seeds: %d leases, %d faults, %d operations", seeds, leases.Load(), faults.Load(), ops.Load())
		if n := int64(seeds); !t.Failed() && (leases.Load() < 5*n || faults.Load() < 5*n) {
			t.Errorf("too little happened to prove anything")
		}
	}
}

func randomOptions() history.Options {
	// A copy of an acquire can come 3 s late, and then lasts up to three ttls.
	return history.Options{Slack: time.Second, Late: 3*time.Second + 3*randomTTL, Refusals: true}
}

// random is one seed.
type random struct {
	seed     uint64
	schedule faultlock.Schedule
	clients  []*faultlock.Driver
	server   *memlock.Server
	leases   atomic.Int32
	fired    int
	ops      []history.Op
}

// newRandom draws the faults of a seed: how many, and which kinds.
func newRandom(seed uint64) *random {
	rng := rand.New(rand.NewPCG(seed, 0))
	kinds := []string{
		"*%%%.2f=before", "*%%%.2f=after", "*%%%.2f=hang", "*%%%.2f=hangback", "*%%%.2f=dup", "*%%%.2f=dup:0s-2s",
		"*%%%.2f=delay:0s-300ms", "*%%%.2f=delayback:0s-300ms", "*%%%.2f=delay:0s-3s", "*%%%.2f=delayback:0s-3s",
		"renew%%%.2f=delayback:0s-2s", "wait%%%.2f=after", "release%%%.2f=after", "enqueue%%%.2f=after",
	}
	rng.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	var rules []string
	for _, k := range kinds[:1+rng.IntN(5)] {
		rules = append(rules, fmt.Sprintf(k, 0.01+0.2*rng.Float64()*rng.Float64()))
	}
	s, err := faultlock.Parse(strings.Join(rules, "; "))
	if err != nil {
		panic(err)
	}
	return &random{seed: seed, schedule: s}
}

// check runs the seed in a bubble of its own.
func (r *random) check(t *testing.T) {
	t.Helper()
	var res conformance.Result
	synctest.Test(t, func(*testing.T) {
		r.server = memlock.NewServer()
		h := conformance.Harness{Driver: r.open, TTL: randomTTL, Slack: 50 * time.Millisecond, Virtual: true}
		res, r.ops = conformance.RunOne(h, r.server.Driver().Info(), conformance.Case{
			ID: fmt.Sprintf("random/%d", r.seed), Rule: "The history of clients whose networks fail is legal.", Run: r.run,
		})
		for _, cl := range r.clients {
			for _, c := range cl.Fired() {
				r.fired += c.Times
			}
		}
	})
	if res.Verdict == conformance.Passed {
		return
	}
	t.Errorf("seed %d, faults %q: %s\nagain: go test ./conformance -run 'TestRandom$' -seed %d\nits history: %s",
		r.seed, r.schedule, res, r.seed, r.save())
}

// save writes the history down.
func (r *random) save() string {
	path := filepath.Join("testdata", "failures", fmt.Sprintf("seed-%d.json", r.seed))
	b, err := json.MarshalIndent(r.ops, "", "\t")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		return err.Error()
	}
	return path
}

func (r *random) open(context.Context) (driver.Driver, error) {
	f := faultlock.New(r.server.Driver(), r.seed*100+uint64(len(r.clients)), r.schedule)
	r.clients = append(r.clients, f)
	return f, nil
}

// run lets three Lockers with two goroutines each fight for two keys.
func (r *random) run(c *conformance.C) {
	c.Check = randomOptions()
	peers := c.Peers(3)
	keys := []string{"a", "b"}
	resources := []conformance.Fence{c.Fence("a"), c.Fence("b")}
	c.Each(6, func(i int) {
		rng := rand.New(rand.NewPCG(r.seed, uint64(i)+1))
		p := peers[i%3]
		for range 5 {
			k := rng.IntN(2)
			var opts []locker.AcquireOption
			if rng.IntN(3) == 0 {
				opts = append(opts, locker.WithManualRenew())
			}
			if rng.IntN(4) == 0 {
				opts = append(opts, locker.WithTTL(3*c.T))
			}
			var l *conformance.Lease
			var err error
			if rng.IntN(3) == 0 {
				l, err = p.TryErr(keys[k], opts...)
			} else {
				l, err = p.AcquireErr(c.Ctx, keys[k], append(opts, locker.WithWait(within(rng, 3*c.T)))...)
			}
			if err != nil {
				r.expected(c, err)
				c.Sleep(within(rng, c.T/4))
				continue
			}
			r.leases.Add(1)
			_ = resources[k].Raise(c.Ctx, l.Token())
			for end := c.History.Now() + within(rng, 2*c.T); c.History.Now() < end && l.Sure(); {
				c.Sleep(within(rng, c.T/10))
				_ = resources[k].Write(c.Ctx, l.Token(), "") // without asking: the fence is there for that
			}
			if rng.IntN(8) != 0 { // otherwise it is held until Close
				_ = l.Give()
			} else {
				l.Sure()
			}
			c.Sleep(within(rng, c.T/4))
		}
	})
}

// expected: whatever fails, a caller learns one of these.
func (r *random) expected(c *conformance.C, err error) {
	for _, e := range []error{driver.ErrHeld, driver.ErrAmbiguous, driver.ErrUnavailable, driver.ErrLost, context.DeadlineExceeded} {
		if errors.Is(err, e) {
			return
		}
	}
	c.Failf("an acquire failed with %v", err)
}

func within(rng *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(d))) + 1
}
