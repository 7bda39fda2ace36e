package netfault

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/fencelock/locker/conformance"
)

// A dialer opens a connection to the server.
type dialer func(context.Context) (net.Conn, error)

// Target tells where the server is. It is asked at each new connection: a server that was
// restarted may have another port.
type Target func(ctx context.Context) (address string, err error)

// At is the Target of a server that does not move.
func At(address string) Target {
	return func(context.Context) (string, error) { return address, nil }
}

// Options are what a proxy can be told. The zero value is fine.
type Options struct {
	// Seed makes chance repeatable. Zero: drawn.
	Seed uint64
	// Handshake reports whether a turn, by its number on the connection (from 0) and its
	// first bytes, belongs to the handshake. The first that does not ends it. Nil: there is
	// none.
	Handshake func(turn int, first []byte) bool
}

// Counts is what passed a proxy since it was made.
type Counts struct {
	// Connections is how many a client opened.
	Connections int64
	// Turns is how many times a client's bytes were answered: the round trips.
	Turns int64
	// Requests and Replies are bytes that arrived at the other side.
	Requests, Replies int64
	// HarmedRequests and HarmedReplies are turns whose bytes were harmed on the way there
	// and back.
	HarmedRequests, HarmedReplies int64
}

// Proxy passes TCP connections on. It is safe for concurrent use.
type Proxy struct {
	dial      dialer
	seed      uint64
	handshake func(int, []byte) bool
	listener  net.Listener
	ctx       context.Context
	cancel    context.CancelFunc
	wg        sync.WaitGroup

	// passing is held for reading while a chunk is judged and written, so that a change is
	// in force when Apply returns.
	passing sync.RWMutex
	faults  Faults
	version uint64
	// judging is held from the look at the faults to the count of the harm, so that Times is
	// exact. It comes behind passing and before conn.mu.
	judging sync.Mutex

	mu     sync.Mutex
	counts Counts
	fired  int
	harmed int // turns, since the last Apply
	conns  map[*conn]struct{}
	closed bool
}

var _ conformance.Network = (*Proxy)(nil)

// Listen makes a sound network in front of a server, on a free port of the loopback
// interface. It does not connect. Close ends it.
func Listen(t Target, o *Options) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("netfault: %w", err)
	}
	return listen(l, t.dial, o), nil
}

func listen(l net.Listener, d dialer, o *Options) *Proxy {
	if o == nil {
		o = &Options{}
	}
	p := &Proxy{dial: d, seed: seeded(o.Seed), handshake: o.Handshake, listener: l, conns: map[*conn]struct{}{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.wg.Go(p.accept)
	return p
}

func seeded(seed uint64) uint64 {
	for seed == 0 {
		seed = rand.Uint64()
	}
	return seed
}

// Addr returns the address for the client. It never changes.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// String names the seed and the faults in force.
func (p *Proxy) String() string {
	p.passing.RLock()
	defer p.passing.RUnlock()
	return fmt.Sprintf("netfault seed %#x: %v", p.seed, p.faults)
}

// Set makes the network fail as the suite asks, from the next bytes on.
func (p *Proxy) Set(f conformance.NetworkFault, d time.Duration) { p.Apply(Of(f, d)) }

// Apply replaces the faults and starts Fired anew. The change is in force when it returns,
// also for connections that are open: no byte passes a Hole or a Reset behind it, even if it
// was held by a delay. All else that is under way arrives when it was due. Connections in
// which bytes were swallowed are reset.
func (p *Proxy) Apply(f Faults) {
	p.passing.Lock()
	p.faults = f
	p.version++
	p.mu.Lock()
	p.fired, p.harmed = 0, 0 // before the first bytes that meet the change
	p.mu.Unlock()
	p.passing.Unlock()
	for _, c := range p.open() {
		if c.hasGap() {
			c.reset()
		}
	}
}

// Fired is how many requests and replies were harmed since the last Set or Apply.
func (p *Proxy) Fired() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fired
}

// Counts returns what passed so far.
func (p *Proxy) Counts() Counts {
	p.passing.Lock() // an answer can be there before its request's bytes are counted
	defer p.passing.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}

// Reset resets every open connection, once.
func (p *Proxy) Reset() {
	for _, c := range p.open() {
		c.reset()
	}
}

// Close ends the proxy, its connections and its goroutines. Copies that are still to come
// never do.
func (p *Proxy) Close() error {
	p.mu.Lock()
	closed := p.closed
	p.closed = true
	p.mu.Unlock()
	if closed {
		return nil
	}
	p.cancel()
	err := p.listener.Close()
	p.Reset()
	p.wg.Wait()
	return err
}

func (p *Proxy) open() []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*conn, 0, len(p.conns))
	for c := range p.conns {
		all = append(all, c)
	}
	return all
}

// acceptAgain is how long the proxy waits when it could not accept a connection: it has too
// few descriptors, and whoever closes some needs the processor.
const acceptAgain = 10 * time.Millisecond

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			if !sleep(p.ctx, acceptAgain) {
				return
			}
			continue
		}
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			abort(client)
			return
		}
		c := newConn(p, client, uint64(p.counts.Connections))
		p.counts.Connections++
		p.conns[c] = struct{}{}
		p.wg.Add(1)
		p.mu.Unlock()
		go c.serve()
	}
}

func (p *Proxy) forget(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// dialTimeout bounds one connect. The server is on this machine.
const dialTimeout = 5 * time.Second

func (p *Proxy) connect() (net.Conn, error) {
	ctx, cancel := context.WithTimeout(p.ctx, dialTimeout)
	defer cancel()
	return p.dial(ctx)
}

func (t Target) dial(ctx context.Context) (net.Conn, error) {
	address, err := t(ctx)
	if err != nil {
		return nil, err
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", address)
}

// abort closes a connection with a reset.
func abort(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

// sleep waits for d and reports whether ctx has not ended.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
