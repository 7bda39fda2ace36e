package conformance

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/fencelock/locker/driver"
)

// Harness is what the suite needs to know of a backend. Exactly one of Driver and Locker
// must be set.
type Harness struct {
	// Driver makes a client of the namespace under test. It is called several times per
	// case: the clients MUST be independent (no shared connection, no shared state), and
	// each must have answered one request already, so that no case pays for connecting.
	// The suite closes them.
	Driver func(context.Context) (driver.Driver, error)
	// Locker makes a client of a lock library that has no Driver. Only the cases of the
	// surface any run.
	Locker func(context.Context) (Lock, error)
	// Control makes one cheap request on a connection of its own. It tells a slow server
	// from a wrong lock. Nil: only the machine's own slowness is noticed.
	Control func(context.Context) error
	// Child returns a command, not started, of a process that calls ServeIfChild: the
	// test binary itself. Nil: [Self] if the backend declares that it excludes other
	// processes, and if not, the process cases are undeclared.
	Child func(context.Context) (*exec.Cmd, error)
	// Fence makes a resource with a fence. Nil: a fence.Register.
	Fence func(ctx context.Context, name string) (Fence, error)
	// Faults is what can be broken on purpose.
	Faults Faults
	// NoServer says that the backend has no server, as a directory has none: the cases
	// that stop or kill it are undeclared, and not skipped.
	NoServer bool
	// Allow, if not nil, lists the ids of the core cases that may be skipped. Any other
	// that is skipped fails.
	Allow []string
	// Footprint counts what the backend has at the moment, by kind: connections, sessions,
	// keys, rows, files. Nil: only this process's goroutines are counted.
	Footprint func(context.Context) (map[string]int, error)
	// Reopen opens the namespace under test with another token base. It must be refused.
	Reopen func(ctx context.Context, base driver.Token) (driver.Driver, error)
	// Fresh opens a namespace that nobody has used, with a token base.
	Fresh func(ctx context.Context, base driver.Token) (driver.Driver, error)
	// TTL is the ttl of the cases. Zero: 2 s, or the backend's minimum if that is larger.
	// In real time nothing below 2 s tells a wrong lock from a slow machine.
	TTL time.Duration
	// Slack replaces the backend's declared σ. Zero: Info.Slack.
	Slack time.Duration
	// Features are declared beside those of Driver.Info.
	Features []Feature
	// Virtual runs each case in a testing/synctest bubble. It is for a backend in memory
	// whose clock is package time, and needs PerCase.
	Virtual bool
	// PerCase, if set, returns the harness of one case: a server of its own.
	PerCase func(Harness) Harness
	// Parallel is how many cases run at once. Zero: 24; they mostly wait.
	Parallel int
}

// Faults are the hooks to break things. Each may be nil: then the cases that need it are
// skipped.
type Faults struct {
	// Client makes a client, as Harness.Driver does, whose network can be harmed.
	Client func(context.Context) (driver.Driver, Network, error)
	// Stop freezes the server, as a stop signal does, and Continue thaws it.
	Stop, Continue func(context.Context) error
	// Restart ends the server in an orderly way and starts it again; Kill without any
	// warning. Clients stay and reconnect.
	Restart, Kill func(context.Context) error
	// Unreachable are clients that cannot work, by what is wrong: a host that has no
	// address, a port where nobody listens, TLS that is not spoken, a wrong password, a
	// pool that is used up. Either opening fails, or the client's first request.
	Unreachable map[string]func(context.Context) (driver.Driver, error)
	// Remove takes away the record of a key from outside, as an operator with the
	// backend's own tools would.
	Remove func(ctx context.Context, key string) error
	// Overwrite puts something else in the place of the record of a key: another's record,
	// or nonsense, as a bug or an operator would. The key may be unusable afterwards.
	Overwrite func(ctx context.Context, key string) error
}

// Network is the path between one client and its server. A change is in force when the
// call returns.
type Network interface {
	// Set makes it fail from now on, until the next Set. d is only for Delays.
	Set(f NetworkFault, d time.Duration)
	// Fired is how many requests or replies were harmed since the last Set.
	Fired() int
}

// NetworkFault is how a network fails.
type NetworkFault int

const (
	// Sound: it works.
	Sound NetworkFault = iota
	// LoseRequests: no request arrives, and the client is told (a reset).
	LoseRequests
	// LoseReplies: requests arrive and are applied, the reply is replaced by a reset.
	LoseReplies
	// BlackHole: nothing passes, in silence.
	BlackHole
	// Mute: requests arrive and are applied, and nothing comes back, in silence.
	Mute
	// Delays: each direction takes a random time up to d.
	Delays
	// Resets: about one call in ten is reset, before or after it was applied.
	Resets
	// Copies: each request arrives twice, the second time d later.
	Copies
)

// String returns the fault in words.
func (f NetworkFault) String() string {
	return [...]string{"sound", "lost requests", "lost replies", "black hole", "mute", "delays", "resets", "copies"}[f]
}

