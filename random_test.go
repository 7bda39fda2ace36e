package locker_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/faultlock"
	"github.com/fencelock/locker/fence"
	"github.com/fencelock/locker/memlock"
)

var oneSeed = flag.Uint64("seed", 0, "run TestRandom with this seed alone, and print what happens")

// seeds is how many worlds TestRandom tries.
func seeds() uint64 {
	if os.Getenv("LOCKER_TEST_SIZE") == "" {
		return 3000
	}
	return 50_000
}

// TestRandom lets several Lockers with faulty networks compete in virtual time. At no
// instant may two of them believe that they hold a key, no token may be out of order, and
// when all is over nothing may be left at the server. A failing seed is printed; run it
// alone with -seed. The faults of a seed are always the same.
func TestRandom(t *testing.T) {
	if *oneSeed != 0 {
		random(t, *oneSeed, true)
		return
	}
	const parts = 8
	for part := range uint64(parts) {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()
			for seed := part + 1; seed <= seeds() && !t.Failed(); seed += parts {
				random(t, seed, false)
			}
		})
	}
}

// storm is one random world.
type storm struct {
	*testing.T
	seed   uint64
	ttl    time.Duration
	print  bool
	server *memlock.Server

	mu     sync.Mutex
	keys   map[string]*keyHistory
	grants int
}

// keyHistory is what the storm knows of one key.
type keyHistory struct {
	leases   []*locker.Lease // all of it that may still be believed
	returned driver.Token    // the greatest token of a grant that has returned
	register fence.Register[int]
}

func random(t *testing.T, seed uint64, verbose bool) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := &storm{T: t, seed: seed, print: verbose, server: memlock.NewServer(), keys: map[string]*keyHistory{}}
		s.ttl = []time.Duration{2 * time.Second, 10 * time.Second, 30 * time.Second}[r.IntN(3)]
		for i := range 1 + r.IntN(2) {
			s.keys[fmt.Sprint("k", i)] = &keyHistory{}
		}
		var wg sync.WaitGroup
		var all []*faultlock.Driver
		for i := range 2 + r.IntN(3) {
			d := faultlock.New(s.server.Driver(), seed*100+uint64(i), schedule(r, s.ttl))
			all = append(all, d)
			var over driver.Driver = d
			if r.IntN(4) == 0 {
				over = bare{d} // polls
			}
			l, err := locker.New(over, &locker.Options{TTL: s.ttl, Owner: fmt.Sprint("locker ", i)})
			if err != nil {
				t.Fatal(err)
			}
			if s.print {
				t.Logf("locker %d: %v", i, d)
			}
			var workers sync.WaitGroup
			for range 1 + r.IntN(3) {
				wr := rand.New(rand.NewPCG(seed, r.Uint64()))
				workers.Go(func() { s.work(l, wr) })
			}
			early, when := r.IntN(8) == 0, time.Duration(r.Int64N(int64(5*s.ttl)))
			wg.Go(func() {
				if early { // Close while its workers are busy
					pass2(when)
					_ = l.Close()
				}
				workers.Wait()
				_ = l.Close()
				if left := l.Left(); len(left) != 0 {
					s.Errorf("seed %d: left in a closed Locker: %v", s.seed, left)
				}
			})
		}
		wg.Wait()
		for _, d := range all {
			_ = d.Close() // waits for what the network delivers late
		}
		s.after()
	})
}

// pass2 lets virtual time pass, without waiting for the others.
func pass2(d time.Duration) { <-time.After(d) }

// schedule draws a few faults.
func schedule(r *rand.Rand, ttl time.Duration) faultlock.Schedule {
	var rules []string
	ops := []string{"try", "renew", "release", "enqueue", "poll", "listen", "wait"}
	kinds := []string{"before", "after", "delay:%v-%v", "delayback:%v-%v", "hang", "hangback", "dup:%v-%v"}
	for range r.IntN(6) {
		kind := kinds[r.IntN(len(kinds))]
		if strings.Contains(kind, "%") {
			kind = fmt.Sprintf(kind, time.Duration(0), ttl*time.Duration(1+r.IntN(20))/10)
		}
		rules = append(rules, fmt.Sprintf("%s%%%.2f=%s", ops[r.IntN(len(ops))], 0.05+r.Float64()*0.6, kind))
	}
	s, err := faultlock.Parse(strings.Join(rules, "; "))
	if err != nil {
		panic(err)
	}
	return s
}

