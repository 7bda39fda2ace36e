//go:build unix

package main_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// flock(1) answers a conflict with 1, like many commands.
func TestConflictHasItsOwnExitCode(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.holding()
	p := h.locked("true", "-n").want(123)
	contains(t, "stderr", p.stderr.String(), `locker: "key" is held by `)
	p = h.locked("true", "-w", "100ms").want(124)
	contains(t, "stderr", p.stderr.String(), `"key": waited `)
	h.locked("true", "-w", "0").want(123)
	h.locked("true", "-n", "-E", "75").want(75)
	h.locked("true", "-w", "100ms", "-E", "75").want(75)
	h.locked("true", "-n", "-E", "0").want(0).silent()
}

// A wait that ends during the very first request is one that has elapsed, and leaves
// nothing behind, whatever has become of the request.
func TestWaitEndsWithTheFirstRequest(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	timeouts := 0
	for i := range 20 {
		p := h.locked("exit 3", "-w", fmt.Sprintf("%dus", 1+150*i), "--result", "result")
		switch code := p.run(); code {
		case 3: // it was fast enough
		case 124:
			timeouts++
			if r := h.result("result"); r.Outcome != "timeout" {
				t.Errorf("%+v", r)
			}
		default:
			t.Fatalf("exit code %d, want 124\n%s", code, p.stderr)
		}
		h.free()
	}
	if timeouts == 0 {
		t.Error("no wait has ended during its request")
	}
}

// consul lock -try 2h gives up after 20 minutes. A wait is as long as it is told to be,
// and the key is then had at once.
func TestWaitEndsWithTheKey(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	holder := h.holding()
	p := h.locked("true", "-w", "2h", "-v").start()
	eventually(t, "it waits", func() bool { return strings.Contains(p.stderr.String(), "waiting: held by") })
	holder.signal(syscall.SIGTERM)
	p.ended(0)
	contains(t, "stderr", p.stderr.String(), "released")
}
