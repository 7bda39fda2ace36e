package run

import (
	"testing"
	"time"
)

// consul lock -try 2h gives up after 20 minutes.
func TestWaitIsAsLongAsAsked(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{time.Millisecond, 2 * time.Hour, 30 * 24 * time.Hour} {
		begun := time.Now()
		ctx, cancel := (&Config{Wait: wait}).bound(t.Context())
		ended := time.Now()
		at, ok := ctx.Deadline()
		cancel()
		if !ok || at.Before(begun.Add(wait)) || at.After(ended.Add(wait)) {
			t.Errorf("%v: the wait ends %v after its start", wait, at.Sub(begun))
		}
	}
	ctx, cancel := (&Config{Wait: -1}).bound(t.Context())
	defer cancel()
	if at, ok := ctx.Deadline(); ok {
		t.Errorf("for ever ends after %v", time.Until(at))
	}
}
