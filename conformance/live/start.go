package live

import (
	"cmp"
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
	user    string // empty: the image's
	stop    string // the signal of an orderly stop; empty: the image's, or TERM
	port    int
	data    string // the folder that survives the server's end, on a volume
	volume  string // of another server; empty: a new one
	files   []testcontainers.ContainerFile
	peers   *peers // the network of a cluster; nil: none

	plain   bool                                                    // a server of the environment will do
	schemes map[string]string                                       // of its URL, with the port that each means; empty: its host is no server
	adopt   func(u *url.URL, at string) (address string, err error) // takes it; nil: its address is all that counts
	url     func(address string) string
	ready   func(ctx context.Context, address string) error
}

// serial tells apart the containers of a run.
var serial atomic.Int64

// start makes a server for a test and waits for its first answer, or ends the test.
func start(tb testing.TB, p spec) *Server {
	tb.Helper()
	s := launch(tb, p)
	await(tb, s)
	return s
}

// launch makes a server for a test, and does not wait for its first answer.
func launch(tb testing.TB, p spec) *Server {
	tb.Helper()
	if s := fromEnvironment(tb, p); s != nil {
		return s
	}
	if run == "" {
		tb.Fatal("live: TestMain must call live.Main")
	}
	e, err := docker()
	if err != nil {
		missing(tb, p.server, p.plain, err)
	}
	image, err := e.find(p.image, patience(tb))
	if err != nil {
		missing(tb, p.server, p.plain, err)
	}
	s := &Server{name: cmp.Or(p.as, p.server), port: fmt.Sprintf("%d/tcp", p.port), url: p.url, ready: p.ready, engine: e}
	name := fmt.Sprintf("locker-live-%s-%d-%s", run, serial.Add(1), s.name)
	s.volume = cmp.Or(p.volume, name)
	ctx, cancel := context.WithTimeout(context.Background(), startsWithin)
	defer cancel()
	if err := s.create(ctx, p, name, image); err != nil {
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
	if err := s.launch(ctx); err != nil {
		tb.Fatal(err)
	}
	return s
}

// await waits for the first answers.
func await(tb testing.TB, servers ...*Server) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startsWithin)
	defer cancel()
	for _, s := range servers {
		if err := s.answers(ctx); err != nil {
			tb.Fatal(err)
		}
	}
}

// patience is how long a test may wait for an image to be made: it must have time left for its own work.
func patience(tb testing.TB) time.Duration {
	const endless = 20 * time.Minute
	if k, ok := tb.(keeper); ok {
		tb = k.TB
	}
	if t, ok := tb.(interface{ Deadline() (time.Time, bool) }); ok {
		if deadline, ok := t.Deadline(); ok {
			return time.Until(deadline) * 6 / 10
		}
	}
	return endless
}

// create makes the server's container.
func (s *Server) create(ctx context.Context, p spec, name, image string) error {
	inside, err := network.ParsePort(s.port)
	if err != nil {
		return err
	}
	labels := map[string]string{runLabel: run}
	if _, err := s.engine.docker.VolumeCreate(ctx, client.VolumeCreateOptions{Name: s.volume, Labels: labels}); err != nil {
		return fmt.Errorf("volume: %w", err)
	}
	box, err := s.engine.provider.CreateContainer(ctx, testcontainers.ContainerRequest{
		Image: image, Cmd: p.command, ExposedPorts: []string{s.port}, Env: p.env, Labels: labels, Name: name, Files: p.files,
		ConfigModifier: func(c *container.Config) {
			c.User, c.StopSignal = p.user, p.stop
		},
		HostConfigModifier: func(c *container.HostConfig) {
			c.PortBindings = network.PortMap{inside: {{HostIP: s.engine.bind}}}
			c.Mounts = []mount.Mount{{
				Type: mount.TypeVolume, Source: s.volume, Target: p.data,
				// Where the reaper was faster than this request, Docker makes the volume again.
				VolumeOptions: &mount.VolumeOptions{Labels: labels},
			}}
		},
	})
	if err != nil {
		return err // what there may be of it carries the label
	}
	s.box = box.(*testcontainers.DockerContainer)
	return nil
}
