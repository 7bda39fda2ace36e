package job

import (
	"os"
	"slices"
	"testing"
)

func TestParseStat(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]proc{
		"7 (sh) S 1 5 5 0 -1":                {pid: 7, parent: 1, group: 5, name: "sh"},
		"7 (a (b) c) d) R 12 34 5 0 -1":      {pid: 7, parent: 12, group: 34, name: "a (b) c) d"},
		"7 () S 1 5 5":                       {pid: 7, parent: 1, group: 5},
		"7 (stopped) T 1 5 5 0 -1":           {pid: 7, parent: 1, group: 5, name: "stopped", stopped: true},
		"7 (traced) t 1 5 5 0 -1":            {pid: 7, parent: 1, group: 5, name: "traced"},
		"7 (dead) Z 1 5 5 0 -1":              {},
		"7 (sh) S one 5":                     {},
		"7 (sh) S":                           {},
		"7 sh S 1 5":                         {},
		"":                                   {},
		"7 )( S 1 5 5":                       {},
		"7 (line\nbreak) S 1 5 5 0 -1 4 5 6": {pid: 7, parent: 1, group: 5, name: "line\nbreak"},
	} {
		got, ok := parseStat(7, line)
		if got != want || ok != (want != proc{}) {
			t.Errorf("%q: got %+v, %v, want %+v", line, got, ok, want)
		}
	}
}

func TestDescendants(t *testing.T) {
	t.Parallel()
	isBelow := func(without map[int]bool) bool {
		return slices.ContainsFunc(descendants(os.Getppid(), without), func(p proc) bool { return p.pid == os.Getpid() })
	}
	if !isBelow(nil) {
		t.Error("this process is not below its parent")
	}
	if isBelow(map[int]bool{os.Getpid(): true}) {
		t.Error("what was left out is there")
	}
}
