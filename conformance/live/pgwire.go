package live

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
)

// pgwire is a connection to a server that speaks the protocol of Postgres, version 3: as much of it as the tests of the servers
// themselves need. It knows no password.
type pgwire struct{ net.Conn }

// pgMessage is one message of a server.
type pgMessage struct {
	kind byte
	body []byte
}

// pgError is an error that a server answers.
type pgError struct{ code, text string }

func (e *pgError) Error() string { return e.text + " (" + e.code + ")" }

// errNotPG is the error of an answer in another protocol.
var errNotPG = errors.New("not a message of Postgres")

// pgLogin is who a client is, where it goes, and whether by TLS: as the sslmode of a URL says, where "disable" means no, and
// an empty one that the server decides.
type pgLogin struct{ user, database, sslmode string }

// anybody is who the servers that are ours let in.
var anybody = pgLogin{"postgres", "postgres", "disable"}

// dialPG connects and sends who it is; the connection is usable once it is idle. The context's deadline holds for the connection's whole life.
func dialPG(ctx context.Context, address string, as pgLogin) (pgwire, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return pgwire{}, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline) // a closed connection will say so itself
	}
	c := pgwire{conn}
	if as.sslmode != "disable" {
		c, err = c.encrypted(as.sslmode)
	}
	if err == nil {
		startup := append(binary.BigEndian.AppendUint32(nil, 3<<16), "user\x00"+as.user+"\x00database\x00"+as.database+"\x00\x00"...)
		err = c.send(0, startup)
	}
	if err != nil {
		conn.Close()
		return pgwire{}, err
	}
	return c, nil
}

// encrypted asks for TLS, and goes on without if the mode allows it. It says no secret, and so need not know whom it talks to: the
// certificate is the affair of the client under test.
func (c pgwire) encrypted(sslmode string) (pgwire, error) {
	const sslRequest = 1234<<16 | 5679
	if err := c.send(0, binary.BigEndian.AppendUint32(nil, sslRequest)); err != nil {
		return c, err
	}
	var answer [1]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return c, err
	}
	switch {
	case answer[0] == 'S':
		return pgwire{tls.Client(c.Conn, &tls.Config{InsecureSkipVerify: true})}, nil //nolint:gosec // as above
	case answer[0] != 'N' && answer[0] != 'E':
		return c, fmt.Errorf("%w: %q", errNotPG, answer)
	case sslmode == "require" || strings.HasPrefix(sslmode, "verify-"):
		return c, refusal{errors.New("the server does not speak TLS"), "turn TLS on there, or say sslmode=disable"}
	}
	return c, nil
}

// send sends one message; the first one of a connection has no kind.
func (c pgwire) send(kind byte, body []byte) error {
	var out []byte
	if kind != 0 {
		out = append(out, kind)
	}
	out = binary.BigEndian.AppendUint32(out, uint32(len(body)+4))
	_, err := c.Write(append(out, body...))
	return err
}

// receive returns the next message; an error of the server is an error.
func (c pgwire) receive() (pgMessage, error) {
	var head [5]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return pgMessage{}, err
	}
	size := binary.BigEndian.Uint32(head[1:])
	if size < 4 || size > 1<<24 {
		return pgMessage{}, fmt.Errorf("%w: %q", errNotPG, head)
	}
	m := pgMessage{kind: head[0], body: make([]byte, size-4)}
	if _, err := io.ReadFull(c, m.body); err != nil {
		return pgMessage{}, err
	}
	if m.kind == 'E' {
		return pgMessage{}, newPGError(m.body)
	}
	return m, nil
}

// newPGError takes an error's fields apart: each has a letter and a text that ends with a zero.
func newPGError(body []byte) error {
	e := &pgError{}
	for field := range bytes.SplitSeq(body, []byte{0}) {
		switch {
		case len(field) == 0:
		case field[0] == 'C':
			e.code = string(field[1:])
		case field[0] == 'M':
			e.text = string(field[1:])
		}
	}
	return e
}

// pgRefused makes a refusal of an answer that will not change.
func pgRefused(err error) error {
	var answer *pgError
	switch {
	case errors.Is(err, errNotPG):
		return refusal{err, "this is no Postgres, correct the port"}
	case !errors.As(err, &answer) || len(answer.code) < 2:
		return refused(err)
	}
	switch answer.code[:2] {
	case "28":
		return refusal{err, "correct the user and the password of the URL, or pg_hba.conf"}
	case "3D":
		return refusal{err, "make the database first, or name another one"}
	}
	return err // it starts, it ends, it has too many clients
}

// query returns the first column of each row as text, NULL as an empty one. The connection must be idle.
func (c pgwire) query(sql string) ([]string, error) {
	if err := c.send('Q', append([]byte(sql), 0)); err != nil {
		return nil, err
	}
	var rows []string
	err := c.idle(func(row []byte) {
		value := ""
		if len(row) >= 6 {
			if size := int32(binary.BigEndian.Uint32(row[2:])); size >= 0 && len(row) >= 6+int(size) {
				value = string(row[6 : 6+size])
			}
		}
		rows = append(rows, value)
	})
	return rows, err
}

// idle reads until the server is ready for a query.
func (c pgwire) idle(row func([]byte)) error {
	for {
		m, err := c.receive()
		switch {
		case err != nil:
			return err
		case m.kind == 'Z':
			return nil
		case m.kind == 'R' && binary.BigEndian.Uint32(m.body) != 0:
			return fmt.Errorf("the server asks for a password")
		case m.kind == 'D' && row != nil:
			row(m.body)
		}
	}
}
