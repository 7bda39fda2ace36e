package live

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
)

// pgwire is a connection to a server that speaks the protocol of Postgres, version 3: as much of it as the tests of the servers
// themselves need. It knows no password.
type pgwire struct{ net.Conn }

// pgMessage is one message of a server.
type pgMessage struct {
	kind byte
	body []byte
}

// dialPG connects and sends who it is; the connection is usable once it is idle. The context's deadline holds for the connection's whole life.
func dialPG(ctx context.Context, address, user, database string) (pgwire, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return pgwire{}, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline) // a closed connection will say so itself
	}
	c := pgwire{conn}
	startup := append(binary.BigEndian.AppendUint32(nil, 3<<16), "user\x00"+user+"\x00database\x00"+database+"\x00\x00"...)
	if err := c.send(0, startup); err != nil {
		conn.Close()
		return pgwire{}, err
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
		return pgMessage{}, fmt.Errorf("not a message of Postgres: %q", head)
	}
	m := pgMessage{kind: head[0], body: make([]byte, size-4)}
	if _, err := io.ReadFull(c, m.body); err != nil {
		return pgMessage{}, err
	}
	if m.kind == 'E' {
		return pgMessage{}, fmt.Errorf("%s", bytes.ReplaceAll(bytes.Trim(m.body, "\x00"), []byte{0}, []byte(" ")))
	}
	return m, nil
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
