package history

import (
	"cmp"
	"fmt"
	"slices"
)

// checkBeliefs looks for two who believed at one instant.
func checkBeliefs(ops []Op) *Violation {
	var beliefs []Op
	for _, op := range ops {
		if op.Kind == Belief {
			beliefs = append(beliefs, op)
		}
	}
	slices.SortStableFunc(beliefs, func(a, b Op) int { return cmp.Compare(a.Call, b.Call) })
	for i := 1; i < len(beliefs); i++ {
		a, b := beliefs[i-1], beliefs[i]
		if a.Token == b.Token && a.Client == b.Client { // one lease, sampled twice
			if a.Return > b.Return {
				beliefs[i].Return = a.Return
			}
			continue
		}
		if b.Call < a.Return {
			return &Violation{
				Sentence: fmt.Sprintf("%s (token %v) and %s (token %v) both believed to hold %q at %v", a.Client, a.Token, b.Client, b.Token, a.Key, round(b.Call)),
				Proof:    []Op{a, b},
			}
		}
	}
	return nil
}

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
