package s3lock

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fencelock/locker/driver"
)

// Verdict is what a probe found about one requirement.
type Verdict string

const (
	// Met: the store does it.
	Met Verdict = "met"
	// Missing: it does not, and locks in it would mean nothing.
	Missing Verdict = "missing"
	// Warned: locks work; somebody should know.
	Warned Verdict = "warned"
	// Unchecked: the credentials do not allow to ask. Nothing depends on it.
	Unchecked Verdict = "unchecked"
)

// Check is one requirement and what was found.
type Check struct {
	// Requirement is what a store must do, in words.
	Requirement string
	Verdict     Verdict
	// Found says what was seen, where there is more to say than the verdict.
	Found string
}

// Report is what a [Probe] found.
type Report struct {
	Bucket string
	Checks []Check
}

// The requirements.
const (
	reqCreate       = "PutObject with If-None-Match: * creates an object"
	reqCreateTwice  = "PutObject with If-None-Match: * refuses a name that is taken"
	reqReplace      = "PutObject with If-Match replaces an object that has not changed"
	reqReplaceStale = "PutObject with If-Match refuses an object that has changed"
	reqReplaceNone  = "PutObject with If-Match refuses a name that is free"
	reqCreateRace   = "of several creates at once one wins"
	reqReplaceRace  = "of several replacements at once one wins"
	reqList         = "ListObjectsV2 shows what was just written, in the order of names"
	reqNotModified  = "GetObject with If-None-Match answers 304 while nothing changed"
	reqClocks       = "Date and Last-Modified come from clocks that agree"
	reqLifecycle    = "no lifecycle rule removes or archives objects under the prefix"
)

// Err returns nil if the store can keep locks; else an error that is ErrStore and names
// what is missing.
func (r Report) Err() error {
	var missing []string
	for _, c := range r.Checks {
		if c.Verdict == Missing {
			missing = append(missing, c.Requirement+" ("+c.Found+")")
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return driver.Wrap(driver.ErrUnsupported, fmt.Errorf("%w: missing in bucket %q: %s: use a store that has it", ErrStore, r.Bucket, strings.Join(missing, "; ")))
}

// ClocksAgree reports whether the store rule can be used.
func (r Report) ClocksAgree() bool {
	return slices.ContainsFunc(r.Checks, func(c Check) bool { return c.Requirement == reqClocks && c.Verdict == Met })
}

// String returns one line for each requirement.
func (r Report) String() string {
	var b strings.Builder
	for _, c := range r.Checks {
		fmt.Fprintf(&b, "%-9s  %s", c.Verdict, c.Requirement)
		if c.Found != "" {
			fmt.Fprintf(&b, ": %s", c.Found)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
