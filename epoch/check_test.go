package epoch

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// explorer walks through every execution within the bounds, depth first. Coroutines
// cannot be copied, so going back means running again from the start with the same
// choices; a state that was met before is not entered twice.
type explorer struct {
	path    []choice
	pos     int
	states  map[uint64]struct{}
	runs    int
	ready   []*thread
	explain bool
	log     []string
	buf     []byte
	stop    time.Time
}

type choice struct{ taken, of int }

// fresh reports whether the next choice is made for the first time.
func (x *explorer) fresh() bool { return x.pos == len(x.path) }

func (x *explorer) seen(state uint64) bool {
	if _, seen := x.states[state]; seen {
		return true
	}
	x.states[state] = struct{}{}
	return false
}

// note writes down a step, if anybody wants to know.
func (x *explorer) note(format string, args ...any) {
	if x.explain {
		x.log = append(x.log, fmt.Sprintf(format, args...))
	}
}

func (x *explorer) choose(n int) int {
	if x.pos == len(x.path) {
		x.path = append(x.path, choice{0, n})
	}
	c := x.path[x.pos]
	if c.of != n {
		panic(fmt.Sprintf("not deterministic: choice %d of %d was of %d", x.pos, n, c.of))
	}
	x.pos++
	return c.taken
}

// back moves to the next path. It reports false after the last one.
func (x *explorer) back() bool {
	x.path = x.path[:min(x.pos, len(x.path))]
	for len(x.path) > 0 {
		last := &x.path[len(x.path)-1]
		if last.taken++; last.taken < last.of {
			return true
		}
		x.path = x.path[:len(x.path)-1]
	}
	return false
}

// explore returns the first violation with its schedule, or "" after a complete
// exploration.
func explore(t *testing.T, b bounds) (violation string, complete bool) {
	t.Helper()
	x := &explorer{states: map[uint64]struct{}{}, stop: time.Now().Add(checkPatience)}
	began := time.Now()
	for {
		x.pos = 0
		w := newWorld(b, x)
		w.run()
		x.runs++
		if w.violation != "" {
			return w.violation + "\n" + x.replay(b), true
		}
		if !x.back() {
			t.Logf("%d states, %d runs, %v", len(x.states), x.runs, time.Since(began).Round(time.Millisecond))
			return "", true
		}
		if x.runs%1024 == 0 && time.Now().After(x.stop) {
			t.Logf("%d states, %d runs, not complete", len(x.states), x.runs)
			return "", false
		}
	}
}

// replay runs the current path once more and writes down what happened.
func (x *explorer) replay(b bounds) string {
	x.pos, x.explain = 0, true
	w := newWorld(b, x)
	w.run()
	return "    " + strings.Join(x.log, "\n    ")
}

// checkPatience bounds one exploration. Running out of it is a failure, not a pass.
const checkPatience = 4 * time.Minute

// explorations are the bounds within which the shipped protocol is explored
// completely: two clients, a ttl of two ticks or three, K = 1, so that a number is
// collected as soon as it can be. The large ones take minutes.
var explorations = []struct {
	name        string
	push, large bounds
}{
	{
		"conditional",
		bounds{ticks: 3, keep: 1, epochs: 4, clients: []script{{attempts: 1, renews: 1}, {attempts: 1}}},
		bounds{ticks: 5, keep: 1, epochs: 4, clients: []script{{attempts: 2, renews: 1}, {attempts: 2}}},
	},
	{
		"directory",
		bounds{ticks: 3, keep: 1, epochs: 3, unlinked: true, clients: []script{{attempts: 1, renews: 1}, {attempts: 1}}},
		bounds{ticks: 5, keep: 1, epochs: 4, unlinked: true, clients: []script{{attempts: 1, renews: 2}, {attempts: 2}}},
	},
	{
		"observed",
		bounds{ttl: 3, ticks: 4, keep: 1, epochs: 2, unlinked: true, observed: true, clients: []script{{attempts: 1, renews: 1, headStart: true}, {attempts: 2, stays: true}}},
		bounds{ttl: 2, ticks: 5, keep: 1, epochs: 3, observed: true, clients: []script{{attempts: 1, renews: 1}, {attempts: 3, letGo: true}}},
	},
	{
		"collected",
		bounds{ticks: 0, keep: 1, epochs: 4, clients: []script{{attempts: 1}, {attempts: 3, letGo: true}}},
		bounds{ticks: 2, keep: 1, epochs: 4, clients: []script{{attempts: 2}, {attempts: 3, letGo: true}}},
	},
	{
		"undone",
		bounds{ticks: 0, keep: 1, epochs: 3, lost: 2, clients: []script{{attempts: 1, resends: 1, resendUndone: true}, {attempts: 1}}},
		bounds{ticks: 1, keep: 1, epochs: 3, lost: 3, clients: []script{{attempts: 1, resends: 1, resendUndone: true}, {attempts: 1}}},
	},
	{
		"re-sent",
		bounds{ticks: 2, keep: 1, epochs: 3, lost: 1, clients: []script{{attempts: 1, resends: 1}, {attempts: 1, stays: true}}},
		bounds{ticks: 3, keep: 1, epochs: 3, lost: 2, clients: []script{{attempts: 1, resends: 1}, {attempts: 1}}},
	},
	{
		"late beats",
		bounds{ticks: 3, keep: 1, epochs: 2, lost: 1, clients: []script{{attempts: 1, renews: 2, headStart: true}, {attempts: 1, letGo: true}}},
		bounds{ttl: 3, ticks: 4, keep: 1, epochs: 3, lost: 1, clients: []script{{attempts: 1, renews: 2}, {attempts: 1}}},
	},
	{
		"broken",
		bounds{ticks: 3, keep: 1, epochs: 2, clients: []script{{attempts: 1, renews: 1, headStart: true}, {attempts: 1, stays: true}, {breaks: true}}},
		bounds{ticks: 4, keep: 1, epochs: 2, unlinked: true, clients: []script{{attempts: 1, renews: 1}, {attempts: 1}, {breaks: true}}},
	},
}

// within returns the bounds of one exploration.
func within(name string) bounds {
	for _, e := range explorations {
		if e.name == name {
			if os.Getenv("LOCKER_TEST_SIZE") != "" {
				return e.large
			}
			return e.push
		}
	}
	panic(name)
}

// TestStateSpace is case MO3: the shipped code, every interleaving within the bounds.
func TestStateSpace(t *testing.T) {
	for _, e := range explorations {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			violation, complete := explore(t, within(e.name))
			if violation != "" {
				t.Fatal(violation)
			}
			if !complete {
				t.Fatal("the bounds were not explored completely")
			}
		})
	}
}

// TestStateSpaceFindsBrokenStores are the negative controls that a store can be: the
// algorithm is the shipped one, what it stands on is not.
func TestStateSpaceFindsBrokenStores(t *testing.T) {
	late := within("directory")
	late.lateClock = true
	overwrite := bounds{ticks: 1, keep: 1, epochs: 1, overwrite: true, clients: []script{{attempts: 1, renews: 1, headStart: true}, {breaks: true}}}
	for name, b := range map[string]bounds{"clock read after the record": late, "renewing by overwrite": overwrite} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			violation, _ := explore(t, b)
			if violation == "" {
				t.Fatal("the broken store was not found")
			}
			t.Log(violation)
		})
	}
}
