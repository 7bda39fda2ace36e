package netfault_test

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/locker/conformance/live/netfault"
)

// Times are tested in a synctest bubble, where they are exact. Sockets do not wait for its
// time, so the connections are pipes. A pipe knows no reset: it ends.

// pipes is a listener of connections in memory.
type pipes struct {
	waiting chan net.Conn
	closed  chan struct{}
	closing sync.Once
}

func newPipes() *pipes { return &pipes{waiting: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.waiting:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) dial(ctx context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.waiting <- far:
		return near, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Close() error {
	p.closing.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// virtual runs a test in a bubble.
func virtual(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// pass lets virtual time pass.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time
}

// after lets virtual time pass, up to when all that happens then has happened. Only the test
// itself may call it.
func after(d time.Duration) {
	pass(d)
	synctest.Wait()
}

// line is a proxy in virtual time, with the server behind it.
type line struct {
	*netfault.Proxy
	t      *testing.T
	front  *pipes
	server *lines
}

func virtualLine(t *testing.T, o *netfault.Options) *line {
	t.Helper()
	back, front := newPipes(), newPipes()
	l := &line{t: t, front: front, server: serveOn(t, back)}
	l.Proxy = netfault.ListenOn(front, back.dial, o)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func (l *line) dial() *client {
	l.t.Helper()
	c, err := l.front.dial(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	return newClient(l.t, c)
}

// virtualSite is an HTTP proxy in virtual time, and the client of the server behind it.
func virtualSite(t *testing.T, o *netfault.HTTPOptions) (*netfault.HTTP, *web, *http.Client) {
	t.Helper()
	back, front := newPipes(), newPipes()
	s := &web{}
	server := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(back) })
	t.Cleanup(func() { _ = server.Close(); serving.Wait() })
	h := netfault.ListenHTTPOn(front, back.dial, o)
	t.Cleanup(func() { _ = h.Close() })
	return h, s, &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return front.dial(ctx) },
	}}
}
