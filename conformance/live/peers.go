package live

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
)

// peers is a network that the servers of one cluster talk over, each under its name. Clients come in another way, so
// that a server can be cut off from its peers alone.
type peers struct {
	engine *engine
	id     string
}

// newPeers makes a network for a test. Nil: there is no Docker, as the first server will tell.
func newPeers(tb testing.TB) *peers {
	tb.Helper()
	e, err := docker()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n, err := e.docker.NetworkCreate(ctx, fmt.Sprintf("locker-live-%s-%d", run, serial.Add(1)), client.NetworkCreateOptions{
		Driver: "bridge", Internal: true, Labels: map[string]string{runLabel: run},
	})
	if err != nil {
		tb.Fatalf("live: network: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, _ = e.docker.NetworkRemove(ctx, n.ID, client.NetworkRemoveOptions{}) // the reaper has the last word
	})
	return &peers{engine: e, id: n.ID}
}

// join connects a server under its name.
func (p *peers) join(ctx context.Context, s *Server) error {
	s.peers = p
	return s.Connect(ctx)
}

// Disconnect cuts the server off from its peers, in silence. Clients still reach it.
func (s *Server) Disconnect(ctx context.Context) error {
	return s.do("disconnect", func(id string) error {
		_, err := s.engine.docker.NetworkDisconnect(ctx, s.peers.id, client.NetworkDisconnectOptions{Container: id})
		return err
	})
}

// Connect undoes Disconnect.
func (s *Server) Connect(ctx context.Context) error {
	return s.do("connect", func(id string) error {
		_, err := s.engine.docker.NetworkConnect(ctx, s.peers.id, client.NetworkConnectOptions{
			Container: id, EndpointConfig: &network.EndpointSettings{Aliases: []string{s.name}},
		})
		return err
	})
}

// withPeers returns the server's network, and makes one if it has none yet.
func (s *Server) withPeers(tb testing.TB) *peers {
	tb.Helper()
	if !s.Ours() {
		tb.Fatalf("live: %s has no handle, and so nothing can join it: make it with Own", s.name)
	}
	if s.peers == nil {
		p := newPeers(tb)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := p.join(ctx, s); err != nil {
			tb.Fatal(err)
		}
	}
	return s.peers
}
