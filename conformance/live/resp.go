package live

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
)

// resp is a connection to a server that speaks the protocol of Redis, version 2: as much of it as the tests of the servers
// themselves need.
type resp struct {
	net.Conn
	in *bufio.Reader
}

// replyError is an error that the server answers.
type replyError string

func (e replyError) Error() string { return string(e) }

// dialRESP connects. The context's deadline holds for the connection's whole life.
func dialRESP(ctx context.Context, address, password string, secure *tls.Config) (*resp, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline) // a closed connection will say so itself
	}
	if secure != nil {
		conn = tls.Client(conn, secure)
	}
	c := &resp{Conn: conn, in: bufio.NewReader(conn)}
	if password != "" {
		if _, err := c.do("AUTH", password); err != nil {
			conn.Close()
			return nil, err
		}
	}
	return c, nil
}

// do sends one command and returns its answer: string, int64, []any or nil.
func (c *resp) do(args ...string) (any, error) {
	out := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		out = fmt.Appendf(out, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := c.Write(out); err != nil {
		return nil, err
	}
	return c.read()
}

func (c *resp) read() (any, error) {
	line, err := c.in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 {
		return nil, fmt.Errorf("not a reply: %q", line)
	}
	kind, rest := line[0], line[1:len(line)-2]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return nil, replyError(rest)
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil {
		return nil, err
	}
	switch {
	case kind == ':':
		return n, nil
	case n < 0:
		return nil, nil
	case kind == '$':
		b := make([]byte, n+2)
		_, err := io.ReadFull(c.in, b)
		return string(b[:n]), err
	case kind == '*':
		return c.array(n)
	}
	return nil, fmt.Errorf("not a reply: %q", line)
}

func (c *resp) array(n int64) ([]any, error) {
	var all []any
	for range n {
		v, err := c.read()
		var answered replyError
		if errors.As(err, &answered) {
			v, err = answered, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}
