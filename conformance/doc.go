// Package conformance is the suite that says whether a backend keeps Locker's promises.
// It needs nothing but the standard library, and any backend, in any module, can run it:
//
//	func TestMain(m *testing.M) {
//		conformance.ServeIfChild(open)
//		os.Exit(m.Run())
//	}
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Harness{Driver: open})
//	}
//
// where open makes a new client of the same namespace. Everything else in a [Harness] is
// optional and lets more cases run. [Check] runs the same table without a testing.T.
//
// # Evidence
//
// A case fails only on evidence. What must never happen (two holders, a token that does
// not rise, a write past a fence) fails at once. What must happen in time, and everything
// that rests on a request being answered in time, fails only if a control request, sent
// all along on its own connection, stayed under a tenth of the ttl; otherwise the machine
// or the server was too slow to tell, and the case is inconclusive. An inconclusive case
// is repeated once. More than two in a hundred that stay so fail the run.
//
// A case whose fault never fired fails: it has tested nothing.
//
// # Size
//
// By default each case has the size of a run per push. LOCKER_TEST_SIZE=full (or soak)
// in the environment, or CheckOptions.Full, makes it as large as the case's full size.
//
// # Weaknesses
//
// The suite looks from outside. It cannot prove a guarantee, only show that it was broken;
// a guarantee that a backend does not declare is reported as undeclared, not as absent.
package conformance

//go:generate go run ./internal/gendoc
