package live

import (
	"context"
	"testing"
	"time"
)

func TestEtcdServer(t *testing.T) {
	t.Parallel()
	c := Etcd(t, EtcdOptions{})
	node := c.Nodes[0]
	wantPut(t, c, node, "k", "one")
	wantGet(t, c, node, "k", "one")
	testPause(t, node, func(ctx context.Context) error {
		_, err := c.Get(ctx, node, "k")
		return err
	})
	if !c.Ours() {
		return
	}
	if err := node.Crash(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantGet(t, c, node, "k", "one")
	if err := node.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantGet(t, c, node, "k", "one")
}

// A cluster of three outlives its leader; one that has lost two answers nothing, and comes back with what it had.
func TestEtcdLeaderLoss(t *testing.T) {
	t.Parallel()
	c := Etcd(t, EtcdOptions{Nodes: 3})
	first := leader(t, c)
	wantPut(t, c, first, "k", "one")
	if err := first.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := leader(t, c)
	if first == second {
		t.Fatalf("%s leads after it was killed", first.Name())
	}
	wantGet(t, c, second, "k", "one")
	wantPut(t, c, second, "k", "two")

	if err := second.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes {
		ctx, cancel := context.WithTimeout(t.Context(), pauseShows)
		if v, err := c.Get(ctx, n, "k"); err == nil {
			t.Errorf("%s, alone, answers %q", n.Name(), v)
		}
		cancel()
	}
	if err := second.Unpause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := first.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	leader(t, c)
	eventually(t, func(ctx context.Context) bool {
		v, err := c.Get(ctx, first, "k")
		return err == nil && v == "two"
	})
	if err := c.All(t.Context(), (*Server).Crash); err != nil {
		t.Fatal(err)
	}
	wantGet(t, c, leader(t, c), "k", "two")
}

// A leader that is cut off from its peers steps down; clients still reach it, and get no answer from it.
func TestEtcdPartition(t *testing.T) {
	t.Parallel()
	c := Etcd(t, EtcdOptions{Nodes: 3})
	first := leader(t, c)
	wantPut(t, c, first, "k", "one")
	if err := first.Disconnect(t.Context()); err != nil {
		t.Fatal(err)
	}
	var second *Server
	eventually(t, func(ctx context.Context) bool {
		second = leader(t, c)
		return second != first
	})
	wantPut(t, c, second, "k", "two")
	if err := c.login.answers(t.Context(), first.Addr()); err != nil {
		t.Errorf("%s is out of reach for clients: %v", first.Name(), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), pauseShows)
	defer cancel()
	if v, err := c.Get(ctx, first, "k"); err == nil {
		t.Errorf("%s, cut off, answers %q", first.Name(), v)
	}
	if err := first.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) bool {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		v, err := c.Get(ctx, first, "k")
		return err == nil && v == "two"
	})
}

func leader(t *testing.T, c *EtcdCluster) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := c.Leader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func wantPut(t *testing.T, c *EtcdCluster, through *Server, key, value string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := c.Put(ctx, through, key, value); err != nil {
		t.Fatal(err)
	}
}

func wantGet(t *testing.T, c *EtcdCluster, through *Server, key, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if got, err := c.Get(ctx, through, key); err != nil || got != want {
		t.Errorf("%s: %s: got %q, %v, want %q", through.Name(), key, got, err, want)
	}
}

// A cluster that knows its users lets the one of the URL in, and says at once that it knows another one not.
func TestEtcdUsers(t *testing.T) {
	t.Parallel()
	c := Etcd(t, EtcdOptions{Own: true})
	at := c.Nodes[0].Addr()
	for _, step := range []struct {
		method  string
		request map[string]string
	}{
		{"auth/user/add", map[string]string{"name": "root", "password": "s3cret"}},
		{"auth/role/add", map[string]string{"name": "root"}},
		{"auth/user/grant", map[string]string{"user": "root", "role": "root"}},
		{"auth/enable", map[string]string{}},
	} {
		if err := c.login.call(t.Context(), at, step.method, step.request, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := (etcdLogin{"root", "s3cret"}).reads(t.Context(), at); err != nil {
		t.Errorf("the right password: %v", err)
	}
	wantFinal(t, "a wrong password", etcdLogin{"root", "wrong"}.reads(t.Context(), at), "correct the user and the password")
	wantFinal(t, "nobody", etcdLogin{}.reads(t.Context(), at), "correct the user and the password")
}
