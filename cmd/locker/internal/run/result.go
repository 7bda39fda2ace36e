package run

import (
	"encoding/json"
	"os"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/cmd/locker/internal/job"
)

// Outcome is what became of a run, in one word.
type Outcome string

// The outcomes.
const (
	Ran         Outcome = "ran"         // the command ended by itself, under the lock
	Held        Outcome = "held"        // the key was held
	TimedOut    Outcome = "timeout"     // --wait elapsed
	Lost        Outcome = "lost"        // the lease was lost while the command ran
	MaxHold     Outcome = "max-hold"    // --max-hold elapsed while the command ran
	Interrupted Outcome = "interrupted" // a signal ended the wait for the key
	Failed      Outcome = "error"       // locker failed, or the command could not be started
)

// Result is what --result and --json tell. Durations are in milliseconds.
type Result struct {
	Outcome     Outcome      `json:"outcome"`
	Key         string       `json:"key"`
	Token       locker.Token `json:"token,omitempty"`
	Owner       string       `json:"owner,omitempty"`
	ExitCode    int          `json:"exit_code"`              // locker's
	ChildCode   *int         `json:"child_code,omitempty"`   // the command's, if it was started and has exited
	ChildSignal string       `json:"child_signal,omitempty"` // or what killed it
	WaitedMS    *float64     `json:"waited_ms,omitempty"`    // from the start of locker to the grant
	StartedMS   *float64     `json:"started_ms,omitempty"`   // from the start of locker to the command's exec
	HeldMS      *float64     `json:"held_ms,omitempty"`
	Released    bool         `json:"released"` // the key is known to be free again
	Error       string       `json:"error,omitempty"`
}

func (r *Result) child(s job.Status) {
	if s.Signal != 0 {
		r.ChildSignal = s.Signal.String()
		return
	}
	r.ChildCode = &s.Code
}

func milliseconds(d time.Duration) *float64 {
	ms := float64(d.Microseconds()) / 1000
	return &ms
}

// report is the result file. It is opened, and emptied, before anything else happens: a
// file that cannot be written is found out in time, and an empty one means that locker has
// not ended by itself. An inherited descriptor is written where it stands.
type report struct {
	f     *os.File
	whole bool // the file is the report's alone: it is emptied again before it is written
}

func openReport(name string) (*report, error) {
	if name == "" {
		return nil, nil
	}
	f, err := inherited(name)
	whole := f == nil
	if whole && err == nil {
		f, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	}
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		whole = false
	}
	return &report{f, whole}, nil
}

func (r *report) write(res *Result) error {
	if r == nil {
		return nil
	}
	b, err := json.Marshal(res)
	if err != nil {
		return err
	}
	if r.whole { // another run may have written there meanwhile
		if err := r.f.Truncate(0); err != nil {
			return err
		}
	}
	if _, err = r.f.Write(append(b, '\n')); err != nil {
		return err
	}
	return r.f.Close()
}
