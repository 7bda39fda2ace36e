package netfault

import (
	"bytes"
	"io"
	"time"
)

// replay is a turn that is to be delivered a second time, behind the handshake's bytes.
type replay struct {
	b     []byte
	after time.Duration
}

// copy keeps the bytes of a turn that is to be copied. Whole turns are copied or none: the
// rest of one is no request. Call it with Proxy.passing and conn.lock held.
func (c *conn) copy(b []byte, f Faults) {
	if f.Copies && c.turn.bytes[requests] == 0 {
		c.turn.copied = &replay{b: bytes.Clone(c.shaken), after: f.CopyAfter}
		c.harmed(requests)
	}
	if c.turn.copied != nil {
		c.turn.copied.b = append(c.turn.copied.b, b...)
	}
}

// quiet is how long a replay's connection stays open behind the server's last bytes: a
// server may drop a request whose client has gone.
const quiet = 2 * time.Second

// replay delivers a turn again. The server has answered it: no copy overtakes its original.
func (p *Proxy) replay(r *replay) {
	if !sleep(p.ctx, r.after) {
		return
	}
	server, err := p.connect()
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
	if _, err := server.Write(r.b); err != nil {
		return
	}
	buf := make([]byte, 32<<10)
	for err == nil {
		_ = server.SetReadDeadline(time.Now().Add(quiet))
		_, err = io.ReadAtLeast(server, buf, 1)
	}
}
