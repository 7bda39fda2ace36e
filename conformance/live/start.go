package live

import (
	"context"
	"fmt"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// startsWithin bounds everything from the request for a container to its first answer.
const startsWithin = 3 * time.Minute

// spec is how a server is made.
type spec struct {
	image
	as      string // its name among others of its kind; empty: the image's
	command []string
	env     map[string]string
	user    string
	port    int
	data    string // the folder that survives the server's end, on a volume
	volume  string // of another server; empty: a new one
	files   []testcontainers.ContainerFile
	peers   *peers // the network of a cluster; nil: none

	plain bool                                         // a server of the environment will do
	adopt func(u *url.URL) (address string, err error) // takes one; nil: its address is all that counts
	url   func(address string) string
	ready func(ctx context.Context, address string) error
}

// serial tells apart the containers of a run.
var serial atomic.Int64

// start makes a server for a test, or ends the test.
func start(tb testing.TB, p spec) *Server {
	tb.Helper()
	if s := fromEnvironment(tb, p); s != nil {
		return s
	}
	if run == "" {
		tb.Fatal("live: TestMain must call live.Main")
	}
	e, err := docker()
	if err != nil {
		missing(tb, p.server, err)
	}
	image, err := e.find(p.image, patience(tb))
	if err != nil {
		missing(tb, p.server, err)
	}
	s := &Server{
		name: p.server, port: fmt.Sprintf("%d/tcp", p.port), url: p.url, ready: p.ready, engine: e,
	}
	if p.as != "" {
		s.name = p.as
	}
	ctx, cancel := context.WithTimeout(context.Background(), startsWithin)
	defer cancel()
	name := fmt.Sprintf("locker-live-%s-%d-%s", run, serial.Add(1), s.name)
	if p.volume == "" {
		p.volume = name
	}
	s.volume = p.volume
	if s.box, err = e.create(ctx, p, name, image, s.port); err != nil {
		tb.Fatalf("live: create %s: %v", s.name, err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = s.Remove(ctx) // a test may have done so already, and the reaper has the last word
	})
	if _, kept := tb.(keeper); !kept {
		s.use(tb)
	}
	if p.peers != nil {
		if err := p.peers.join(ctx, s); err != nil {
			tb.Fatal(err)
		}
	}
	if err := s.Start(ctx); err != nil {
		tb.Fatal(err)
	}
	return s
}

// fromEnvironment returns the server that the environment names, if it suits.
func fromEnvironment(tb testing.TB, p spec) *Server {
	tb.Helper()
	raw, variable := endpoint(p.server)
	if raw == "" || !p.plain {
		return nil
	}
	u, err := url.Parse(raw)
	if err != nil {
		tb.Fatalf("live: %s is not a URL", variable) // the error would show its password
	}
	address := u.Host
	if p.adopt != nil {
		if address, err = p.adopt(u); err != nil {
			tb.Fatalf("live: %s: %v", variable, err)
		}
	}
	s := &Server{name: variable, address: address, url: func(string) string { return raw }, ready: p.ready}
	ctx, cancel := context.WithTimeout(context.Background(), answersWithin)
	defer cancel()
	for ; ctx.Err() == nil; <-time.After(100 * time.Millisecond) {
		if err = p.ready(ctx, s.address); err == nil {
			return s
		}
	}
	tb.Fatalf("live: %s does not answer: %v", variable, err)
	return nil
}

// patience is how long a test may wait for an image to be made: it must have time left for its own work.
func patience(tb testing.TB) time.Duration {
	const endless = 20 * time.Minute
	if t, ok := tb.(interface{ Deadline() (time.Time, bool) }); ok {
		if deadline, ok := t.Deadline(); ok {
			return time.Until(deadline) * 6 / 10
		}
	}
	return endless
}

// create makes a container, not started.
func (e *engine) create(ctx context.Context, p spec, name, image, port string) (*testcontainers.DockerContainer, error) {
	inside, err := network.ParsePort(port)
	if err != nil {
		return nil, err
	}
	labels := map[string]string{runLabel: run}
	if _, err := e.docker.VolumeCreate(ctx, client.VolumeCreateOptions{Name: p.volume, Labels: labels}); err != nil {
		return nil, fmt.Errorf("volume: %w", err)
	}
	box, err := e.provider.CreateContainer(ctx, testcontainers.ContainerRequest{
		Image: image, Cmd: p.command, ExposedPorts: []string{port}, Env: p.env, Labels: labels, Name: name, Files: p.files,
		ConfigModifier: func(c *container.Config) {
			c.User = p.user
		},
		HostConfigModifier: func(c *container.HostConfig) {
			c.PortBindings = network.PortMap{inside: {{HostIP: e.bind}}}
			c.Mounts = []mount.Mount{{Type: mount.TypeVolume, Source: p.volume, Target: p.data}}
		},
	})
	if err != nil {
		return nil, err // what there may be of it carries the label
	}
	return box.(*testcontainers.DockerContainer), nil
}
