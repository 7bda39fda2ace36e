package conformance

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/locker/driver"
)

// Verdict is what came of a case.
type Verdict string

// The verdicts.
const (
	Passed       Verdict = "passed"
	Failed       Verdict = "failed"
	Inconclusive Verdict = "inconclusive" // the machine or the server was too slow to tell
	Skipped      Verdict = "skipped"      // the harness lacks something
	Undeclared   Verdict = "undeclared"   // the backend does not claim it
)

// Cause says what made a case fail.
type Cause string

// The causes.
const (
	ByRule    Cause = "rule"    // the case's own assertion
	ByHistory Cause = "history" // what the clients saw is impossible with a correct lock
	BySetup   Cause = "setup"   // the case did not come as far as its rule
	ByPanic   Cause = "panic"
	ByHang    Cause = "hang" // it did not end
)

// Result is what came of one case.
type Result struct {
	ID      string        `json:"id"`
	Rule    string        `json:"rule"`
	Level   string        `json:"level"`
	Surface string        `json:"surface"`
	Size    string        `json:"size,omitempty"`
	Verdict Verdict       `json:"verdict"`
	Cause   Cause         `json:"cause,omitempty"`
	Detail  string        `json:"detail,omitempty"`
	Repeats int           `json:"repeats,omitempty"` // runs that were inconclusive before this one
	Took    time.Duration `json:"took_ns"`
}

// Report is what came of a run.
type Report struct {
	Backend  string        `json:"backend"`
	Tokens   string        `json:"tokens"`
	Waiting  string        `json:"waiting"`
	Features []Feature     `json:"features"`
	TTL      time.Duration `json:"ttl_ns"`
	Full     bool          `json:"full"`
	Virtual  bool          `json:"virtual"`
	// Partial: a core case was skipped, so that the report is no proof of conformance.
	Partial bool            `json:"partial"`
	Counts  map[Verdict]int `json:"counts"`
	// Repeated is how many runs of cases were inconclusive and were repeated.
	Repeated int      `json:"repeated"`
	Results  []Result `json:"results"`
	// Err is why the run did not begin. Empty: it did.
	Err string `json:"error,omitempty"`
}

// inconclusiveShare: more than one in this many inconclusive cases fail a run.
const inconclusiveShare = 50

func newReport(h Harness, info driver.Info, full bool) *Report {
	return &Report{
		Backend: info.Name, Tokens: info.Tokens.String(), Waiting: info.Waiting.String(), Features: slices.Sorted(slices.Values(info.Features)),
		TTL: h.TTL, Full: full, Virtual: h.Virtual, Counts: map[Verdict]int{},
	}
}

func (r *Report) add(res Result) {
	r.Results = append(r.Results, res)
	r.Counts[res.Verdict]++
	r.Repeated += res.Repeats
	if res.Verdict == Skipped && res.Level == Core.String() {
		r.Partial = true
	}
}

// sort puts the results into the order of the table.
func (r *Report) sort() {
	place := map[string]int{}
	for i, k := range Cases() {
		place[k.ID] = i
	}
	slices.SortStableFunc(r.Results, func(a, b Result) int { return place[a.ID] - place[b.ID] })
}

// TooVague reports whether so many cases were inconclusive that the run proves nothing.
func (r *Report) TooVague() bool {
	ran := r.Counts[Passed] + r.Counts[Failed] + r.Counts[Inconclusive]
	return r.Counts[Inconclusive]*inconclusiveShare > ran
}

// OK reports whether nothing failed and little was inconclusive. A partial report can be
// OK.
func (r *Report) OK() bool { return r.Err == "" && r.Counts[Failed] == 0 && !r.TooVague() }

// String is the report for people: a summary, and whatever did not pass.
func (r *Report) String() string {
	var b strings.Builder
	if r.Err != "" {
		return "conformance: " + r.Err + "\n"
	}
	fmt.Fprintf(&b, "%s: %d passed, %d failed, %d inconclusive, %d skipped, %d undeclared (ttl %v", r.Backend,
		r.Counts[Passed], r.Counts[Failed], r.Counts[Inconclusive], r.Counts[Skipped], r.Counts[Undeclared], r.TTL)
	if r.Full {
		b.WriteString(", full size")
	}
	if r.Virtual {
		b.WriteString(", virtual time")
	}
	if r.Repeated > 0 {
		fmt.Fprintf(&b, ", %d repeated", r.Repeated)
	}
	b.WriteString(")\n")
	if r.Partial {
		b.WriteString("partial: core cases were skipped\n")
	}
	if r.TooVague() {
		b.WriteString("too many inconclusive cases: run it on a quieter machine, or with a longer ttl\n")
	}
	for _, v := range []Verdict{Failed, Inconclusive, Skipped, Undeclared} {
		for _, res := range r.Results {
			if res.Verdict == v {
				fmt.Fprintf(&b, "%s\n", res)
			}
		}
	}
	return b.String()
}

// String is the result for people.
func (r Result) String() string {
	s := fmt.Sprintf("%-12s %s", r.Verdict, r.ID)
	switch r.Verdict {
	case Failed, Inconclusive:
		s += ": " + r.Rule
		if r.Cause != "" && r.Cause != ByRule {
			s += fmt.Sprintf("\n  (%s)", r.Cause)
		}
		s += "\n  " + strings.ReplaceAll(r.Detail, "\n", "\n  ")
	case Skipped, Undeclared:
		s += ": " + r.Detail
	}
	return s
}