// work is one goroutine that uses locks.
func (s *storm) work(l *locker.Locker, r *rand.Rand) {
	for range 2 + r.IntN(6) {
		key := fmt.Sprint("k", r.IntN(len(s.keys)))
		h := s.keys[key]
		s.mu.Lock()
		before := h.returned
		s.mu.Unlock()
		var opts []locker.AcquireOption
		wait := time.Duration(r.Int64N(int64(4 * s.ttl)))
		opts = append(opts, locker.WithWait(wait))
		if r.IntN(6) == 0 {
			opts = append(opts, locker.WithManualRenew())
		}
		if r.IntN(6) == 0 {
			opts = append(opts, locker.WithMaxHold(1+time.Duration(r.Int64N(int64(2*s.ttl)))))
		}
		begun := time.Now()
		var lease *locker.Lease
		var err error
		if r.IntN(4) == 0 {
			lease, err = l.TryAcquire(context.Background(), key, opts...)
		} else {
			lease, err = l.Acquire(context.Background(), key, opts...)
			// The wait's end, and the call that was under way then.
			if over := time.Since(begun) - wait; over > time.Second {
				s.Errorf("seed %d: Acquire returned %v after its wait ended", s.seed, over)
			}
		}
		if errors.Is(err, locker.ErrClosed) {
			return
		}
		if err != nil {
			s.note("%s refused: %v", key, err)
			s.expected(err)
			pass2(time.Duration(r.Int64N(int64(s.ttl / 4))))
			continue
		}
		s.granted(h, lease, before)
		s.hold(h, lease, r)
	}
}

func (s *storm) note(format string, args ...any) {
	if s.print {
		s.Logf("%s %s", time.Now().Format("04:05.000"), fmt.Sprintf(format, args...))
	}
}

// expected fails on an error that no fault explains.
func (s *storm) expected(err error) {
	for _, ok := range []error{locker.ErrHeld, locker.ErrAmbiguous, locker.ErrUnavailable, locker.ErrLost, context.DeadlineExceeded} {
		if errors.Is(err, ok) {
			return
		}
	}
	s.Errorf("seed %d: unexpected error: %v", s.seed, err)
}

// granted checks a lease against everything that is known.
func (s *storm) granted(h *keyHistory, lease *locker.Lease, before driver.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grants++
	s.note("%s granted %v to %s, %v left", lease.Key(), lease.Token(), lease.Grant().Owner, lease.Remaining())
	if lease.Token() <= before {
		s.Errorf("seed %d: token %v granted after %v had been returned", s.seed, lease.Token(), before)
	}
	for _, other := range h.leases {
		if other.Token() == lease.Token() {
			s.Errorf("seed %d: token %v granted twice", s.seed, lease.Token())
		}
	}
	h.leases = append(h.leases, lease)
	h.returned = max(h.returned, lease.Token())
	s.oneBelief(h)
}

// oneBelief fails if two leases of a key are valid now. s.mu is held.
func (s *storm) oneBelief(h *keyHistory) {
	var valid []driver.Token
	for _, l := range h.leases {
		if l.Valid() {
			valid = append(valid, l.Token())
		}
	}
	if len(valid) > 1 {
		s.Errorf("seed %d: %d beliefs at once: tokens %v", s.seed, len(valid), valid)
	}
}

// hold uses a lease for a while, writes to a fenced resource, and lets go, or does not.
func (s *storm) hold(h *keyHistory, lease *locker.Lease, r *rand.Rand) {
	steps := 1 + r.IntN(4)
	length := time.Duration(r.Int64N(int64(2 * s.ttl)))
	for range steps {
		pass2(length / time.Duration(steps))
		s.mu.Lock()
		s.oneBelief(h)
		valid := lease.Valid()
		err := h.register.Write(context.Background(), lease.Token(), int(lease.Token()))
		s.mu.Unlock()
		if valid && err != nil {
			s.Errorf("seed %d: the write of a valid holder was refused: %v", s.seed, err)
		}
		if r.IntN(3) == 0 {
			_ = lease.Renew(context.Background())
		}
	}
	if r.IntN(5) > 0 {
		err := lease.Release(context.Background())
		s.note("%s released %v: %v", lease.Key(), lease.Token(), err)
		if lease.Valid() {
			s.Errorf("seed %d: valid after Release", s.seed)
		}
	} // else forgotten: it is renewed until Close
}

// after checks what is left: nothing is held for longer than a ttl after the last client
// has gone, and the next grant works and is in order.
func (s *storm) after() {
	pass2(2 * s.ttl) // a place may outlive its client by its horizon, and be granted a claim window
	l, err := locker.New(s.server.Driver(), &locker.Options{TTL: s.ttl})
	if err != nil {
		s.Fatal(err)
	}
	for key, h := range s.keys {
		st, err := l.Inspect(context.Background(), key)
		if err != nil || st.Held || st.Waiters != 0 {
			s.Errorf("seed %d: left behind: %+v, %v", s.seed, st, err)
		}
		lease, err := l.TryAcquire(context.Background(), key)
		if err != nil {
			s.Errorf("seed %d: key %s after all: %v", s.seed, key, err)
		} else if lease.Token() <= h.returned {
			s.Errorf("seed %d: token %v after %v", s.seed, lease.Token(), h.returned)
		}
	}
	_ = l.Close()
}
