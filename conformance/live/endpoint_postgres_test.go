package live

import (
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"net"
	"strings"
	"testing"
)

// silent is the log of a server that clients are meant to fail at.
var silent = log.New(io.Discard, "", 0)

// postgres is a server that takes no TLS, and has one answer to each client; it notes who came.
type postgres struct {
	answers []string // the last one for all who come later
	came    []string
}

func (p *postgres) serve(conn net.Conn) {
	for {
		var head [8]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return
		}
		if binary.BigEndian.Uint32(head[4:]) != 3<<16 {
			_, _ = conn.Write([]byte("N"))
			continue
		}
		rest := make([]byte, binary.BigEndian.Uint32(head[:])-8)
		if _, err := io.ReadFull(conn, rest); err != nil {
			return
		}
		answer := p.answers[min(len(p.came), len(p.answers)-1)]
		p.came = append(p.came, strings.ReplaceAll(strings.TrimRight(string(rest), "\x00"), "\x00", " "))
		_, _ = io.WriteString(conn, answer)
		return
	}
}

// pgFails is an error as a server answers it.
func pgFails(code, text string) string {
	return pgAnswer('E', "SFATAL\x00C"+code+"\x00M"+text+"\x00\x00")
}

func pgAnswer(kind byte, body string) string {
	return string(kind) + string(binary.BigEndian.AppendUint32(nil, uint32(len(body)+4))) + body
}

func TestPostgresEndpoint(t *testing.T) {
	asks := pgAnswer('R', "\x00\x00\x00\x0a"+"SCRAM-SHA-256\x00\x00")
	p := &postgres{answers: []string{pgFails("57P03", "the database system is starting up"), pgFails("53300", "too many clients"), asks}}
	at := listen(t, p.serve)
	wantEndpoint(t, "postgres", "postgres://me:s3cret@"+at+"/orders")
	wantEndpoint(t, "postgres", "postgres://me@"+at+"?sslmode=disable")
	if got, want := fmt.Sprint(p.came[2:]), "[user me database orders user me database me]"; got != want {
		t.Errorf("who comes: got %s, want %s", got, want)
	}
	wantRefusal(t, "postgres", "postgres://me@"+at+"?sslmode=require", "does not speak TLS")

	for answer, want := range map[string]string{
		pgFails("28P01", `password authentication failed for user "me"`): "correct the user and the password",
		pgFails("28000", "no pg_hba.conf entry"):                         "pg_hba.conf",
		pgFails("3D000", `database "me" does not exist`):                 "make the database first",
		"HTTP/1.1 400 Bad Request\r\n\r\n":                               "this is no Postgres",
	} {
		p := &postgres{answers: []string{answer}}
		wantRefusal(t, "postgres", "postgres://me:s3cret@"+listen(t, p.serve)+"/me", want)
	}
}
