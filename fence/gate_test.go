package fence_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/fence"
)

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// stale checks for a refusal with its detail.
func stale(t *testing.T, what string, err error, want fence.StaleError) {
	t.Helper()
	var got *fence.StaleError
	if !errors.As(err, &got) {
		t.Fatalf("%s: got %v, want a *StaleError", what, err)
	}
	equal(t, what, *got, want)
	if !errors.Is(err, driver.ErrStale) || driver.IsAmbiguous(err) {
		t.Fatalf("%s: got %v, want the definite %v", what, err, driver.ErrStale)
	}
}

func TestGate(t *testing.T) {
	t.Parallel()
	var g fence.Gate
	ctx := t.Context()
	for _, step := range []struct {
		name     string
		call     func(context.Context, string, driver.Token) error
		resource string
		token    driver.Token
		mark     driver.Token // of the refusal; zero: accepted
	}{
		{"first write", g.Check, "a", 5, 0},
		{"equal write", g.Check, "a", 5, 0},
		{"smaller write", g.Check, "a", 4, 5},
		{"greater raise", g.Raise, "a", 7, 0},
		{"equal raise", g.Raise, "a", 7, 0},
		{"smaller raise", g.Raise, "a", 6, 7},
		{"write of the holder before the raise", g.Check, "a", 5, 7},
		{"write of the raiser", g.Check, "a", 7, 0},
		{"greater write, without a raise", g.Check, "a", 9, 0},
		{"write after that", g.Check, "a", 7, 9},
		{"another resource has its own mark", g.Check, "b", 1, 0},
		{"greatest token", g.Raise, "b", driver.MaxToken, 0},
	} {
		err := step.call(ctx, step.resource, step.token)
		if step.mark == 0 {
			equal(t, step.name, err, nil)
			continue
		}
		stale(t, step.name, err, fence.StaleError{Resource: step.resource, Token: step.token, Mark: step.mark})
	}
}

func TestWhatIsNoTokenIsRefused(t *testing.T) {
	t.Parallel()
	var g fence.Gate
	var r fence.Register[string]
	ctx := t.Context()
	for _, token := range []driver.Token{0, driver.MaxToken + 1} {
		_, readErr := r.Read(ctx, token)
		for what, err := range map[string]error{
			"Gate.Raise":     g.Raise(ctx, "r", token),
			"Gate.Check":     g.Check(ctx, "r", token),
			"Register.Raise": r.Raise(ctx, token),
			"Register.Read":  readErr,
			"Register.Write": r.Write(ctx, token, "x"),
		} {
			if !errors.Is(err, driver.ErrStale) || !strings.Contains(err.Error(), "no token") {
				t.Errorf("%s(%d): got %v, want %v, saying that it is no token", what, uint64(token), err, driver.ErrStale)
			}
		}
	}
	equal(t, "a token afterwards", g.Check(ctx, "r", 1), nil)
	equal(t, "mark of the register", r.Mark(), 0)
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	var g fence.Gate
	equal(t, "Raise", g.Raise(t.Context(), "db", 9), nil)
	equal(t, "error", g.Check(t.Context(), "db", 7).Error(), `fence: stale token: "db" has seen 9, and this is 7`)
	equal(t, "error", g.Check(t.Context(), "db", 0).Error(),
		`fence: check "db": stale token: 0 is no token: want 1 to 9223372036854775807`)
}

func TestEndedContextRaisesNothing(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var m fence.Marks
	g := fence.Gate{Store: &m}
	for _, call := range []func(context.Context, string, driver.Token) error{g.Raise, g.Check} {
		if err := call(ended, "r", 5); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
	}
	equal(t, "mark", m.Mark("r"), 0)
}

// store is a Store that answers what the test says.
type store struct {
	mark driver.Token
	err  error
}

func (s store) Raise(context.Context, string, driver.Token) (driver.Token, error) {
	return s.mark, s.err
}

func TestTheStoreDecides(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk on fire")
	for _, c := range []struct {
		name  string
		store store
		want  error
	}{
		{"equal", store{mark: 5}, nil},
		{"greater", store{mark: 6}, driver.ErrStale},
		{"not raised", store{mark: 4}, driver.ErrCorrupt},
		{"failed", store{mark: 5, err: broken}, broken},
	} {
		g := fence.Gate{Store: c.store}
		for op, call := range map[string]func(context.Context, string, driver.Token) error{"raise": g.Raise, "check": g.Check} {
			if err := call(t.Context(), "r", 5); !errors.Is(err, c.want) {
				t.Errorf("%s, %s: got %v, want %v", c.name, op, err, c.want)
			}
		}
	}
}

// A smaller token that is shown after a greater one was accepted is never accepted.
func TestRacingHolders(t *testing.T) {
	t.Parallel()
	const tokens = 1000
	var g fence.Gate
	var m fence.Marks
	g.Store = &m
	var wg sync.WaitGroup
	for first := range driver.Token(8) {
		wg.Go(func() {
			for token := first + 1; token <= tokens; token += 8 {
				seen := m.Mark("r")
				if err := g.Check(t.Context(), "r", token); err == nil && seen > token {
					t.Errorf("token %v: got accepted, want refused: %v had been seen", token, seen)
				}
			}
		})
	}
	wg.Wait()
	equal(t, "mark", m.Mark("r"), tokens)
}
