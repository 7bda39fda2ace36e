package locker

import (
	"fmt"
	"testing"
)

func TestR10MarksAreBounded(t *testing.T) {
	var m marks
	const n = 5 * keptMarks / 2
	for i := range n {
		m.put(fmt.Sprint(i), mark{token: Token(i + 1)})
	}
	if kept := len(m.young) + len(m.old); kept < keptMarks || kept > 2*keptMarks {
		t.Errorf("%d marks kept, want %d to twice as many", kept, keptMarks)
	}
	for _, i := range []int{n - 1, n - keptMarks} {
		if got := m.take(fmt.Sprint(i)); got.token != Token(i+1) {
			t.Errorf("the mark of key %d of %d: got %v, want it kept", i, n, got.token)
		}
	}
	if got := m.take(fmt.Sprint(n - 1)); got != (mark{}) {
		t.Errorf("taken twice: %v", got)
	}
}
