package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/locker/driver"
)

// SizeVariable in the environment chooses the size of Run: full (or soak) is the full one.
const SizeVariable = "LOCKER_TEST_SIZE"

// hangLimit is how many ttls a case may take before it is given up, beyond the time that
// its size says; a full one has more rounds to make.
const (
	hangLimit     = 60
	hangLimitFull = 1500
)

// suite is one run over the table.
type suite struct {
	h       Harness
	info    driver.Info
	full    bool
	control *control

	mu     sync.Mutex
	report *Report
}

// newSuite checks the harness and fills in what was left out.
func newSuite(ctx context.Context, h Harness, full bool) (*suite, error) {
	s := &suite{full: full}
	if (h.Driver == nil) == (h.Locker == nil) && h.PerCase == nil {
		return nil, errors.New("the harness must have exactly one of Driver and Locker")
	}
	if h.Virtual && h.PerCase == nil {
		return nil, errors.New("virtual time needs Harness.PerCase: one bubble must not touch what another made")
	}
	probe := h
	if h.PerCase != nil {
		probe = h.PerCase(h)
	}
	if probe.Driver != nil {
		d, err := probe.Driver(ctx)
		if err != nil {
			return nil, fmt.Errorf("make a client: %w", err)
		}
		s.info = d.Info()
		err = implements(d, s.info)
		_ = d.Close()
		if err != nil {
			return nil, err
		}
	} else {
		s.info.Name = "lock"
	}
	if h.TTL == 0 {
		h.TTL = max(defaultTTL, s.info.MinTTL)
	}
	if h.Slack == 0 {
		h.Slack = s.info.Slack
	}
	if h.Parallel == 0 {
		h.Parallel = defaultParallel
	}
	if h.Child == nil && s.info.Has(driver.FeatureProcesses) {
		h.Child = Self
	}
	s.h = h
	s.report = newReport(h, s.info, full)
	if !h.Virtual {
		ask := probe.Control
		if h.PerCase != nil {
			ask = nil
		}
		s.control = newControl(ctx, ask, h.TTL)
	}
	return s, nil
}

// Self is the command of a child that is this program again. It must call ServeIfChild.
func Self(context.Context) (*exec.Cmd, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return exec.Command(exe), nil
}

// Run runs every case as a subtest.
func Run(t *testing.T, h Harness) {
	size := os.Getenv(SizeVariable)
	s, err := newSuite(t.Context(), h, size == "full" || size == "soak")
	if err != nil {
		t.Fatalf("conformance: %v", err)
	}
	t.Cleanup(func() { // behind the parallel subtests
		s.control.close()
		s.report.sort()
		t.Log("\n" + s.report.String())
		if s.report.TooVague() {
			t.Error("too many cases were inconclusive")
		}
	})
	if h.Virtual {
		for _, k := range Cases() {
			t.Run(k.ID, func(t *testing.T) {
				t.Parallel()
				s.tell(t, s.inBubble(t, k))
			})
		}
		return
	}
	p := newPool(s.h.Parallel)
	for _, k := range Cases() {
		t.Run(k.ID, func(t *testing.T) {
			// In the pool before Parallel, so that -parallel does not decide how many wait at once.
			verdict := p.start(k.Load, func() Result { return s.runCase(context.Background(), k) })
			t.Parallel()
			s.tell(t, <-verdict)
		})
	}
	p.close()
}

// inBubble runs a case in virtual time.
func (s *suite) inBubble(t *testing.T, k Case) (r Result) {
	synctest.Test(t, func(*testing.T) { r = s.runCase(context.Background(), k) })
	return r
}

// tell is a result as a test sees it.
func (s *suite) tell(t *testing.T, r Result) {
	t.Helper()
	s.mu.Lock()
	s.report.add(r)
	s.mu.Unlock()
	switch r.Verdict {
	case Failed:
		t.Errorf("%s", r)
	case Passed:
		if r.Size != "" {
			t.Logf("size: %s", r.Size)
		}
	default:
		// Not t.Skip: a skip would have to be announced for each backend; the report says it.
		t.Logf("%s", r)
	}
}

// CheckOptions are the options of Check. The zero value runs everything at the size per
// push.
type CheckOptions struct {
	Full bool
	// Only, if set, picks the cases.
	Only func(Case) bool
	// Each, if set, is told each result as it comes, one at a time.
	Each func(Result)
}

