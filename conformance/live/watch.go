package live

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
)

// Err returns why the server ended by itself, and nil if it did not, or was started again.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.died
}

// watch returns when a life of the server has ended, and tells its tests if it was not us who ended it.
func (s *Server) watch(life int) {
	ctx := context.Background()
	ended := s.engine.docker.ContainerWait(ctx, s.box.GetContainerID(), client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	var err error
	select {
	case r := <-ended.Result:
		err = fmt.Errorf("live: %s ended by itself with code %d", s.name, r.StatusCode)
	case err = <-ended.Error:
		err = fmt.Errorf("live: %s is out of sight: %w", s.name, err)
	}
	s.mu.Lock()
	ours := s.ending
	s.mu.Unlock()
	if ours {
		return
	}
	err = s.explain(ctx, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life == life { // else the test has started it again meanwhile
		s.died = err
	}
	for tb := range s.tests { // none of them can end meanwhile: it would have to leave the map first
		tb.Error(err)
	}
}

// explain adds the end of the server's log to an error.
func (s *Server) explain(ctx context.Context, err error) error {
	if !s.Ours() {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	log, noLog := s.Logs(ctx)
	if noLog != nil {
		return fmt.Errorf("%w (and no log: %w)", err, noLog)
	}
	return fmt.Errorf("%w; the end of the log of %s:\n%s", err, s.name, log)
}

// use ties the server to a test: it hears of the server's end.
func (s *Server) use(tb testing.TB) {
	tb.Helper()
	if died := s.Err(); died != nil {
		tb.Fatal(died)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tests == nil {
		s.tests = map[testing.TB]bool{}
	}
	s.tests[tb] = true
	tb.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.tests, tb)
	})
}
