package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// event is what `go test -json` writes, one a line (go doc test2json).
type event struct {
	Action     string
	Package    string
	Test       string
	Output     string
	ImportPath string // of build-output and build-fail
}

// test names one test, or with an empty name the package itself.
type test struct{ pkg, name string }

func (t test) String() string { return t.pkg + " " + t.name }

// log is a whole run.
type log struct {
	closing []string        // the closing lines of packages: ok, FAIL, ?
	build   strings.Builder // compiler output
	output  map[test]*strings.Builder
	started []test // that have not ended, or have failed; in order
	failed  []test
	skipped []test
	passed  int
	broken  bool // a package failed, or did not build
}

func read(r io.Reader) (*log, error) {
	l := &log{output: map[test]*strings.Builder{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 64<<20) // a test may print a whole history on one line
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("not a go test -json log: %q", lines.Text())
		}
		l.add(e)
	}
	return l, lines.Err()
}

func (l *log) add(e event) {
	t := test{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		l.build.WriteString(e.Output)
	case "build-fail":
		l.broken = true
	case "output":
		l.print(t, e.Output)
	case "run":
		l.started = append(l.started, t)
	case "pass", "skip", "fail":
		l.end(t, e.Action)
	}
}

func (l *log) print(t test, s string) {
	if t.name == "" && isClosing(s) {
		l.closing = append(l.closing, s)
		return
	}
	if l.output[t] == nil {
		l.output[t] = &strings.Builder{}
	}
	l.output[t].WriteString(s)
}

func isClosing(s string) bool {
	return strings.HasPrefix(s, "ok  \t") || strings.HasPrefix(s, "FAIL\t") || strings.HasPrefix(s, "?   \t")
}

// raceReport is how the race detector begins. The report of a process that a test started,
// and then killed, fails nothing by itself.
const raceReport = "WARNING: DATA RACE"

func (l *log) end(t test, action string) {
	if out := l.output[t]; action == "fail" || out != nil && strings.Contains(out.String(), raceReport) {
		l.broken = true
		if t.name != "" {
			l.failed = append(l.failed, t)
		}
		return // its output is kept, and it stays among the started ones
	}
	delete(l.output, t)
	l.started = slices.DeleteFunc(l.started, func(s test) bool { return s == t })
	switch {
	case t.name == "": // a package that was skipped has no tests
	case action == "skip":
		l.skipped = append(l.skipped, t)
	default:
		l.passed++
	}
}

// ok also asks for one test that passed: a run of nothing proves nothing.
func (l *log) ok() bool { return !l.broken && l.passed > 0 }

func (l *log) summary(w io.Writer) {
	if l.broken {
		l.failures(w)
	}
	slices.SortFunc(l.closing, func(a, b string) int { return strings.Compare(a[4:], b[4:]) })
	for _, s := range l.closing {
		fmt.Fprint(w, s)
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", l.passed, len(l.failed), len(l.skipped))
}

// failures prints what the compiler said, then what every failed test printed, and every test that was still running
// when its package failed (a panic, a timeout), and at last what belongs to no test.
func (l *log) failures(w io.Writer) {
	fmt.Fprint(w, l.build.String())
	for _, t := range l.started {
		l.dump(w, t)
		delete(l.output, t)
	}
	byName := func(a, b test) int { return strings.Compare(a.String(), b.String()) }
	for _, t := range slices.SortedFunc(maps.Keys(l.output), byName) {
		if t.name == "" {
			l.dump(w, t)
		}
	}
}

func (l *log) dump(w io.Writer, t test) {
	if out := l.output[t]; out != nil {
		fmt.Fprintf(w, "=== %s\n%s", t, out)
	}
}
