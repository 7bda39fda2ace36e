package conformance

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/fencelock/locker/conformance/history"
	"github.com/fencelock/locker/driver"
)

// RunEach runs cases one after the other in virtual time, each as a subtest. It tells
// before each one, what it says, and behind the end of its bubble, which a goroutine that
// was left behind turns into a panic. The results are for the caller to judge. ids nil:
// all.
func RunEach(t *testing.T, h Harness, ids []string, begin func(id string), says, end func(Result)) {
	s, err := newSuite(t.Context(), h, false)
	if err != nil {
		t.Fatal(err)
	}
	defer s.control.close()
	for _, k := range Cases() {
		if ids != nil && !slices.Contains(ids, k.ID) {
			continue
		}
		t.Run(k.ID, func(t *testing.T) {
			begin(k.ID)
			var r Result
			synctest.Test(t, func(*testing.T) {
				r = s.runCase(context.Background(), k)
				says(r)
			})
			end(r)
		})
	}
}

// RunOne runs a case that is not in the table, in the bubble that the caller is in, and
// returns its result and its history.
func RunOne(h Harness, info driver.Info, k Case) (Result, []history.Op) {
	s := &suite{h: h, info: info}
	var last *C
	run := k.Run
	k.Run = func(c *C) {
		last = c
		run(c)
	}
	r := s.runCase(context.Background(), k)
	return r, last.History.Ops()
}

// RunHard runs a case in the bubble that the caller is in, and returns why it failed and
// whether that would be evidence on a slow machine, too.
func RunHard(h Harness, k Case) (detail string, hard bool) {
	s, err := newSuite(context.Background(), h, false)
	if err != nil {
		return err.Error(), true
	}
	own := s.h.PerCase(s.h)
	ctx, cancel := context.WithTimeout(context.Background(), hangLimit*own.TTL)
	defer cancel()
	if f := newC(ctx, &own, nil, s.info, k, false).run(); f != nil {
		return string(f.cause) + ": " + f.detail, !f.soft
	}
	return "", false
}
