package live

import (
	"crypto/rand"
	"fmt"
	"os"
	"testing"
)

// run names what this process has started: the value of runLabel. Empty: Main was not called.
var run string

// mine is the reaper of this run. Nil: Main was not called.
var mine *reaper

const runLabel = "locker.live.run"

// Main is the body of TestMain for a package whose tests use servers. It runs the tests, and removes what they have
// left. Where the package's tests also start children of the conformance suite, conformance.ServeIfChild comes before it.
//
//	func TestMain(m *testing.M) { live.Main(m) }
func Main(m *testing.M) {
	reapIfReaper()
	if bad := unknown(os.Getenv(requireVariable)); len(bad) > 0 {
		fmt.Fprintf(os.Stderr, "live: %s: there is no server %q; there are: %q\n", requireVariable, bad, servers)
		os.Exit(2)
	}
	run = rand.Text()
	r, err := startReaper(run)
	if err != nil {
		fmt.Fprintln(os.Stderr, "live: no reaper:", err)
		os.Exit(2)
	}
	mine = r
	code := m.Run()
	if err := r.finish(); err != nil {
		fmt.Fprintln(os.Stderr, "live:", err)
		code = max(code, 1)
	}
	left.tell()
	os.Exit(code)
}
