package main

import (
	"slices"
	"strings"
	"testing"
)

// mixed is a log in which one test passes, one fails, one is skipped and one never ends.
const mixed = `
{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestGood"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"good says\n"}
{"Action":"pass","Package":"p","Test":"TestGood"}
{"Action":"run","Package":"p","Test":"TestBad"}
{"Action":"output","Package":"p","Test":"TestBad","Output":"bad says\n"}
{"Action":"fail","Package":"p","Test":"TestBad"}
{"Action":"run","Package":"p","Test":"TestSkip"}
{"Action":"skip","Package":"p","Test":"TestSkip"}
{"Action":"run","Package":"p","Test":"TestHang"}
{"Action":"output","Package":"p","Test":"TestHang","Output":"hang says\n"}
{"Action":"output","Package":"p","Output":"exit status 2\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"fail","Package":"p"}
{"Action":"start","Package":"a"}
{"Action":"output","Package":"a","Output":"ok  \ta\t0.1s\n"}
{"Action":"pass","Package":"a"}
`

const green = `
{"Action":"run","Package":"p","Test":"TestGood"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"good says\n"}
{"Action":"pass","Package":"p","Test":"TestGood"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"pass","Package":"p"}
`

// racing is a log whose test passed although a process that it started had a race.
const racing = `
{"Action":"run","Package":"p","Test":"TestGood"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"WARNING: DATA RACE\n"}
{"Action":"pass","Package":"p","Test":"TestGood"}
{"Action":"run","Package":"p","Test":"TestOther"}
{"Action":"pass","Package":"p","Test":"TestOther"}
`

const noBuild = `
{"ImportPath":"p","Action":"build-output","Output":"p.go:1:1: expected package\n"}
{"ImportPath":"p","Action":"build-fail"}
{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}
{"Action":"fail","Package":"p","FailedBuild":"p"}
`

func TestSummary(t *testing.T) {
	for _, c := range []struct {
		name, log, want string
		ok              bool
	}{
		{"green", green, "ok  \tp\t0.1s\n1 passed, 0 failed, 0 skipped\n", true},
		{"mixed", mixed, "=== p TestBad\nbad says\n=== p TestHang\nhang says\n=== p \nexit status 2\n" +
			"ok  \ta\t0.1s\nFAIL\tp\t0.1s\n1 passed, 1 failed, 1 skipped\n", false},
		{"a race in a child", racing, "=== p TestGood\nWARNING: DATA RACE\n1 passed, 1 failed, 0 skipped\n", false},
		{"does not build", noBuild, "p.go:1:1: expected package\nFAIL\tp [build failed]\n" +
			"0 passed, 0 failed, 0 skipped\n", false},
		{"empty", "", "0 passed, 0 failed, 0 skipped\n", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := read(strings.NewReader(strings.TrimSpace(c.log)))
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			l.summary(&b)
			if got := b.String(); got != c.want {
				t.Errorf("summary: got %q, want %q", got, c.want)
			}
			if got := l.ok(); got != c.ok {
				t.Errorf("ok: got %v, want %v", got, c.ok)
			}
		})
	}
}

func TestReadRefusesOtherLogs(t *testing.T) {
	if _, err := read(strings.NewReader("ok  \tp\t0.1s\n")); err == nil {
		t.Error("a log without -json: got no error")
	}
}

func TestCompareSkips(t *testing.T) {
	l, err := read(strings.NewReader(strings.TrimSpace(mixed)))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, list string
		want       []string
	}{
		{"listed", "# comment\n\np TestSkip it needs a cluster\n", nil},
		{"not listed", "", []string{"skipped, but not in the list: p TestSkip"}},
		{"no longer skipped", "p TestSkip why\np TestGood why\n", []string{"in the list, but not skipped: p TestGood"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			allowed, err := readList(strings.NewReader(c.list))
			if err != nil {
				t.Fatal(err)
			}
			if got := compare(l.skipped, allowed); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestListNeedsReasons(t *testing.T) {
	if _, err := readList(strings.NewReader("p TestSkip\n")); err == nil {
		t.Error("a row without a reason: got no error")
	}
}
