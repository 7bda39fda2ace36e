package live

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
)

// Every slot is served by one node, which the others name to a client; what a killed node served comes back with it.
func TestRedisCluster(t *testing.T) {
	t.Parallel()
	c := NewRedisCluster(t)
	for i := range 10 {
		key := fmt.Sprintf("k%d", i)
		served := 0
		for _, n := range c.Nodes {
			_, err := n.Do(t.Context(), "SET", key, n.Name())
			var moved replyError
			if errors.As(err, &moved) && strings.HasPrefix(string(moved), "MOVED") {
				testMoved(t, c, string(moved))
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			served++
		}
		if served != 1 {
			t.Errorf("%s: %d nodes serve it, want one", key, served)
		}
	}
	if err := c.Nodes[1].Crash(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Agrees(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// testMoved checks that Dial reaches the node that a redirection names.
func testMoved(t *testing.T, c *RedisCluster, moved string) {
	t.Helper()
	words := strings.Fields(moved) // MOVED slot host:port
	conn, err := c.Dial(context.Background(), "tcp", words[2])
	if err != nil {
		t.Fatalf("%s: %v", moved, err)
	}
	defer conn.Close()
	host, _, _ := net.SplitHostPort(words[2])
	for _, n := range c.Nodes {
		if n.Name() == host && n.Addr() != conn.RemoteAddr().String() {
			t.Errorf("%s: got %s, want %s", moved, conn.RemoteAddr(), n.Addr())
		}
	}
}
