// Command testlog reads a log of `go test -json` and prints what a person wants of it: the closing line of every
// package, the output of the tests that failed, and the counts. It exits with 1 if a test failed or none ran.
//
//	testlog LOG
//	testlog -skips LIST LOG
//
// The second form compares the skipped tests with a list instead, and fails on any difference.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
)

func main() {
	skips := flag.String("skips", "", "compare the skipped tests with this `list`")
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	ok, err := run(flag.Arg(0), *skips)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testlog:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

func run(log, skips string) (ok bool, err error) {
	f, err := os.Open(log)
	if err != nil {
		return false, err
	}
	defer f.Close()
	l, err := read(f)
	if err != nil {
		return false, fmt.Errorf("%s: %w", log, err)
	}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	if skips == "" {
		l.summary(out)
		return l.ok(), nil
	}

	f, err = os.Open(skips)
	if err != nil {
		return false, err
	}
	defer f.Close()
	allowed, err := readList(f)
	if err != nil {
		return false, fmt.Errorf("%s: %w", skips, err)
	}
	diffs := compare(l.skipped, allowed)
	for _, d := range diffs {
		fmt.Fprintln(out, d)
	}
	fmt.Fprintf(out, "%d tests skipped, %d allowed\n", len(l.skipped), len(allowed))
	return len(diffs) == 0, nil
}
