package conformance

import (
	"fmt"
	"slices"
	"strings"
)

// Case is one thing that a backend must do. Cases are data: Run, Check and the
// documentation read the same table.
type Case struct {
	// ID is permanent: topic/kebab-case.
	ID string
	// Rule is one sentence, and what a failure prints first.
	Rule string
	// Level says whether every backend must pass.
	Level Level
	// Surface is where the case looks from.
	Surface Surface
	// Needs are the features without which the case means nothing.
	Needs []Feature
	// Load: it loads the machine, and runs by itself behind the others.
	Load bool
	// Push is the size per push, Full the size of a full run.
	Push, Full Size
	// Run does it. It ends by returning, or by a failing method of C.
	Run func(*C)
}

// Level is how much a case counts.
type Level int

// The levels. A core case that is skipped makes the report partial.
const (
	Core Level = iota
	Extended
)

// String returns core or extended.
func (l Level) String() string {
	if l == Extended {
		return "extended"
	}
	return "core"
}

// Surface is where a case looks from.
type Surface int

const (
	// OnAny cases use no more than the interface Lock, and run for every library.
	OnAny Surface = iota
	// OnLock cases are about what only the core can do: belief, waiting, closing, local
	// queues.
	OnLock
	// OnDriver cases are about what the core would hide.
	OnDriver
)

// String returns any, lock or driver.
func (s Surface) String() string { return [...]string{"any", "lock", "driver"}[s] }

// Size is how large a case runs. Zero fields mean nothing to the case.
type Size struct {
	N    int     // rounds, tries, clients, keys: what the case counts
	TTLs float64 // how long, in ttls
}

// String reads: 50, or 3 T, or 16 for 3 T.
func (s Size) String() string {
	var parts []string
	if s.N > 0 {
		parts = append(parts, fmt.Sprint(s.N))
	}
	if s.TTLs > 0 {
		parts = append(parts, fmt.Sprintf("%g T", s.TTLs))
	}
	return strings.Join(parts, " for ")
}

// size is the case's in this run: the full one, if it has one and it is asked for.
func (k Case) size(full bool) Size {
	if full && k.Full != (Size{}) {
		return k.Full
	}
	return k.Push
}

// Cases returns the table, in the order of the documentation.
func Cases() []Case {
	return slices.Concat(contractCases, requestCases, localCases, operationCases, expiryCases, renewalCases, fenceCases,
		contentionCases, queueCases, pushCases, processCases, networkCases, serverCases, resourceCases)
}