// Fence is a resource that checks tokens and holds one value. A *fence.Register[string]
// is one.
type Fence interface {
	Raise(ctx context.Context, t driver.Token) error
	Read(ctx context.Context, t driver.Token) (string, error)
	Write(ctx context.Context, t driver.Token, v string) error
}

// Lock is a client of any lock library.
type Lock interface {
	// TryAcquire makes one attempt. Somebody else has it: an error that is
	// driver.ErrHeld.
	TryAcquire(ctx context.Context, key string, ttl time.Duration) (Held, error)
	// Acquire waits until ctx ends.
	Acquire(ctx context.Context, key string, ttl time.Duration) (Held, error)
	Close() error
}

// Held is a lock, held.
type Held interface {
	// Token returns the fencing token. Zero: the library has none, and the cases about
	// tokens fail.
	Token() driver.Token
	// Valid reports whether the holder may still believe that it holds.
	Valid() bool
	Renew(ctx context.Context) error
	Release(ctx context.Context) error
}

// Feature is what a case may need.
type Feature = driver.Feature

// The features that are not a driver's: what the harness offers, or how the suite runs.
const (
	FeatureCore        Feature = "core"                // Harness.Driver: the case looks at our own core
	FeatureChild       Feature = "child"               // Harness.Child
	FeatureNetwork     Feature = "network-faults"      // Faults.Client
	FeatureStop        Feature = "server-stop"         // Faults.Stop and Continue
	FeatureRestart     Feature = "server-restart"      // Faults.Restart
	FeatureKill        Feature = "server-kill"         // Faults.Kill
	FeatureRemove      Feature = "record-removal"      // Faults.Remove
	FeatureUnreachable Feature = "unreachable-clients" // Faults.Unreachable
	FeatureOverwrite   Feature = "record-overwriting"  // Faults.Overwrite
	FeatureReopen      Feature = "reopen"              // Harness.Reopen
	FeatureFresh       Feature = "fresh"               // Harness.Fresh
	FeatureVirtual     Feature = "virtual-time"        // Harness.Virtual
	FeatureRealTime    Feature = "real-time"           // not Harness.Virtual
)

const (
	defaultTTL      = 2 * time.Second
	defaultParallel = 24
)

// offers reports whether the harness, with this backend, has what a feature needs, and if
// not, whether that is a declaration of the backend (undeclared) or a gap of the harness
// (skipped).
func (h *Harness) offers(f Feature, info driver.Info) (ok, gap bool) {
	switch f {
	case FeatureCore:
		return h.Driver != nil, false
	case FeatureChild:
		return h.Child != nil && stopSignal != nil, info.Has(driver.FeatureProcesses) && stopSignal != nil
	case FeatureNetwork:
		return h.Faults.Client != nil, true
	case FeatureStop:
		return h.Faults.Stop != nil && h.Faults.Continue != nil, !h.NoServer
	case FeatureRestart:
		return h.Faults.Restart != nil, !h.NoServer
	case FeatureKill:
		return h.Faults.Kill != nil, !h.NoServer
	case FeatureRemove:
		return h.Faults.Remove != nil, true
	case FeatureUnreachable:
		return len(h.Faults.Unreachable) > 0, !h.NoServer
	case FeatureOverwrite:
		return h.Faults.Overwrite != nil, true
	case FeatureReopen:
		return h.Reopen != nil, true
	case FeatureFresh:
		return h.Fresh != nil, true
	case FeatureVirtual:
		return h.Virtual, false
	case FeatureRealTime:
		return !h.Virtual, false
	}
	for _, have := range h.Features {
		if have == f {
			return true, false
		}
	}
	return info.Has(f), false
}

// implements makes sure that what is declared can be called. Whoever has forgotten one method
// of an interface would learn no more than that nothing is supported.
func implements(d driver.Driver, info driver.Info) error {
	_, queuer := d.(driver.Queuer)
	_, batch := d.(driver.BatchRenewer)
	_, inspector := d.(driver.Inspector)
	_, breaker := d.(driver.Breaker)
	_, pinger := d.(driver.Pinger)
	for _, needs := range []struct {
		feature driver.Feature
		name    string
		ok      bool
	}{
		{driver.FeatureQueue, "Queuer", queuer},
		{driver.FeatureBatch, "BatchRenewer", batch},
		{driver.FeatureInspect, "Inspector", inspector},
		{driver.FeatureList, "Inspector", inspector},
		{driver.FeatureBreak, "Breaker", breaker},
		{driver.FeatureBreakNow, "Breaker", breaker},
		{driver.FeaturePing, "Pinger", pinger},
	} {
		if info.Has(needs.feature) && !needs.ok {
			return fmt.Errorf("%s declares %s, and its %T is no driver.%s: a method is missing", info.Name, needs.feature, d, needs.name)
		}
	}
	return nil
}
