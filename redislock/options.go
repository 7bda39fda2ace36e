package redislock

import (
	"fmt"
	"time"

	"github.com/fencelock/locker/driver"
)

// Options are what a namespace in Redis can be told. The zero value is fine.
type Options struct {
	// Namespace begins the name of every key. Empty: locker. At most 128 printable bytes
	// without spaces and braces.
	Namespace string
	// TokenBase is where the counters start: the first token of a bucket is one more. It is
	// fixed when the namespace is created.
	TokenBase driver.Token
	// ClockFloor keeps tokens from falling below the server's clock in microseconds, so that
	// a server that has lost its counters repeats a token only if its clock is behind, too.
	// Tokens are still best-effort. It is fixed when the namespace is created.
	ClockFloor bool
	// AllowEviction accepts a server whose memory policy is not noeviction. Such a server
	// may drop the locks themselves, while they are held.
	AllowEviction bool
	// WaitReplicas is how many replicas must have a grant or a renewal before it counts.
	// Zero: none. It costs the time to the replicas with each request, and pushed grants
	// are confirmed by a renewal. Not in a Cluster.
	WaitReplicas int
}

// name is Info.Name.
const name = "redislock"

const defaultNamespace = "locker"

const (
	// granularity is what Redis counts expiries in.
	granularity = time.Millisecond
	// minTTL keeps the poll interval, a quarter of it, well above the granularity and a
	// round trip.
	minTTL = 100 * time.Millisecond
	// slack is for the client and the machine: Redis itself is exact to a millisecond.
	slack = 200 * time.Millisecond
	// maxBatch is what one pipeline renews: some 5 ms of the server's time.
	maxBatch = 1000
	// maxTogether is what one run of a script renews: starting it costs as much as a renewal,
	// and while it runs the server does nothing else.
	maxTogether = 50
	// callLimit ends a read or a write that a cancelled call would still wait for. A
	// deadline ends it earlier.
	callLimit = 2 * time.Second
)

// checked fills in what was left out.
func (o *Options) checked() (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	if c.Namespace == "" {
		c.Namespace = defaultNamespace
	}
	if c.TokenBase >= driver.MaxToken {
		return c, fmt.Errorf("token base %d: no token is left above it", uint64(c.TokenBase))
	}
	if c.WaitReplicas < 0 {
		return c, fmt.Errorf("wait for %d replicas: want 0 or more", c.WaitReplicas)
	}
	return c, nil
}

// layout is what two clients of the namespace must agree on.
func (o *Options) layout() driver.Layout {
	tokens := "counter"
	if o.ClockFloor {
		tokens = "clock-floor"
	}
	return driver.Layout{
		Backend:   name,
		TokenBase: o.TokenBase,
		Settings:  map[string]string{"buckets": fmt.Sprintf("%d by fnv32a", buckets), "tokens": tokens},
	}
}

// terms are those of a grant, but for the floor.
func (o *Options) terms() string {
	return fmt.Sprintf("%s %d %d ", o.TokenBase, flag(o.ClockFloor), flag(o.WaitReplicas > 0))
}

// plainTerms are so usual that with no floor the scripts know them by an empty string.
const plainTerms = "0 0 0 "

func flag(set bool) int {
	if set {
		return 1
	}
	return 0
}
