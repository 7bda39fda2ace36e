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
	"strings"
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

// denies reports whether the server does not let this client in.
func (e replyError) denies() bool {
	kind, text, _ := strings.Cut(string(e), " ")
	switch kind {
	case "WRONGPASS", "NOAUTH", "NOPERM", "DENIED":
		return true
	}
	// Without users, servers answer so to a password that is wrong, or that they do not have.
	return kind == "ERR" && (strings.Contains(text, "AUTH") || strings.Contains(text, "password"))
}

// notRESPError is the start of what is no reply.
type notRESPError struct{ got string }

func (e *notRESPError) Error() string { return fmt.Sprintf("not a reply: %.40q", e.got) }

// tls reports whether it is an alert of TLS, which has no newline.
func (e *notRESPError) tls() bool { return strings.HasPrefix(e.got, "\x15\x03") }

// redisLogin is who a client is, and which database it wants. Empty: nobody, and the first one.
type redisLogin struct{ user, password, database string }

// auth returns the command that tells who it is. Nil: there is no need.
func (l redisLogin) auth() []string {
	switch {
	case l.password == "":
		return nil
	case l.user == "":
		return []string{"AUTH", l.password}
	}
	return []string{"AUTH", l.user, l.password}
}

// dialRESP connects. The context's deadline holds for the connection's whole life.
func dialRESP(ctx context.Context, address string, login redisLogin, secure *tls.Config) (*resp, error) {
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
	var hello [][]string
	if auth := login.auth(); auth != nil {
		hello = append(hello, auth)
	}
	if login.database != "" {
		hello = append(hello, []string{"SELECT", login.database})
	}
	for _, command := range hello {
		if _, err := c.do(command...); err != nil {
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
	if strings.IndexAny(line, "+-:$*") != 0 && line != "" {
		return nil, &notRESPError{line}
	}
	if err != nil {
		return nil, err
	}
	if len(line) < 3 {
		return nil, &notRESPError{line}
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
	return nil, &notRESPError{line}
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
