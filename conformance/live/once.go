package live

import (
	"sync"
	"testing"
)

// Once makes a server that the tests of a package share: the first test that asks starts it, and it ends with the test
// binary. Tests that harm their server need one of their own.
//
//	var redis = live.Once(func(tb testing.TB) *live.RedisServer { return live.Redis(tb, live.RedisOptions{}) })
func Once[S shared](start func(testing.TB) S) func(testing.TB) S {
	var (
		mu      sync.Mutex
		server  S
		started bool
	)
	return func(tb testing.TB) S {
		tb.Helper()
		mu.Lock()
		defer mu.Unlock() // also where start skips or fails the test: the next one tries again
		if !started {
			server = start(keeper{tb})
			started = true
		}
		server.use(tb)
		return server
	}
}

// shared is a server, or a cluster of them.
type shared interface{ use(testing.TB) }

// keeper is a test that starts a server and does not end it: the reaper does, at the end of the run.
type keeper struct{ testing.TB }

// Cleanup forgets f.
func (keeper) Cleanup(func()) {}
