package conformance_test

import (
	"context"
	"iter"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/driver"
)

// TestStallsAreNoEvidence lets the server of each case stand still for a while, or its clients
// read no answer, at several moments. A case may fail of that, but not so that it would be
// evidence on a slow machine, too: the backend is sound.
func TestStallsAreNoEvidence(t *testing.T) {
	t.Parallel()
	size := os.Getenv(conformance.SizeVariable)
	full := size == "full" || size == "soak"
	few := []float64{-0.001, 0.02, 0.2, 0.7} // most of what was ever found begins with a case
	many := slices.Clone(few)
	if full {
		for at := 0.05; at < 2; at += 0.05 {
			many = append(many, at)
		}
	}
	for _, k := range conformance.Cases() {
		switch {
		case strings.HasPrefix(k.ID, "server/") || strings.HasPrefix(k.ID, "process/") || k.ID == "renewal/of-a-day":
			continue // they stop the server themselves, need real processes, or last for ever
		case k.Load && !full:
			continue
		}
		moments := many
		if k.Load {
			moments = few
		}
		t.Run(k.ID, func(t *testing.T) {
			t.Parallel()
			for _, kind := range []func(conformance.Harness, *outage) conformance.Harness{standing, deaf, oneDeaf(0), oneDeaf(1)} {
				for _, at := range moments {
					for _, long := range []float64{0.3, 0.6, 0.9, 1.3} {
						underStall(t, k, kind, at, long)
					}
				}
			}
		})
	}
}

// outage is a time in which nothing goes on.
type outage struct {
	begins, ends time.Time
	ended        chan struct{}
	server       sync.WaitGroup
}

// underStall runs a case in a world that stalls at so many ttls, for so many.
func underStall(t *testing.T, k conformance.Case, kind func(conformance.Harness, *outage) conformance.Harness, at, long float64) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		h := virtual()
		const ttl = float64(2 * time.Second)
		s := &outage{begins: time.Now().Add(time.Duration(at * ttl)), ended: make(chan struct{})}
		s.ends = s.begins.Add(time.Duration(long * ttl))
		sound := h.PerCase
		h.PerCase = func(h conformance.Harness) conformance.Harness { return kind(sound(h), s) }
		detail, hard := conformance.RunHard(h, k)
		close(s.ended)
		s.server.Wait()
		if hard {
			t.Errorf("a stall of %v T at %v T is taken for evidence: %.1500s", long, at, detail)
		}
	})
}

// standing is a server that stands still: requests are read when it goes on.
func standing(h conformance.Harness, s *outage) conformance.Harness {
	s.server.Go(func() {
		select {
		case <-time.After(time.Until(s.begins)):
		case <-s.ended:
			return
		}
		_ = h.Faults.Stop(context.Background())
		select {
		case <-time.After(time.Until(s.ends)):
		case <-s.ended:
		}
		_ = h.Faults.Continue(context.Background())
	})
	return h
}

// deaf is a machine whose clients are not run: requests were sent, and answers are read
// when the stall is over, whatever their contexts say by then.
func deaf(h conformance.Harness, s *outage) conformance.Harness {
	sound := h.Driver
	h.Driver = func(ctx context.Context) (driver.Driver, error) {
		d, err := sound(ctx)
		return &deafClient{d.(*fragileClient), s}, err
	}
	h.Faults.Client = func(ctx context.Context) (driver.Driver, conformance.Network, error) { return networked(h.Driver(ctx)) }
	return h
}

type deafClient struct {
	*fragileClient
	s *outage
}

// wakes waits for the end of the stall, if it is on.
func (s *outage) wakes() {
	if now := time.Now(); now.After(s.begins) && now.Before(s.ends) {
		<-time.After(s.ends.Sub(now))
	}
}

func (d *deafClient) TryAcquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	defer d.s.wakes()
	return d.fragileClient.TryAcquire(ctx, r)
}

func (d *deafClient) Enqueue(ctx context.Context, r driver.Request) (driver.Grant, error) {
	defer d.s.wakes()
	return d.fragileClient.Enqueue(ctx, r)
}

func (d *deafClient) Poll(ctx context.Context, r driver.Request) (driver.Grant, error) {
	defer d.s.wakes()
	return d.fragileClient.Poll(ctx, r)
}

func (d *deafClient) Renew(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	defer d.s.wakes()
	return d.fragileClient.Renew(ctx, g)
}

func (d *deafClient) RenewBatch(ctx context.Context, gs []driver.Grant, each func(int, driver.Grant, error)) error {
	type answer struct {
		g   driver.Grant
		err error
	}
	answers := make([]answer, len(gs))
	err := d.fragileClient.RenewBatch(ctx, gs, func(i int, g driver.Grant, err error) { answers[i] = answer{g, err} })
	d.s.wakes()
	for i, a := range answers {
		each(i, a.g, a.err)
	}
	return err
}

func (d *deafClient) Release(ctx context.Context, g driver.Grant) error {
	defer d.s.wakes()
	return d.fragileClient.Release(ctx, g)
}

func (d *deafClient) Break(ctx context.Context, key string, t driver.Token, b driver.Break) error {
	defer d.s.wakes()
	return d.fragileClient.Break(ctx, key, t, b)
}

func (d *deafClient) Inspect(ctx context.Context, key string) (driver.State, error) {
	defer d.s.wakes()
	return d.fragileClient.Inspect(ctx, key)
}

func (d *deafClient) List(ctx context.Context, prefix string) iter.Seq2[driver.State, error] {
	defer d.s.wakes()
	return d.fragileClient.List(ctx, prefix)
}

// oneDeaf is a machine on which one client is not run.
func oneDeaf(which int) func(conformance.Harness, *outage) conformance.Harness {
	return func(h conformance.Harness, s *outage) conformance.Harness {
		sound := h.Driver
		var made atomic.Int32
		h.Driver = func(ctx context.Context) (driver.Driver, error) {
			d, err := sound(ctx)
			if int(made.Add(1)) != which+1 {
				return d, err
			}
			return &deafClient{d.(*fragileClient), s}, err
		}
		h.Faults.Client = func(ctx context.Context) (driver.Driver, conformance.Network, error) { return networked(h.Driver(ctx)) }
		return h
	}
}
