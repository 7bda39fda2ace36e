package main

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
)

// readList reads a list of tests that may be skipped: import path, test name and reason on each line, # for comments.
func readList(r io.Reader) ([]test, error) {
	var list []test
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		f := strings.Fields(lines.Text())
		switch {
		case len(f) == 0 || strings.HasPrefix(f[0], "#"):
		case len(f) < 3:
			return nil, fmt.Errorf("line %d: want import path, test name and reason", n)
		default:
			list = append(list, test{f[0], f[1]})
		}
	}
	return list, lines.Err()
}

// compare returns one line for each difference.
func compare(skipped, allowed []test) []string {
	var diffs []string
	for _, t := range skipped {
		if !slices.Contains(allowed, t) {
			diffs = append(diffs, fmt.Sprintf("skipped, but not in the list: %s", t))
		}
	}
	for _, t := range allowed {
		if !slices.Contains(skipped, t) {
			diffs = append(diffs, fmt.Sprintf("in the list, but not skipped: %s", t))
		}
	}
	return diffs
}
