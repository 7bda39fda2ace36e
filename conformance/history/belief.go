package history

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fencelock/locker/driver"
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

// believe puts the beliefs to the grants of their tokens, so that no grant with a greater
// token fits in front of their ends. A belief counts from its Call, where the holder was
// told, to its Return, where it was sure for the last time. One whose token nobody was seen
// to be granted, because its process or its library is not recorded, is a grant itself.
// A broken holder believes until it hears of the break.
func believe(ops []Op, order []*tenure) ([]*tenure, *Violation) {
	byToken := map[driver.Token]*tenure{}
	for _, t := range order {
		if t.token != 0 && byToken[t.token] == nil {
			byToken[t.token] = t
		}
	}
	for _, op := range ops {
		if op.Kind != Belief || op.Token == 0 {
			continue
		}
		t := byToken[op.Token]
		if t == nil {
			t = &tenure{token: op.Token, ret: op.Call, cut: forever, ended: forever, grant: op}
			byToken[op.Token] = t
			order = append(order, t)
		}
		if t.grant.Client != op.Client {
			return nil, &Violation{
				Sentence: fmt.Sprintf("%s believed to hold %q with token %v, which is %s's", op.Client, op.Key, op.Token, t.grant.Client),
				Proof:    []Op{t.grant, op},
			}
		}
		if t.grant.Kind == Belief && op.Call < t.ret {
			t.ret, t.grant = op.Call, op
		}
		if op.Return > op.Call && op.Return > t.believed { // it has asked, and was sure
			t.believed, t.belief = op.Return, op
		}
	}
	for _, op := range ops {
		if t := byToken[op.Token]; t != nil && op.breaksNow() {
			t.believed = 0
		}
	}
	return order, nil
}

// breaksNow reports whether the operation may have ended a grant before its deadline.
func (o Op) breaksNow() bool {
	return o.Kind == Break && o.Until == 0 && o.Outcome != Failed && o.Outcome != Lost && o.Outcome != Refused
}
