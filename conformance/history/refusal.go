package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/fencelock/locker/driver"
)

// refusals looks for a refusal at a time when nobody else can have had the key.
func refusals(ops []Op, order []*tenure, o Options) *Violation {
	slices.SortStableFunc(order, func(a, b *tenure) int { return cmp.Compare(a.from, b.from) })
	// The two longest lasting of different attempts, of all that began by then.
	type top struct{ first, second *tenure }
	tops := make([]top, len(order))
	var now top
	for i, t := range order {
		switch {
		case now.first == nil || t.lasts(o) > now.first.lasts(o):
			now = top{t, now.first}
		case now.second == nil || t.lasts(o) > now.second.lasts(o):
			now.second = t
		}
		tops[i] = now
	}
	for _, op := range ops {
		if op.Kind != Acquire || op.Outcome != Refused && op.Outcome != Queued {
			continue
		}
		n, _ := slices.BinarySearchFunc(order, op.Return, func(t *tenure, at time.Duration) int { return cmp.Compare(t.from, at) })
		var other *tenure
		if n > 0 {
			other = tops[n-1].first
			if other.attempt == op.Attempt {
				other = tops[n-1].second
			}
		}
		if other == nil || other.lasts(o) < op.Call {
			return &Violation{
				Sentence: fmt.Sprintf("%s was refused %q at %v, when nobody else can have held it", op.Client, op.Key, round(op.Call)),
				Proof:    []Op{op},
			}
		}
	}
	return nil
}

// lasts is the latest moment at which the attempt may have kept others out.
func (t *tenure) lasts(o Options) time.Duration {
	d := t.ttl
	if t.queued {
		d += driver.Horizon(t.ttl) // the place lives, and is granted the key at its very end
	}
	return min(t.last+d+o.Slack, t.ended) + o.Late
}

// replaced notes of each grant that it was over when the next one was told.
func replaced(granted []*tenure) {
	next := forever
	for _, t := range slices.Backward(granted) {
		if !t.queued && !t.open { // otherwise it may have had more than this grant
			t.ended = min(t.ended, next)
		}
		next = min(next, t.ret)
	}
}
