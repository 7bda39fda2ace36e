package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/locker/driver"
)

// command is a command that the client must not send a second time by itself: go-redis's
// own re-send after a lost answer gave one attempt two grants. MOVED and ASK are followed,
// since a server that says so has done nothing.
type command struct{ *redis.Cmd }

// NoRetry is asked by go-redis before it repeats a command, or a pipeline that contains it.
func (command) NoRetry() bool { return true }

// guard is the last argument of every script. Redis ignores it; it is there for the moment
// when the client writes the request: it notes that this has begun, and refuses when the
// call is over already, because a connection can take its time to come up.
type guard struct {
	ctx     context.Context
	written atomic.Bool
}

// MarshalBinary is called by go-redis as it writes the request.
func (g *guard) MarshalBinary() ([]byte, error) {
	if err := g.ctx.Err(); err != nil {
		return nil, err
	}
	if end, ok := g.ctx.Deadline(); ok && !time.Now().Before(end) { // the timer behind Err may be late
		return nil, context.DeadlineExceeded
	}
	g.written.Store(true)
	return nil, nil
}

// sender sends requests, each once.
type sender struct {
	client redis.UniversalClient
	// detached: the client does not end a call with its context, so that each runs in a
	// goroutine of its own.
	detached bool
	running  *calls // those
	// replicas is how many must have a grant or a renewal before it counts.
	replicas int
}

// calls are those that run in goroutines of their own.
type calls struct {
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

// begin starts a call. False: it is closed.
func (c *calls) begin(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.running.Go(f)
	}
	return !c.closed
}

// close lets no call begin any more and waits for those that have.
func (c *calls) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.running.Wait()
}

// use takes a client of a kind that keeps a key on one server and a call in its time.
func (s *sender) use(client redis.UniversalClient) error {
	s.running = &calls{}
	switch c := client.(type) {
	case *redis.Client:
		if c == nil {
			return errors.New("the client is nil")
		}
		s.client = prompt(c)
	case *redis.ClusterClient:
		if c == nil {
			return errors.New("the client is nil")
		}
		s.client, s.detached = c, !c.Options().ContextTimeoutEnabled
	default:
		return fmt.Errorf("%w: a %T: want a *redis.Client or a *redis.ClusterClient", driver.ErrUnsupported, client)
	}
	return nil
}

// prompt returns the client, if it ends calls in time, or a clone of it that does. The clone
// shares the pool. go-redis looks at a context's deadline on the socket only if told so; the
// caller's client is not touched. A clone has none of its hooks.
func prompt(c *redis.Client) *redis.Client {
	o := c.Options()
	bounded := func(d time.Duration) bool { return d > 0 && d <= callLimit }
	if o.ContextTimeoutEnabled && bounded(o.ReadTimeout) && bounded(o.WriteTimeout) {
		return c
	}
	clone := c.WithTimeout(callLimit)
	clone.Options().ContextTimeoutEnabled = true
	return clone
}

// run is one run of a script: its keys, its arguments and what came of it.
type run struct {
	script *script
	args   []any // the command as it is sent
	index  int   // among those it is sent with
	reply  any
	err    error
}

const (
	evalName, evalshaName = "eval", "evalsha"
	scriptArg             = 1 // of the command: the script's sha or source
	firstKeyArg           = 3
)

func newRun(s *script, keys []any, args ...any) *run {
	a := make([]any, 0, 4+len(keys)+len(args)) // the guard comes last
	a = append(a, evalshaName, s.sha, len(keys))
	a = append(a, keys...)
	return &run{script: s, args: append(a, args...)}
}

// one runs a script and returns its answer.
func (s *sender) one(ctx context.Context, r *run) (any, error) {
	s.together(ctx, []*run{r})
	return r.reply, r.err
}

// all runs scripts side by side, each on its own, and calls done with every one as its
// server answers, from one goroutine at a time. It is one round trip, in a Cluster one to
// each master.
func (s *sender) all(ctx context.Context, runs []*run, done func(*run)) {
	parts := s.parts(ctx, runs)
	answered := make(chan []*run, len(parts))
	for _, part := range parts {
		go func() {
			s.together(ctx, part)
			answered <- part
		}()
	}
	for range parts {
		for _, r := range <-answered {
			done(r)
		}
	}
}

// parts are the runs by the server that they go to. go-redis's own pipeline over several
// masters, when one of them cannot be reached, ends with an error for every command that
// has none, though the others have answered theirs.
func (s *sender) parts(ctx context.Context, runs []*run) [][]*run {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok || len(runs) < 2 {
		return [][]*run{runs}
	}
	var parts [][]*run
	at := map[*redis.Client]int{}
	for _, r := range runs {
		key, _ := r.args[firstKeyArg].(string)
		master, err := cluster.MasterForKey(ctx, key)
		i, known := at[master]
		if err != nil || !known {
			i = len(parts)
			parts = append(parts, nil)
		}
		if err == nil {
			at[master] = i
		}
		parts[i] = append(parts[i], r)
	}
	return parts
}

