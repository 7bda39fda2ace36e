package live

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/exec"
)

// ErrNoHandle is what a server of the environment answers to whatever would harm it: this process has not started it.
var ErrNoHandle = errors.New("live: the server is not ours to harm")

const (
	// answersWithin is how long a started server may take to answer.
	answersWithin = 90 * time.Second
	// stopsWithin is how long an orderly stop may take, in seconds; then Docker kills.
	stopsWithin = 20
	// logLines is how much of a log an error carries.
	logLines = "40"
)

// Server is one server. Its methods may be called from several goroutines, but two that start or end it must not
// overlap. A server ends with the test that made it.
type Server struct {
	name   string
	port   string // in the container, "6379/tcp"
	url    func(address string) string
	engine *engine
	box    *testcontainers.DockerContainer // nil: a server of the environment
	peers  *peers                          // nil: it is alone
	volume string

	watches sync.WaitGroup
	mu      sync.Mutex
	address string
	ready   func(ctx context.Context, address string) error // one request of the server's own protocol
	life    int                                             // how often it was started
	ending  bool                                            // we end it
	tests   map[testing.TB]bool                             // to tell if it ends by itself
	died    error                                           // why this life has ended by itself
}

// Name returns the server's name, as errors have it.
func (s *Server) Name() string { return s.name }

// Addr returns host:port. It is another one after each Start, Restart and Crash.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.address
}

// URL returns the URL of this address, in the form of this repository's lock URLs. It may hold a password.
func (s *Server) URL() string { return s.url(s.Addr()) }

// Ours reports whether there is a handle: false for a server of the environment.
func (s *Server) Ours() bool { return s.box != nil }

// Pause freezes the server: it keeps its connections and answers nothing.
func (s *Server) Pause(ctx context.Context) error {
	return s.do("pause", func(id string) error {
		_, err := s.engine.docker.ContainerPause(ctx, id, client.ContainerPauseOptions{})
		return err
	})
}

// Unpause thaws the server. It returns at once.
func (s *Server) Unpause(ctx context.Context) error {
	return s.do("unpause", func(id string) error {
		_, err := s.engine.docker.ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{})
		return err
	})
}

// Kill ends the server without any warning. What it had not written down is lost.
func (s *Server) Kill(ctx context.Context) error {
	return s.end("kill", func(id string) error {
		_, err := s.engine.docker.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "KILL"})
		return err
	})
}

// Stop ends the server in an orderly way.
func (s *Server) Stop(ctx context.Context) error {
	return s.end("stop", func(id string) error {
		within := stopsWithin
		_, err := s.engine.docker.ContainerStop(ctx, id, client.ContainerStopOptions{Timeout: &within})
		return err
	})
}

// Start starts a server that was killed or stopped, and returns when it answers.
func (s *Server) Start(ctx context.Context) error {
	if err := s.launch(ctx); err != nil {
		return err
	}
	return s.answers(ctx)
}

// Restart is Stop and Start.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Stop(ctx); err != nil {
		return err
	}
	return s.Start(ctx)
}

// Crash is Kill and Start.
func (s *Server) Crash(ctx context.Context) error {
	if err := s.Kill(ctx); err != nil {
		return err
	}
	return s.Start(ctx)
}

// Remove ends the server and removes it with its data. There is no way back.
func (s *Server) Remove(ctx context.Context) error {
	return s.end("remove", func(id string) error {
		if _, err := s.engine.docker.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true}); err != nil {
			return err
		}
		_, err := s.engine.docker.VolumeRemove(ctx, s.volume, client.VolumeRemoveOptions{})
		if errdefs.IsConflict(err) { // another server of this store still runs
			return nil
		}
		return err
	})
}

// Exec runs a command beside the server, in its container, and returns what it prints. An exit code that is not 0 is an
// error.
func (s *Server) Exec(ctx context.Context, command ...string) (string, error) {
	var out []byte
	err := s.do(strings.Join(command, " "), func(string) error {
		code, r, err := s.box.Exec(ctx, command, exec.Multiplexed())
		if err != nil {
			return err
		}
		if out, err = io.ReadAll(r); err == nil && code != 0 {
			err = fmt.Errorf("exit code %d: %s", code, bytes.TrimSpace(out))
		}
		return err
	})
	return string(out), err
}

// Logs returns the end of what the server has logged.
func (s *Server) Logs(ctx context.Context) (string, error) {
	var out bytes.Buffer
	err := s.do("logs", func(id string) error {
		r, err := s.engine.docker.ContainerLogs(ctx, id, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: logLines})
		if err != nil {
			return err
		}
		defer r.Close()
		_, err = stdcopy.StdCopy(&out, &out, r)
		return err
	})
	return out.String(), err
}

// do calls f with the container's id.
func (s *Server) do(what string, f func(id string) error) error {
	if !s.Ours() {
		return fmt.Errorf("%w: %s %s", ErrNoHandle, what, s.name)
	}
	if err := f(s.box.GetContainerID()); err != nil {
		return fmt.Errorf("live: %s %s: %w", what, s.name, err)
	}
	return nil
}

// end is do for what ends the server: nobody is told that it ended.
func (s *Server) end(what string, f func(id string) error) error {
	s.mu.Lock()
	before := s.ending
	s.ending = true
	s.mu.Unlock()
	if err := s.do(what, f); err != nil {
		s.mu.Lock()
		s.ending = before
		s.mu.Unlock()
		return err
	}
	s.watches.Wait() // it has ended, and not only been told to
	return nil
}

// launch starts the container, and watches over it from then on.
func (s *Server) launch(ctx context.Context) error {
	return s.do("start", func(id string) error {
		if _, err := s.engine.docker.ContainerStart(ctx, id, client.ContainerStartOptions{}); err != nil {
			return err
		}
		address, err := s.published(ctx)
		if err != nil {
			return s.explain(ctx, err)
		}
		s.mu.Lock()
		s.address, s.ending, s.died = address, false, nil
		s.life++
		life := s.life
		s.mu.Unlock()
		s.watches.Go(func() { s.watch(life) })
		return nil
	})
}

// published returns the address of the server's port on this host.
func (s *Server) published(ctx context.Context) (string, error) {
	i, err := s.box.Inspect(ctx)
	if err != nil {
		return "", err
	}
	if !i.State.Running { // it was faster than this question
		return "", fmt.Errorf("it ended by itself with code %d", i.State.ExitCode)
	}
	for port, bindings := range i.NetworkSettings.Ports {
		if port.String() == s.port && len(bindings) > 0 {
			return s.engine.host + ":" + bindings[0].HostPort, nil
		}
	}
	return "", fmt.Errorf("port %s is not published", s.port)
}

// answers returns when the server has answered one request. One of the environment that refuses it is not waited for: what is
// wrong with it does not end by itself, as a start does.
func (s *Server) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	for {
		err := s.answer(ctx)
		if err == nil {
			return nil
		}
		if died := s.Err(); died != nil {
			return died
		}
		var final refusal
		if !s.Ours() && errors.As(err, &final) {
			return fmt.Errorf("live: no server at %s (%s): %w", s.name, s.Addr(), err)
		}
		select {
		case <-ctx.Done():
			return s.explain(ctx, fmt.Errorf("live: no answer from %s: %w", s.name, err))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// answer asks once.
func (s *Server) answer(ctx context.Context) error {
	s.mu.Lock()
	ready, address := s.ready, s.address
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return ready(ctx, address)
}
