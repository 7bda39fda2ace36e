package run

import (
	"testing"
	"time"
)

// step is one look at the guard: at a time since the start, with so much left.
type step struct {
	at, left time.Duration
	want     action
	next     time.Duration // when it wants to look again; zero: not checked
}

func TestGuard(t *testing.T) {
	t.Parallel()
	const (
		ttl   = 30 * time.Second
		check = 3 * time.Second
		s     = time.Second
	)
	for name, c := range map[string]struct {
		onLoss    OnLoss
		killAfter time.Duration
		maxHold   time.Duration
		steps     []step
		cause     Outcome
	}{
		"renewed all the time": {Terminate, 5 * s, 0, []step{
			{0, 29 * s, nothing, 3 * s}, {10 * s, 29 * s, nothing, 13 * s}, {20 * s, 29 * s, nothing, 23 * s},
		}, ""},
		"not renewed: SIGTERM in time for SIGKILL at the end": {Terminate, 5 * s, 0, []step{
			{0, 29 * s, nothing, 3 * s}, {23 * s, 6 * s, nothing, 24 * s},
			{24 * s, 5 * s, terminate, 27 * s}, {24 * s, 5 * s, nothing, 27 * s}, {28 * s, 1 * s, nothing, 29 * s},
			{29 * s, 0, kill, 29*s + killEvery}, {30 * s, 0, kill, 30*s + killEvery},
		}, Lost},
		"broken: at once, and never longer than what it had": {Terminate, 5 * s, 0, []step{
			{0, 29 * s, nothing, 0}, {26 * s, 3 * s, terminate, 29 * s}, {27 * s, 0, nothing, 29 * s}, {29 * s, 0, kill, 0},
		}, Lost},
		"broken early: SIGKILL after kill-after": {Terminate, 5 * s, 0, []step{
			{0, 29 * s, nothing, 0}, {2 * s, 0, terminate, 5 * s}, {6 * s, 0, nothing, 7 * s}, {7 * s, 0, kill, 0},
		}, Lost},
		"renewed after SIGTERM: no mercy, but no hurry": {Terminate, 5 * s, 0, []step{
			{0, 29 * s, nothing, 0}, {24 * s, 5 * s, terminate, 0}, {25 * s, 29 * s, nothing, 28 * s}, {29 * s, 25 * s, kill, 0},
		}, Lost},
		"woken after the end: SIGTERM and SIGKILL together": {Terminate, 5 * s, 0, []step{
			{0, 29 * s, nothing, 0}, {90 * s, 0, terminate, 0}, {90 * s, 0, kill, 0},
		}, Lost},
		"kill-after 0": {Terminate, 0, 0, []step{
			{0, 29 * s, nothing, 0}, {28 * s, 1 * s, nothing, 29 * s}, {29 * s, 0, terminate, 0}, {29 * s, 0, kill, 0},
		}, Lost},
		"on-loss kill": {Kill, 5 * s, 0, []step{
			{0, 29 * s, nothing, 0}, {28 * s, 1 * s, nothing, 29 * s}, {29 * s, 0, kill, 29*s + killEvery}, {29 * s, 0, kill, 0},
		}, Lost},
		"on-loss ignore": {Ignore, 5 * s, 0, []step{
			{0, 29 * s, nothing, 0}, {29 * s, 0, nothing, 32 * s}, {99 * s, 0, nothing, 0},
		}, ""},
		"max-hold": {Terminate, 5 * s, 10 * s, []step{
			{0, 29 * s, nothing, 3 * s}, {8 * s, 29 * s, nothing, 10 * s},
			{10 * s, 29 * s, terminate, 13 * s}, {14 * s, 29 * s, nothing, 15 * s}, {15 * s, 29 * s, kill, 0},
		}, MaxHold},
		"max-hold, and then the lease is not renewed": {Terminate, 5 * s, 22 * s, []step{
			{0, 29 * s, nothing, 0}, {22 * s, 7 * s, terminate, 0}, {26 * s, 3 * s, nothing, 27 * s}, {27 * s, 2 * s, kill, 0},
		}, MaxHold},
		"max-hold with on-loss ignore": {Ignore, 5 * s, 10 * s, []step{
			{0, 29 * s, nothing, 0}, {10 * s, 0, terminate, 0}, {14 * s, 0, nothing, 15 * s}, {15 * s, 0, kill, 0},
		}, MaxHold},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			g := guard{onLoss: c.onLoss, killAfter: c.killAfter}
			if c.maxHold > 0 {
				g.maxAt = start.Add(c.maxHold)
			}
			for i, st := range c.steps {
				now := start.Add(st.at)
				if got := g.look(now, st.left); got != st.want {
					t.Fatalf("step %d: got %v, want %v", i, got, st.want)
				}
				if next := g.next(now, st.left, ttl/checkShare).Sub(start); st.next != 0 && next != st.next {
					t.Errorf("step %d: next at %v, want %v", i, next, st.next)
				}
			}
			if g.cause != c.cause {
				t.Errorf("cause: got %q, want %q", g.cause, c.cause)
			}
		})
	}
}
