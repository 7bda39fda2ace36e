package history

import (
	"cmp"
	"fmt"
	"slices"
)

// checkFence: a fence is a register that only rises.
func checkFence(ops []Op) *Violation {
	byReturn := slices.Clone(ops)
	slices.SortStableFunc(byReturn, func(a, b Op) int { return cmp.Compare(a.Return, b.Return) })
	byCall := slices.Clone(ops)
	slices.SortStableFunc(byCall, func(a, b Op) int { return cmp.Compare(a.Call, b.Call) })
	var high *Op // the greatest token that was accepted before
	i := 0
	for _, op := range byCall {
		for ; i < len(byReturn) && byReturn[i].Return < op.Call; i++ {
			if r := &byReturn[i]; r.Outcome == OK && (high == nil || r.Token > high.Token) {
				high = r
			}
		}
		if op.Outcome == OK && high != nil && op.Token < high.Token {
			return &Violation{
				Sentence: fmt.Sprintf("the fence of %q let %s %s with token %v after it had accepted token %v", op.Key, op.Client, op.Kind, op.Token, high.Token),
				Proof:    []Op{*high, op},
			}
		}
	}
	var most *Op // the greatest token that may have been seen before
	i = 0
	for _, op := range byReturn {
		for ; i < len(byCall) && byCall[i].Call < op.Return; i++ {
			if r := &byCall[i]; r.Outcome != Failed && r.Outcome != Refused && (most == nil || r.Token > most.Token) {
				most = r
			}
		}
		if op.Outcome == Refused && (most == nil || most.Token <= op.Token) {
			return &Violation{
				Sentence: fmt.Sprintf("the fence of %q refused token %v of %s although no greater one was ever shown to it", op.Key, op.Token, op.Client),
				Proof:    []Op{op},
			}
		}
	}
	return nil
}
