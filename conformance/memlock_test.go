package conformance_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/faultlock"
	"github.com/fencelock/locker/memlock"
)

// memory is the harness of a server in memory.
func memory(s *memlock.Server) conformance.Harness {
	open := func(context.Context) (driver.Driver, error) { return s.Driver(), nil }
	return conformance.Harness{
		Driver:  open,
		Control: s.Driver().Ping,
		Faults: conformance.Faults{
			Unreachable: map[string]func(context.Context) (driver.Driver, error){
				"requests are lost": func(ctx context.Context) (driver.Driver, error) {
					d, n, err := networked(open(ctx))
					n.Set(conformance.LoseRequests, 0)
					return d, err
				},
			},
			Client: func(ctx context.Context) (driver.Driver, conformance.Network, error) { return networked(open(ctx)) },
			Remove: func(ctx context.Context, key string) error { // as near as it gets to deleting a record
				d := s.Driver()
				st, err := d.Inspect(ctx, key)
				if err != nil {
					return err
				}
				return d.Break(ctx, key, st.Token, driver.Break{Now: true})
			},
			Overwrite: func(ctx context.Context, key string) error { // another's record in its place
				d := s.Driver()
				st, err := d.Inspect(ctx, key)
				if err == nil {
					err = d.Break(ctx, key, st.Token, driver.Break{Now: true})
				}
				if err == nil {
					_, err = d.TryAcquire(ctx, driver.Request{Key: key, Attempt: driver.NewAttempt(), TTL: time.Minute, Owner: "a stranger"})
				}
				return err
			},
		},
		Footprint: func(ctx context.Context) (map[string]int, error) {
			n := 0
			for _, err := range s.Driver().List(ctx, "") {
				if err != nil {
					return nil, err
				}
				n++
			}
			return map[string]int{"held keys": n}, nil
		},
		Reopen: func(_ context.Context, base driver.Token) (driver.Driver, error) {
			return s.Open(&memlock.Options{TokenBase: base})
		},
		Fresh: func(_ context.Context, base driver.Token) (driver.Driver, error) {
			return memlock.NewServer().Open(&memlock.Options{TokenBase: base})
		},
	}
}

// networks counts, so that no two fail alike.
var networks atomic.Uint64

// networked plays a network with a faultlock.
func networked(d driver.Driver, err error) (driver.Driver, conformance.Network, error) {
	f := faultlock.New(d, networks.Add(1), nil)
	return f, network{f}, err
}

type network struct{ f *faultlock.Driver }

func (n network) Set(f conformance.NetworkFault, d time.Duration) {
	text := map[conformance.NetworkFault]string{
		conformance.Sound:        "",
		conformance.LoseRequests: "*=before",
		conformance.LoseReplies:  "*=after",
		conformance.BlackHole:    "*=hang",
		conformance.Mute:         "*=hangback",
		conformance.Delays:       fmt.Sprintf("*%%0.5=delay:0s-%[1]v; *=delayback:0s-%[1]v", d),
		conformance.Resets:       "*%0.1=before; *%0.1=after",
		conformance.Copies:       fmt.Sprintf("try=dup:%[1]v; renew=dup:%[1]v; release=dup:%[1]v; enqueue=dup:%[1]v; poll=dup:%[1]v", d),
	}[f]
	s, err := faultlock.Parse(text)
	if err != nil {
		panic(err)
	}
	n.f.Set(s)
}

func (n network) Fired() int {
	sum := 0
	for _, c := range n.f.Fired() {
		sum += c.Times
	}
	return sum
}

func TestMemlock(t *testing.T) {
	h := fragileMemory()
	h.Allow = []string{}
	conformance.Run(t, h)
}

// virtual is memory in virtual time, with a server for each case.
func virtual() conformance.Harness {
	return conformance.Harness{
		Virtual: true,
		PerCase: func(h conformance.Harness) conformance.Harness {
			own := fragileMemory()
			own.Virtual, own.TTL, own.Slack, own.Features = true, h.TTL, h.Slack, h.Features
			return own
		},
	}
}

func TestMemlockVirtual(t *testing.T) {
	h := virtual()
	h.Allow = []string{}
	conformance.Run(t, h)
}
