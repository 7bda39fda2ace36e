package netfault

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// The directions.
const (
	requests = iota
	replies
)

// conn is one connection of a client and the one to the server behind it.
type conn struct {
	p       *Proxy
	number  uint64
	client  net.Conn
	server  net.Conn // nil while swallowed: nothing is behind it
	queue   [2]chan chunk
	ctx     context.Context // ends with the connection
	end     context.CancelFunc
	closing sync.Once

	mu   sync.Mutex
	born uint64  // the version of the faults when it was opened
	gap  [2]bool // bytes were swallowed
	turn turn
	// shaking: the handshake is not over; shaken are its bytes.
	shaking bool
	shaken  []byte
	bytes   [2]int64  // arrived here, for Cut
	chunks  [2]uint64 // of them
}

// turn is what the client sends up to the server's next bytes.
type turn struct {
	number    int // from 0
	begun     bool
	version   uint64 // of the faults when it began
	handshake bool
	answered  bool
	before    bool // the reset of Faults.OneIn
	after     bool
	bytes     [2]int64
	harmed    [2]uint64 // the version of the faults, plus one, in which it was counted
	copied    *replay   // to be sent when the server has answered
}

// chunk is bytes on their way, due at the other side, but behind those before. end: no more
// will come. reset: the connection's end.
type chunk struct {
	b     []byte
	due   time.Time
	end   bool
	reset bool
}

// queued is how many chunks may be under way in one direction.
const queued = 1024

func newConn(p *Proxy, client net.Conn, number uint64) *conn {
	c := &conn{p: p, client: client, number: number, shaking: p.handshake != nil}
	c.ctx, c.end = context.WithCancel(context.Background())
	c.turn.number = -1
	for i := range c.queue {
		c.queue[i] = make(chan chunk, queued)
	}
	return c
}

// serve runs until both directions have ended, or the connection was reset.
func (c *conn) serve() {
	defer c.p.wg.Done()
	defer c.p.forget(c)
	defer c.reset()
	if c.bornInHole() {
		c.swallow()
		return
	}
	server, err := c.p.connect()
	if err != nil {
		return
	}
	c.mu.Lock()
	c.server = server
	c.mu.Unlock()
	if c.ctx.Err() != nil { // reset while it was dialled
		_ = server.Close()
		return
	}
	var pumps sync.WaitGroup
	pumps.Go(func() { c.read(requests, c.client) })
	pumps.Go(func() { c.read(replies, server) })
	pumps.Go(func() { c.write(requests, server) })
	pumps.Go(func() { c.write(replies, c.client) })
	pumps.Wait()
}

// bornInHole notes with which faults the connection begins, and reports whether it is swallowed, as a connect would be: that
// is over at the next change.
func (c *conn) bornInHole() bool {
	c.p.passing.RLock()
	defer c.p.passing.RUnlock()
	defer c.lock()()
	c.born = c.p.version
	return c.sink(requests)
}

// lock is for whoever judges and harms. It returns what undoes it.
func (c *conn) lock() (unlock func()) {
	c.p.judging.Lock()
	c.mu.Lock()
	return func() {
		c.mu.Unlock()
		c.p.judging.Unlock()
	}
}

// swallow reads until the client gives up, and then waits for the next change.
func (c *conn) swallow() {
	_, _ = io.Copy(io.Discard, c.client)
	<-c.ctx.Done()
}

// reset ends the connection at once: the client gets a reset.
func (c *conn) reset() {
	c.closing.Do(func() {
		c.end()
		abort(c.client)
		c.mu.Lock()
		server := c.server
		c.mu.Unlock()
		if server != nil {
			_ = server.Close()
		}
	})
}

func (c *conn) hasGap() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gap[requests] || c.gap[replies]
}

// read judges what arrives from one side and queues it for the other.
func (c *conn) read(dir int, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			for _, k := range c.judge(dir, bytes.Clone(buf[:n])) {
				if !c.enqueue(dir, k) {
					return
				}
			}
		}
		if err != nil {
			broken := dir == replies && !errors.Is(err, io.EOF)
			c.enqueue(dir, chunk{end: true, reset: broken})
			return
		}
	}
}

func (c *conn) enqueue(dir int, k chunk) bool {
	select {
	case c.queue[dir] <- k:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// write delivers what is queued when it is due. When the receiver is gone it goes on
// throwing away, so that the other direction can end in its own time: a request that was
// sent still arrives when its client is gone.
func (c *conn) write(dir int, to net.Conn) {
	var gone error
	for {
		var k chunk
		select {
		case k = <-c.queue[dir]:
		case <-c.ctx.Done():
			return
		}
		if !sleep(c.ctx, time.Until(k.due)) {
			return
		}
		if len(k.b) > 0 && gone == nil {
			gone = c.put(dir, to, k.b)
		}
		switch {
		case k.reset, errors.Is(gone, errReset), gone != nil && dir == requests: // the server is gone
			c.reset()
			return
		case k.end && c.holed(dir): // the end is swallowed, too
			<-c.ctx.Done()
			return
		case k.end:
			if t, ok := to.(*net.TCPConn); ok {
				_ = t.CloseWrite()
			}
			return
		}
	}
}

// errReset: bytes that were held fell victim to a reset.
var errReset = errors.New("netfault: reset")

// oneWrite bounds how long a write may hold back Apply; what is left of the chunk is then
// judged again.
const oneWrite = 100 * time.Millisecond

// put writes a chunk, unless it falls into a hole. An error means that nothing more can be
// written.
func (c *conn) put(dir int, to net.Conn, b []byte) error {
	for len(b) > 0 {
		n, err := c.putSome(dir, to, b)
		b = b[n:]
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
	return nil
}

func (c *conn) putSome(dir int, to net.Conn, b []byte) (int, error) {
	c.p.passing.RLock()
	defer c.p.passing.RUnlock()
	switch swallow, reset := c.fate(dir); {
	case swallow:
		return len(b), nil
	case reset:
		return 0, errReset
	}
	_ = to.SetWriteDeadline(time.Now().Add(oneWrite))
	n, err := to.Write(b)
	c.p.passed(dir, n)
	return n, err
}

func (c *conn) holed(dir int) bool {
	c.p.passing.RLock()
	defer c.p.passing.RUnlock()
	defer c.lock()()
	return c.sink(dir)
}
