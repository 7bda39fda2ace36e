package live

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// pauseShows is how long a server may be silent before it counts as paused.
const pauseShows = 500 * time.Millisecond

// testPause checks that a paused server answers no request, and a thawed one does.
func testPause(t *testing.T, s *Server, request func(context.Context) error) {
	t.Helper()
	if !s.Ours() {
		if err := s.Pause(t.Context()); !errors.Is(err, ErrNoHandle) {
			t.Errorf("pause of a server of the environment: got %v, want %v", err, ErrNoHandle)
		}
		return
	}
	if err := s.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), pauseShows)
	defer cancel()
	if err := request(ctx); err == nil {
		t.Errorf("%s answers while it is paused", s.Name())
	}
	if err := s.Unpause(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) bool { return request(ctx) == nil })
}

// eventually waits until f says yes.
func eventually(t *testing.T, f func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !f(ctx) {
		select {
		case <-ctx.Done():
			t.Fatal("it does not come true")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// spy is a test that notes how it fails or skips, and fails nothing else.
type spy struct {
	testing.TB
	mu     sync.Mutex
	failed []string
	skip   string
}

func (s *spy) Error(args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = append(s.failed, fmt.Sprint(args...))
}

func (s *spy) Fatal(args ...any) {
	s.Error(args...)
	runtime.Goexit()
}

func (s *spy) Fatalf(format string, args ...any) {
	s.Fatal(fmt.Sprintf(format, args...))
}

func (s *spy) Skip(args ...any) {
	s.skip = fmt.Sprint(args...)
	runtime.Goexit()
}

func (s *spy) failures() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.failed)
}

// do runs f as a test's goroutine, which may end at once.
func (s *spy) do(f func(testing.TB)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(s)
	}()
	<-done
}

// A server that ends by itself fails whoever uses it, with its name and the end of its log; one that we end does not.
func TestServerDies(t *testing.T) {
	t.Parallel()
	s := Redis(keeper{t}, RedisOptions{Args: []string{"--loglevel", "notice"}})
	t.Cleanup(func() { _ = s.Remove(context.Background()) })
	user := &spy{TB: t}
	s.use(user)
	for _, end := range []func(context.Context) error{s.Kill, s.Start, s.Stop, s.Start, s.Pause, s.Crash} {
		if err := end(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := user.failures(); len(got) != 0 {
		t.Errorf("a server that we end fails its test: %s", got)
	}

	if _, err := s.Do(t.Context(), "SHUTDOWN", "NOSAVE"); err == nil {
		t.Fatal("the server answers to its own end")
	}
	eventually(t, func(context.Context) bool { return len(user.failures()) > 0 })
	for _, want := range []string{"redis", "ended by itself with code 0", "bye bye"} {
		if got := user.failures()[0]; !strings.Contains(got, want) {
			t.Errorf("error: got %s, want it to have %q", got, want)
		}
	}
	late := &spy{TB: t}
	late.do(s.use)
	if got := late.failures(); len(got) != 1 || !strings.Contains(got[0], "ended by itself") {
		t.Errorf("a test that comes later: got %q, want the same error", got)
	}

	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Err(); err != nil {
		t.Errorf("started again, it is still dead: %v", err)
	}
	s.use(t)
	wantRedis(t, s, "PONG", "PING")
}

// A server that does not come up names itself, too.
func TestServerDoesNotStart(t *testing.T) {
	t.Parallel()
	first := &spy{TB: t}
	first.do(func(tb testing.TB) { Redis(keeper{tb}, RedisOptions{Args: []string{"--no-such-option", "1"}}) })
	if first.skip != "" {
		t.Skip(first.skip)
	}
	got := strings.Join(first.failures(), "\n")
	for _, want := range []string{"redis", "ended by itself with code 1", "no-such-option"} {
		if !strings.Contains(got, want) {
			t.Errorf("error: got %s, want it to have %q", got, want)
		}
	}
}

func TestOnce(t *testing.T) {
	t.Parallel()
	started := 0
	shared := Once(func(tb testing.TB) *RedisServer {
		started++
		if started == 1 {
			tb.Skip("not the first time")
		}
		return Redis(tb, RedisOptions{})
	})
	first := &spy{TB: t}
	first.do(func(tb testing.TB) { shared(tb) })
	if first.skip == "" {
		t.Error("the first test goes on without a server")
	}
	var servers []*RedisServer
	for range 2 {
		t.Run("shares", func(t *testing.T) { servers = append(servers, shared(t)) })
	}
	if len(servers) != 2 {
		t.Skip("there is no server") // as its own tests have said
	}
	if servers[0] != servers[1] || started != 2 {
		t.Errorf("two tests: started %d servers, want one", started-1)
	}
	wantRedis(t, servers[0], "PONG", "PING") // it outlives the test that started it
}
