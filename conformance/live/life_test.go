package live

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// slow is a Docker that answers at once, and whose container ends when it is told to by the test.
type slow struct {
	client.APIClient
	ended chan container.WaitResponse
}

func (s slow) ContainerWait(context.Context, string, client.ContainerWaitOptions) client.ContainerWaitResult {
	return client.ContainerWaitResult{Result: s.ended}
}

func (slow) ContainerKill(context.Context, string, client.ContainerKillOptions) (client.ContainerKillResult, error) {
	return client.ContainerKillResult{}, nil
}

func (slow) ContainerLogs(context.Context, string, client.ContainerLogsOptions) (client.ContainerLogsResult, error) {
	return nil, errors.New("no log")
}

// running is a server of a Docker that nobody can see through.
func running(docker client.APIClient) *Server {
	s := &Server{name: "slow", engine: &engine{docker: docker}, box: &testcontainers.DockerContainer{ID: "slow"}, life: 1}
	s.watches.Go(func() { s.watch(1) })
	return s
}

// Kill returns when the server has ended, and not when it has been told to.
func TestEndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		docker := slow{ended: make(chan container.WaitResponse)}
		s := running(docker)
		killed := make(chan error, 1)
		go func() { killed <- s.Kill(t.Context()) }()
		synctest.Wait()
		select {
		case err := <-killed:
			t.Errorf("the server runs, and Kill returns %v", err)
		default:
		}
		docker.ended <- container.WaitResponse{StatusCode: 137}
		if err := <-killed; err != nil {
			t.Error(err)
		}
		if err := s.Err(); err != nil {
			t.Errorf("an end that we made: got %v, want no error", err)
		}
	})
}

// The news of a server's end that comes after its next start fails its tests, and does not count for the new life.
func TestLateNewsOfAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		docker := slow{ended: make(chan container.WaitResponse)}
		s := running(docker)
		user := &spy{TB: t}
		s.use(user)
		s.mu.Lock()
		s.life++ // as a start does
		s.mu.Unlock()
		docker.ended <- container.WaitResponse{StatusCode: 1}
		s.watches.Wait()
		if got := user.failures(); len(got) != 1 || !strings.Contains(got[0], "slow ended by itself with code 1") {
			t.Errorf("the test: got %q, want that it hears of the end", got)
		}
		if err := s.Err(); err != nil {
			t.Errorf("the new life: got %v, want no error", err)
		}
	})
}

// A promotion may run beside the wait for an answer. What the race detector must see is a write without a lock after a read that
// nothing else orders, so nothing here waits for the other goroutine before.
func TestPromoteBesideAnswers(t *testing.T) {
	s := &RedisServer{Server: &Server{
		name: "replica", address: answering(t, func(string) string { return "+OK" }),
		ready: func(context.Context, string) error { return errors.New("not in touch with its primary") },
	}}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		for s.answer(t.Context()) != nil {
			runtime.Gosched()
		}
	}()
	<-time.After(20 * time.Millisecond)
	if err := s.Promote(t.Context()); err != nil {
		t.Error(err)
	}
	<-answered // a primary is asked less than a replica
}