// together runs scripts in one round trip and fills in what came of them. Only where the
// server has lost a script there is a second round trip, for those runs alone: the server
// has said that it did not run them.
func (s *sender) together(ctx context.Context, runs []*run) {
	if len(runs) == 0 {
		return
	}
	g := &guard{ctx: ctx}
	for _, r := range runs {
		r.args = append(r.args, g)
	}
	s.send(ctx, runs)
	var again []*run
	for _, r := range runs {
		if r.err != nil && redis.HasErrorPrefix(r.err, "NOSCRIPT") {
			r.args[0], r.args[scriptArg] = evalName, r.script.source
			again = append(again, r)
		}
	}
	if len(again) > 0 {
		s.send(ctx, again)
	}
	for _, r := range runs {
		if r.err != nil {
			r.err = r.failed(g.written.Load())
		}
	}
}

// outcome is what came of one command, apart from the command: a detached call that is
// given up leaves its commands to the goroutine that still works on them.
type outcome struct {
	reply any
	err   error
}

// send sends the runs as they are.
func (s *sender) send(ctx context.Context, runs []*run) {
	if len(runs) == 1 && s.replicas == 0 && !s.detached { // the most frequent, and the shortest
		cmd := command{redis.NewCmd(ctx, runs[0].args...)}
		runs[0].err = s.client.Process(ctx, cmd)
		runs[0].reply = cmd.Val()
		return
	}
	cmds := make([]redis.Cmder, len(runs), len(runs)+1)
	for i, r := range runs {
		cmds[i] = command{redis.NewCmd(ctx, r.args...)}
	}
	if s.replicas > 0 {
		cmds = append(cmds, command{redis.NewCmd(ctx, "wait", s.replicas, waitFor(ctx).Milliseconds())})
	}
	got := s.exchange(ctx, cmds)
	for i, r := range runs {
		r.reply, r.err = got[i].reply, got[i].err
	}
	if s.replicas > 0 {
		s.confirmed(runs, got[len(runs)])
	}
}

// exchange sends commands in one go and returns what came of each.
func (s *sender) exchange(ctx context.Context, cmds []redis.Cmder) []outcome {
	if !s.detached {
		return s.perform(ctx, cmds)
	}
	done := make(chan []outcome, 1)
	if !s.running.begin(func() { done <- s.perform(ctx, cmds) }) {
		return alike(len(cmds), driver.ErrClosed)
	}
	select {
	case got := <-done:
		return got
	case <-ctx.Done(): // it may be written at this very moment
		return alike(len(cmds), driver.Wrap(driver.ErrAmbiguous, ctx.Err()))
	}
}

// alike is one error for every command.
func alike(n int, err error) []outcome {
	got := make([]outcome, n)
	for i := range got {
		got[i].err = err
	}
	return got
}

// perform is exchange, as long as the client takes.
func (s *sender) perform(ctx context.Context, cmds []redis.Cmder) []outcome {
	var whole error
	if len(cmds) == 1 {
		whole = s.client.Process(ctx, cmds[0])
	} else {
		pipe := s.client.Pipeline()
		for _, c := range cmds {
			_ = pipe.Process(ctx, c) // a pipeline only notes it
		}
		_, whole = pipe.Exec(ctx)
	}
	got := make([]outcome, len(cmds))
	for i, c := range cmds {
		got[i].reply, got[i].err = c.(command).Result()
		// A connection whose handshake was answered with an error, such as a wrong password,
		// fails a pipeline and leaves its commands as they were: with neither.
		if got[i].reply == nil && got[i].err == nil {
			got[i].err = whole
		}
	}
	return got
}

// maxWait bounds how long replicas are waited for: the rest of the call is for the answer.
const maxWait = time.Second

func waitFor(ctx context.Context) time.Duration {
	d := maxWait
	if end, ok := ctx.Deadline(); ok {
		d = min(d, time.Until(end)/2)
	}
	return max(d, time.Millisecond) // zero would wait for ever
}

var errReplicas = errors.New("too few replicas have it")

// confirmed makes every run ambiguous that says of a grant that it stands, unless enough
// replicas have it. A refusal needs no replica.
func (s *sender) confirmed(runs []*run, wait outcome) {
	n, _ := wait.reply.(int64)
	if wait.err == nil && n >= int64(s.replicas) {
		return
	}
	err := wait.err
	if err == nil {
		err = fmt.Errorf("%w: %d of %d", errReplicas, n, s.replicas)
	}
	for _, r := range runs {
		if r.err == nil {
			r.doubt(driver.Wrap(driver.ErrAmbiguous, err))
		}
	}
}
