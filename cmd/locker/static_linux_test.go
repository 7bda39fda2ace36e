package main_test

import (
	"debug/elf"
	"testing"
)

// Built without cgo the command is one file that runs on any Linux, in an empty container
// too.
func TestStatic(t *testing.T) {
	t.Parallel()
	path := binary
	if raceEnabled {
		t.Log("the race detector needs cgo: not the binary that users get")
		return
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	libs, err := f.ImportedLibraries()
	if err != nil || len(libs) > 0 {
		t.Errorf("needs %v (%v)", libs, err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("needs an interpreter")
		}
	}
}
