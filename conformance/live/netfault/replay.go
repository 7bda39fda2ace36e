package netfault

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// replay is a turn that is to be delivered a second time.
type replay struct {
	mu        sync.Mutex
	handshake []byte
	b         []byte
}

func (r *replay) add(b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.b = append(r.b, b...)
}

func (r *replay) all() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(bytes.Clone(r.handshake), r.b...)
}

// copy schedules the turn's second delivery with its first bytes, and adds the others.
// Call it with conn.mu held.
func (c *conn) copy(b []byte, after time.Duration) {
	if c.turn.copied != nil {
		c.turn.copied.add(b)
		return
	}
	r := &replay{handshake: bytes.Clone(c.shaken), b: bytes.Clone(b)}
	c.turn.copied = r
	c.harmed(requests)
	if c.p.join() {
		go c.p.replay(r, after)
	}
}

// join adds a goroutine that Close waits for.
func (p *Proxy) join() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.wg.Add(1)
	}
	return !p.closed
}

// quiet is how long a replay's connection stays open behind the server's last bytes: a
// server may drop a request whose client has gone.
const quiet = 2 * time.Second

func (p *Proxy) replay(r *replay, after time.Duration) {
	defer p.wg.Done()
	t := time.NewTimer(after)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.ctx.Done():
		return
	}
	server, err := p.dial()
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	ended := make(chan struct{})
	defer close(ended)
	p.wg.Go(func() {
		select {
		case <-p.ctx.Done():
			_ = server.Close()
		case <-ended:
		}
	})
	if _, err := server.Write(r.all()); err != nil {
		return
	}
	buf := make([]byte, 32<<10)
	for err == nil {
		_ = server.SetReadDeadline(time.Now().Add(quiet))
		_, err = io.ReadAtLeast(server, buf, 1)
	}
}
