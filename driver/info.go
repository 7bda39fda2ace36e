package driver

import (
	"slices"
	"time"
)

// Info states, as data, how a backend fares. The guarantee table of the documentation
// is made from it.
type Info struct {
	// Name is the package's name: redislock, filelock, …
	Name string
	// Tokens says how durably the counter behind the tokens is kept.
	Tokens Durability
	// ExpiryClock says whose clock decides that a grant is over, in a few words.
	ExpiryClock string
	// Waiting says how a waiter learns that the key is free.
	Waiting Waiting
	// MinTTL is the least ttl the backend takes. Granularity is what ttls are rounded
	// up to (zero: not rounded); Grant.TTL tells the result.
	MinTTL, Granularity time.Duration
	// Slack (σ) is how far beyond a deadline the backend's own actions may come: the
	// return of a call, the end of an expired grant.
	Slack time.Duration
	// FailoverLoses says in one sentence what a failover or crash of the server can
	// lose. Empty: nothing.
	FailoverLoses string
	// Features lists what the backend can do beyond Driver. It, and not a type
	// assertion, is what the suite checks: a decorator may implement every optional
	// interface and answer ErrUnsupported.
	Features []Feature
	// MaxBatch is the most grants in one RenewBatch. Zero: 1000.
	MaxBatch int
	// Poll is how a waiter without a queue asks again. Zero fields: 50 ms, doubling up
	// to PollInterval.
	Poll Backoff
	// RenewChangesState: a renewal changes what the next renewal or release must carry
	// (an ETag), so a release waits for a renewal in flight.
	RenewChangesState bool
	// ConfirmPushes: no pushed grant is believed before a renewal confirmed it.
	ConfirmPushes bool
	// PackageTime: the backend lives in this process and its clock is package time, so
	// that testing/synctest can drive it. The core then reads no other clock.
	PackageTime bool
	// HolderClock is filled in by the core: which clocks a holder's deadline counts on.
	HolderClock string
}

// Backoff bounds the pause between two polls: from Min, doubling, to Max.
type Backoff struct{ Min, Max time.Duration }

// Has reports whether the backend declares the feature.
func (i Info) Has(f Feature) bool { return slices.Contains(i.Features, f) }

// Durability is how durably tokens are kept. The values are ordered: greater is more
// durable.
type Durability int

const (
	// BestEffort: a crash, a failover or an eviction can make tokens start again.
	BestEffort Durability = iota
	// Durable: the counter survives a crash of the server, on its disk.
	Durable
	// Consensus: the counter survives the loss of any minority of servers.
	Consensus
)

// String returns best-effort, durable or consensus.
func (d Durability) String() string {
	switch d {
	case Durable:
		return "durable"
	case Consensus:
		return "consensus"
	default:
		return "best-effort"
	}
}

// Waiting is how a waiter learns that a key is free.
type Waiting int

const (
	// WaitPoll: by asking again.
	WaitPoll Waiting = iota
	// WaitWatch: by watching the key, in the order of arrival.
	WaitWatch
	// WaitQueue: the server keeps the queue and grants to the next one itself.
	WaitQueue
)

// String returns poll, watch or queue.
func (w Waiting) String() string {
	switch w {
	case WaitWatch:
		return "watch"
	case WaitQueue:
		return "queue"
	default:
		return "poll"
	}
}

// Feature is something that a backend may or may not be able to do.
type Feature string

// The features, by the name that reports and documentation use.
const (
	FeatureQueue      Feature = "queue"        // Queuer
	FeatureBatch      Feature = "batch-renew"  // BatchRenewer
	FeatureInspect    Feature = "inspect"      // Inspector.Inspect
	FeatureList       Feature = "list"         // Inspector.List
	FeatureBreak      Feature = "break"        // Breaker, without Now
	FeatureBreakNow   Feature = "break-now"    // Breaker, with Now
	FeaturePing       Feature = "ping"         // Pinger
	FeatureFIFO       Feature = "fifo"         // live waiters are served in the order of arrival
	FeatureFloor      Feature = "floor"        // Request.Floor is honoured
	FeatureProcesses  Feature = "processes"    // other processes are excluded too
	FeatureFreeOnExit Feature = "free-on-exit" // a killed holder's key is free at once
)
