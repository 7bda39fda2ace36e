package job

import (
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
)

func TestParseStat(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]proc{
		"7 (sh) S 1 5 5 0 -1":           {pid: 7, parent: 1, group: 5, name: "sh"},
		"7 (a (b) c) d) R 12 34 5 0 -1": {pid: 7, parent: 12, group: 34, name: "a (b) c) d"},
		"7 () S 1 5 5":                  {pid: 7, parent: 1, group: 5},
		"7 (stopped) T 1 5 5 0 -1":      {pid: 7, parent: 1, group: 5, name: "stopped", stopped: true},
		"7 (traced) t 1 5 5 0 -1":       {pid: 7, parent: 1, group: 5, name: "traced"},
		"7 (dead) Z 1 5 5 0 -1":         {},
		"7 (sh) S one 5":                {},
		"7 (sh) S":                      {},
		"7 sh S 1 5":                    {},
		"":                              {},
		"7 )( S 1 5 5":                  {},
		"7 (x) Z 1 5 5 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0": {pid: 7, parent: 1, group: 5, name: "x"},
		"7 (x) Z 1 5 5 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0": {},
		"7 (line\nbreak) S 1 5 5 0 -1 4 5 6":            {pid: 7, parent: 1, group: 5, name: "line\nbreak"},
	} {
		got, ok := parseStat(7, line)
		if got != want || ok != (want != proc{}) {
			t.Errorf("%q: got %+v, %v, want %+v", line, got, ok, want)
		}
	}
}

func TestDescendants(t *testing.T) {
	t.Parallel()
	child := func(own bool) int {
		c := exec.Command("sleep", "60")
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: own}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
		return c.Process.Pid
	}
	isBelow := func(pid int, without map[int]bool) bool {
		return slices.ContainsFunc(descendants(os.Getpid(), without), func(p proc) bool { return p.pid == pid })
	}
	job, left := child(true), child(false)
	if !isBelow(job, nil) {
		t.Error("a child in a group of its own is not below its parent")
	}
	if isBelow(job, map[int]bool{job: true}) {
		t.Error("what was left out is there")
	}
	if isBelow(left, nil) {
		t.Error("what is in this process's own group is taken for a part of the job")
	}
}
