package live

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// requireVariable lists the servers without which a test fails instead of skipping.
const requireVariable = "LOCKER_TEST_REQUIRE"

// missing ends a test that has no server: the way to get one is a part of what it says. A server of the environment may
// do for the test, or not.
func missing(tb testing.TB, server string, environment bool, err error) {
	tb.Helper()
	text := fmt.Sprintf("no %s server: %v", server, err)
	if _, variable := endpoint(server); environment {
		text += "; or set " + variable
	}
	if required(server, os.Getenv(requireVariable)) {
		tb.Fatalf("%s (%s asks for it)", text, requireVariable)
	}
	left.add(server, err)
	tb.Skip(text)
}

func required(server, list string) bool {
	return slices.Contains(strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' }), server)
}

// servers are the names that requireVariable knows.
var servers = []string{"redis", "valkey", "etcd", "postgres", "pgbouncer", "s3", "minio"}

// unknown returns the names in a list that are no server's: a typing error must not make a missing server a skip.
func unknown(list string) []string {
	return slices.DeleteFunc(strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' }),
		func(name string) bool { return slices.Contains(servers, name) })
}

// left is what this process had to leave out.
var left leftOut

type leftOut struct {
	mu      sync.Mutex
	servers map[string][]string // by the reason
}

func (l *leftOut) add(server string, reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.servers == nil {
		l.servers = map[string][]string{}
	}
	if r := reason.Error(); !slices.Contains(l.servers[r], server) {
		l.servers[r] = append(l.servers[r], server)
	}
}

// tell says what was left out, at the end of a run, also to the terminal if there is one: `go test` shows nothing that a
// package prints which has passed, and so nobody would know.
func (l *leftOut) tell() {
	text := l.text()
	if text == "" {
		return
	}
	fmt.Fprint(os.Stderr, text)
	if tty, err := os.OpenFile("/dev/tty", os.O_WRONLY, 0); err == nil {
		fmt.Fprint(tty, text)
		tty.Close()
	}
}

// text has a line for each reason. Empty: nothing was left out.
func (l *leftOut) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lines strings.Builder
	for _, reason := range slices.Sorted(maps.Keys(l.servers)) {
		fmt.Fprintf(&lines, "live: left out what needs %s: %s\n", strings.Join(slices.Sorted(slices.Values(l.servers[reason])), ", "), reason)
	}
	return lines.String()
}
