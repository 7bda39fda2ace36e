package live

import (
	"context"
	"errors"
	"testing"
	"time"
)

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
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
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
