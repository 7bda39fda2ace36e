package epoch

import (
	"context"
	"sync"
	"time"
)

// garbage runs clean-ups one after another on one goroutine that exists only while
// there is work. Clean-ups are never needed for safety: what does not fit is dropped,
// and a later sweep finds it.
type garbage struct {
	mu     sync.Mutex
	queue  []func(context.Context)
	busy   bool
	closed bool
	cancel context.CancelFunc
	done   sync.WaitGroup
}

const (
	maxGarbage     = 1024
	garbageTimeout = 5 * time.Second
)

// run queues a clean-up.
func (g *garbage) run(f func(context.Context)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || len(g.queue) >= maxGarbage {
		return
	}
	g.queue = append(g.queue, f)
	if g.busy {
		return
	}
	g.busy = true
	ctx, cancel := context.WithCancel(context.Background())
	g.cancel = cancel
	g.done.Add(1)
	go g.work(ctx, cancel)
}

func (g *garbage) work(ctx context.Context, cancel context.CancelFunc) {
	defer g.done.Done()
	defer cancel()
	for {
		g.mu.Lock()
		if len(g.queue) == 0 {
			g.busy, g.queue = false, nil
			g.mu.Unlock()
			return
		}
		f := g.queue[0]
		g.queue = g.queue[1:]
		g.mu.Unlock()
		call, done := context.WithTimeout(ctx, garbageTimeout)
		f(call)
		done()
	}
}

// closePatience is how long Close lets queued clean-ups go on: a process that takes a
// key once and ends would otherwise never collect anything.
const closePatience = 200 * time.Millisecond

// close waits for the clean-ups, at most closePatience and one store call.
func (g *garbage) close() {
	g.mu.Lock()
	g.closed = true
	cancel := g.cancel
	g.mu.Unlock()
	if cancel == nil {
		return
	}
	late := time.AfterFunc(closePatience, func() {
		g.mu.Lock()
		g.queue = nil
		g.mu.Unlock()
		cancel()
	})
	defer late.Stop()
	g.done.Wait()
}

// collect deletes, after a grant of number n was checked, what is too old to be worth
// keeping. The check has shown n to be the newest, so nothing that is deleted ever
// was; whoever sleeps with an older number in mind finds out by its own check.
func (d *Driver) collect(key string, n uint64) {
	if n <= d.keep {
		return
	}
	old := n - d.keep
	d.background(func(ctx context.Context) {
		if n%d.keep == 0 {
			_ = d.store.Sweep(ctx, key, old) // what others did not get to delete
			return
		}
		_ = d.store.Delete(ctx, key, old)
	})
}
