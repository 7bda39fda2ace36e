package netfault_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/locker/conformance/live/netfault"
)

// lines is a server that answers each line with "ok " and the line, and keeps what it got.
type lines struct {
	t        *testing.T
	listener net.Listener
	wg       sync.WaitGroup
	mu       sync.Mutex
	got      []got
	open     map[net.Conn]bool
	conns    int
	// answering is called before an answer, if it is not nil.
	answering func(line string)
}

// got is what came in one piece: a line, or the rest at the end of a connection.
type got struct {
	conn int
	line string
	at   time.Time
}

func serve(t *testing.T) *lines {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, l)
}

func serveOn(t *testing.T, l net.Listener) *lines {
	t.Helper()
	s := &lines{t: t, listener: l, open: map[net.Conn]bool{}}
	s.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns++
			id := s.conns
			s.open[c] = true
			s.mu.Unlock()
			s.wg.Go(func() { s.talk(id, c) })
		}
	})
	t.Cleanup(s.stop)
	return s
}

func (s *lines) talk(id int, c net.Conn) {
	defer func() {
		_ = c.Close()
		s.mu.Lock()
		delete(s.open, c)
		s.mu.Unlock()
	}()
	in := bufio.NewReader(c)
	for {
		line, err := in.ReadString('\n')
		if line != "" {
			s.mu.Lock()
			s.got = append(s.got, got{id, line, time.Now()})
			s.mu.Unlock()
		}
		if err != nil {
			return
		}
		if f := s.hook(); f != nil {
			f(line)
		}
		if _, err := c.Write([]byte("ok " + line)); err != nil {
			return
		}
	}
}

func (s *lines) hook() func(string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answering
}

// answer makes the server call f before each answer.
func (s *lines) answer(f func(line string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answering = f
}

func (s *lines) stop() {
	_ = s.listener.Close()
	s.mu.Lock()
	for c := range s.open {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// arrived returns what came so far.
func (s *lines) arrived() []got {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

func (s *lines) lines() []string {
	var all []string
	for _, g := range s.arrived() {
		all = append(all, g.line)
	}
	return all
}

func (s *lines) count(line string) int {
	n := 0
	for _, l := range s.lines() {
		if l == line {
			n++
		}
	}
	return n
}

func (s *lines) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

func (s *lines) target() netfault.Target { return netfault.At(s.listener.Addr().String()) }

func proxy(t *testing.T, to netfault.Target, o *netfault.Options) *netfault.Proxy {
	t.Helper()
	p, err := netfault.Listen(to, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// client is one connection that sends lines and reads answers.
type client struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

func dial(t *testing.T, p *netfault.Proxy) *client {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return newClient(t, c)
}

func newClient(t *testing.T, c net.Conn) *client {
	t.Cleanup(func() { _ = c.Close() })
	return &client{t, c, bufio.NewReader(c)}
}

// send sends without awaiting an answer.
func (c *client) send(line string) {
	c.t.Helper()
	if _, err := c.Write([]byte(line)); err != nil {
		c.t.Fatal(err)
	}
}

// hear reads one answer.
func (c *client) hear(patience time.Duration) (string, error) {
	_ = c.SetReadDeadline(time.Now().Add(patience))
	return c.in.ReadString('\n')
}

// ask sends a line and returns the answer, waiting at most patience.
func (c *client) ask(line string, patience time.Duration) (string, error) {
	if _, err := c.Write([]byte(line)); err != nil {
		return "", err
	}
	return c.hear(patience)
}

func (c *client) works(line string) {
	c.t.Helper()
	c.gets(line, "ok "+line)
}

func (c *client) gets(line, want string) {
	c.t.Helper()
	if answer, err := c.ask(line, 10*time.Second); err != nil || answer != want {
		c.t.Fatalf("%q: got %q, %v", line, answer, err)
	}
}

// isReset fails unless the error is what a reset looks like. It is not that of writing to a
// connection that ended as usual.
func isReset(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want a reset", err)
	}
}

func isSilence(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want silence", err)
	}
}

const silence = 100 * time.Millisecond

// unheard sends a line that nothing answers, and waits until the proxy has harmed so many.
func (c *client) unheard(p *netfault.Proxy, line string, fired int) {
	c.t.Helper()
	_, err := c.ask(line, silence)
	isSilence(c.t, err)
	eventually(c.t, "it is swallowed", func() bool { return p.Fired() == fired })
}

// eventually polls until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("not within 10 s: %s", what)
		case <-tick.C:
		}
	}
}

func equal(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// goroutines returns how many run code of the package under test.
func goroutines() int {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	n := 0
	for g := range strings.SplitSeq(string(buf), "\n\n") {
		if strings.Contains(g, "live/netfault.(") {
			n++
		}
	}
	return n
}

func rest(c *client) string {
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	b, err := io.ReadAll(c.in)
	return fmt.Sprintf("%s %v", b, errors.Is(err, syscall.ECONNRESET))
}

// end ends the server's connections, with a reset or as usual.
func (s *lines) end(reset bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		if reset {
			_ = c.(*net.TCPConn).SetLinger(0)
		}
		_ = c.Close()
	}
}