// Check runs the cases and returns the report. It needs no testing.T, and no virtual time
// is possible.
func Check(ctx context.Context, h Harness, o CheckOptions) *Report {
	var s *suite
	err := errors.New("Check cannot run in virtual time")
	if !h.Virtual {
		s, err = newSuite(ctx, h, o.Full)
	}
	if err != nil {
		return &Report{Err: err.Error(), Counts: map[Verdict]int{}}
	}
	defer s.control.close()
	p := newPool(s.h.Parallel)
	var all sync.WaitGroup
	for _, k := range Cases() {
		if o.Only != nil && !o.Only(k) {
			continue
		}
		verdict := p.start(k.Load, func() Result { return s.runCase(ctx, k) })
		all.Go(func() {
			r := <-verdict
			s.mu.Lock()
			defer s.mu.Unlock()
			s.report.add(r)
			if o.Each != nil {
				o.Each(r)
			}
		})
	}
	p.close()
	all.Wait()
	s.report.sort()
	return s.report
}

// pool runs cases, a number of them at once, and then those that load the machine, one by
// one.
type pool struct {
	slots chan struct{}
	wait  sync.WaitGroup
	mu    sync.Mutex
	loads []func()
}

func newPool(n int) *pool { return &pool{slots: make(chan struct{}, n)} }

func (p *pool) start(load bool, f func() Result) <-chan Result {
	verdict := make(chan Result, 1)
	if load {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.loads = append(p.loads, func() { verdict <- f() })
		return verdict
	}
	p.wait.Go(func() {
		p.slots <- struct{}{}
		defer func() { <-p.slots }()
		verdict <- f()
	})
	return verdict
}

// close says that everything was started.
func (p *pool) close() {
	go func() {
		p.wait.Wait()
		for _, f := range p.loads {
			f()
		}
	}()
}

// runCase runs one case, twice if the first time was inconclusive.
func (s *suite) runCase(ctx context.Context, k Case) Result {
	r := Result{ID: k.ID, Rule: k.Rule, Level: k.Level.String(), Surface: k.Surface.String(), Size: k.size(s.full).String()}
	h := s.h
	if h.PerCase != nil {
		h = h.PerCase(h)
	}
	if k.Surface != OnAny && h.Driver == nil {
		r.Verdict, r.Detail = Undeclared, "it is no driver of this library"
		return r
	}
	for _, f := range k.Needs {
		if ok, gap := h.offers(f, s.info); !ok {
			r.Verdict, r.Detail = Undeclared, "not declared: "+string(f)
			if gap {
				r.Verdict, r.Detail = Skipped, "the harness does not offer "+string(f)
				if s.h.Allow != nil && k.Level == Core && !slices.Contains(s.h.Allow, k.ID) {
					r.Verdict, r.Cause = Failed, BySetup
				}
			}
			return r
		}
	}
	from := time.Now()
	defer func() { r.Took = time.Since(from) }()
	for {
		s.once(ctx, &h, k, &r)
		if r.Verdict != Inconclusive || r.Repeats == 1 {
			r.Took = time.Since(from)
			return r
		}
		r.Repeats++
	}
}

// once runs a case once.
func (s *suite) once(ctx context.Context, h *Harness, k Case, r *Result) {
	from := time.Now()
	limit := hangLimit * h.TTL
	if s.full {
		limit = hangLimitFull * h.TTL
	}
	limit += time.Duration(k.size(s.full).TTLs * float64(h.TTL))
	if slices.Contains(k.Needs, FeatureVirtual) {
		limit = time.Duration(1<<63 - 1) // a case of a day is one
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c := newC(ctx, h, s.control, s.info, k, s.full)
	done := make(chan *failure, 1)
	go func() { done <- c.run() }()
	var f *failure
	if h.Virtual {
		f = <-done
	} else {
		t := time.NewTimer(2 * limit)
		defer t.Stop()
		select {
		case f = <-done:
		case <-t.C:
			f = &failure{cause: ByHang, detail: "a call never returned, and ignored the end of its context"}
		}
	}
	switch {
	case f == nil:
		r.Verdict, r.Cause, r.Detail = Passed, "", ""
	case f.soft && s.control.wasSlow(from):
		r.Verdict, r.Cause, r.Detail = Inconclusive, f.cause, f.detail
	default:
		r.Verdict, r.Cause, r.Detail = Failed, f.cause, f.detail
	}
}
