package history

import (
	"fmt"
	"time"

	"github.com/fencelock/locker/driver"
)

// falseLoss looks for a holder that was told lost while its grant was in force: as long as
// the backend had promised. Where a lapsed grant stands until somebody takes over, its undo
// finds it, long after a renewal that was answered too late.
func falseLoss(ops []Op, tenures map[driver.Attempt]*tenure) *Violation {
	broken := map[driver.Token]time.Duration{}
	for _, op := range ops {
		if op.Kind == Break && op.Outcome != Failed {
			if at, ok := broken[op.Token]; !ok || op.Call < at {
				broken[op.Token] = op.Call
			}
		}
	}
	for _, op := range ops {
		if op.Outcome != Lost || op.Kind != Renew && op.Kind != Release {
			continue
		}
		t := tenures[op.Attempt]
		if t == nil || t.token == 0 || op.Call < t.ret {
			continue
		}
		promised := min(t.until, t.cut)
		if op.Return >= promised {
			continue
		}
		if at, ok := broken[t.token]; ok && at < op.Return {
			continue
		}
		v := &Violation{
			Sentence: fmt.Sprintf("%s was told that %q is lost, while its token %v was in force until %v at least", op.Client, op.Key, t.token, round(promised)),
			Proof:    []Op{t.grant, op},
		}
		if t.use.Kind != "" && t.use != t.grant {
			v.Proof = append(v.Proof, t.use)
		}
		return v
	}
	return nil
}
