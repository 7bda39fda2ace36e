package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/locker/driver"
)

// Options say what the backend and the network of a history may do.
type Options struct {
	// Slack is how much longer than its ttl a grant may live, and Late how long after
	// its call a request may still arrive. Both only make more refusals explicable.
	Slack, Late time.Duration
	// Refusals asks that every refusal has somebody who may have held the key.
	Refusals bool
	// MayForget: the backend may have lost all its memory on the way. Then only beliefs and
	// fences are checked.
	MayForget bool
}

// rateError is ρ: a promise of d is kept for d − d/rateError on another clock.
const rateError = 100

// Violation is why a history is not one of a correct lock.
type Violation struct { //nolint:errname // the field's own word
	// Sentence says it in one sentence.
	Sentence string
	// Proof is the operations that cannot all be right.
	Proof []Op
}

// Error is the sentence and the operations, one per line.
func (v *Violation) Error() string {
	var b strings.Builder
	b.WriteString(v.Sentence)
	for _, o := range v.Proof {
		b.WriteString("\n\t" + o.String())
	}
	return b.String()
}

// Check returns nil if a correct lock could have answered as recorded, and otherwise the
// first violation found, a *Violation.
func Check(ops []Op, o Options) error {
	keys := map[string][]Op{}
	fences := map[string][]Op{}
	var order []string
	for _, op := range ops {
		into := keys
		if op.Kind == Write || op.Kind == Raise {
			into = fences
		}
		if keys[op.Key] == nil && fences[op.Key] == nil {
			order = append(order, op.Key)
		}
		into[op.Key] = append(into[op.Key], op)
	}
	for _, k := range order {
		v := checkBeliefs(keys[k])
		if v == nil && !o.MayForget {
			v = checkKey(keys[k], o)
		}
		if v == nil {
			v = checkFence(fences[k])
		}
		if v != nil {
			return v
		}
	}
	return nil
}

// tenure is one attempt's time at the key.
type tenure struct {
	attempt driver.Attempt
	token   driver.Token
	call    time.Duration // its first send
	from    time.Duration // when it may have begun to keep others out
	ret     time.Duration // the first answer that granted
	until   time.Duration // what was promised at last, rates considered
	used    time.Duration // the call of the last operation that only a holder succeeds with
	cut     time.Duration // the first call that may have given it back; never: forever
	asked   time.Duration // when an acquire of this attempt may have been sent for the last time
	ended   time.Duration // the first definite end behind that
	last    time.Duration // when anything of this attempt may have been sent for the last time
	ttl     time.Duration
	queued  bool
	open    bool // the outcome of some acquire is unknown
	grant   Op   // that ret is of
	use     Op   // that used, or until, is of

	believed time.Duration // when its holder was sure for the last time
	belief   Op            // that believed is of
}

const forever = time.Duration(1<<63 - 1)

// end is the earliest end that explains all answers.
func (t *tenure) end() time.Duration { return max(t.used, min(t.until, t.cut)) }

// over notes an answer that says that the attempt has nothing. An acquire that was sent beside
// it may have been applied behind it.
func (t *tenure) over(op Op) {
	if op.Call > t.asked {
		t.ended = min(t.ended, op.Return)
	}
}

func checkKey(ops []Op, o Options) *Violation {
	if o.Late > 0 {
		ops = apart(ops)
	}
	tenures, order, v := collect(ops, o)
	if v != nil {
		return v
	}
	if v := overIsOver(ops, tenures, o); v != nil {
		return v
	}
	granted, v := believe(ops, slices.Clone(order))
	if v != nil {
		return v
	}
	granted = slices.DeleteFunc(granted, func(t *tenure) bool { return t.token == 0 })
	slices.SortStableFunc(granted, func(a, b *tenure) int { return cmp.Compare(a.token, b.token) })
	for _, t := range order {
		t.from = t.call
	}
	if v := inOrder(granted); v != nil {
		return v
	}
	if v := falseLoss(ops, tenures); v != nil {
		return v
	}
	if o.Refusals {
		replaced(granted)
		return refusals(ops, order, o)
	}
	return nil
}

// apart takes the grants of one attempt apart. Where requests arrive late there may be
// two: a send that arrives when the first grant is over makes another, with its own token.
func apart(ops []Op) []Op {
	type id struct {
		attempt driver.Attempt
		token   driver.Token
	}
	first := map[driver.Attempt]driver.Token{}
	calls := map[driver.Attempt]time.Duration{}
	granted := map[id]driver.Attempt{} // as what the grant goes on; zero: as itself
	for _, op := range ops {
		if op.Kind != Acquire {
			continue
		}
		if call, ok := calls[op.Attempt]; !ok || op.Call < call {
			calls[op.Attempt] = op.Call
		}
		if op.Outcome != OK {
			continue
		}
		if first[op.Attempt] == 0 {
			first[op.Attempt] = op.Token
		}
		if t := op.Token; t != first[op.Attempt] {
			other := op.Attempt
			for i := range 8 {
				other[i] ^= byte(t>>(8*i)) ^ 0xff
			}
			granted[id{op.Attempt, t}] = other
		}
	}
	if len(granted) == 0 {
		return ops
	}
	ops = slices.Clone(ops)
	for i := range ops {
		op := &ops[i]
		other, ok := granted[id{op.Attempt, op.Token}]
		if !ok {
			continue
		}
		if op.Kind == Acquire {
			op.Call = calls[op.Attempt]
		}
		op.Attempt = other
	}
	return ops
}

// collect gathers what is known of each attempt.
func collect(ops []Op, o Options) (map[driver.Attempt]*tenure, []*tenure, *Violation) {
	tenures := map[driver.Attempt]*tenure{}
	var order []*tenure
	for _, op := range ops {
		if op.Kind != Acquire || op.Outcome == Failed || op.Outcome == Refused || op.Outcome == Lost {
			continue // nothing came of it
		}
		t := tenures[op.Attempt]
		if t == nil {
			t = &tenure{attempt: op.Attempt, call: op.Call, cut: forever, ended: forever, ttl: op.TTL}
			tenures[op.Attempt] = t
			order = append(order, t)
		}
		t.call = min(t.call, op.Call)
		t.last = max(t.last, op.Return)
		t.asked = t.last
		t.ttl = max(t.ttl, op.TTL)
		switch op.Outcome {
		case OK:
			if t.token != 0 && t.token != op.Token {
				return nil, nil, &Violation{
					Sentence: fmt.Sprintf("one attempt of %s for %q was granted two tokens, %v and %v", op.Client, op.Key, t.token, op.Token),
					Proof:    []Op{t.grant, op},
				}
			}
			if t.token == 0 || op.Return < t.ret {
				t.token, t.ret, t.grant = op.Token, op.Return, op
			}
			t.promise(op)
		case Queued:
			t.queued = true
		case Unknown:
			t.open = true
		}
	}
	for _, op := range ops {
		t := tenures[op.Attempt]
		if op.breaksNow() {
			for _, t := range order {
				if t.token == op.Token {
					t.cut = min(t.cut, op.Call)
				}
			}
		}
		if t == nil {
			continue
		}
		switch {
		case op.Kind == Renew && op.Outcome == OK:
			if op.Token != t.token && t.token != 0 {
				return nil, nil, &Violation{
					Sentence: fmt.Sprintf("a renewal of %s changed the token of %q from %v to %v", op.Client, op.Key, t.token, op.Token),
					Proof:    []Op{t.grant, op},
				}
			}
			t.last = max(t.last, op.Return)
			t.promise(op)
			if op.Call > t.used {
				t.used, t.use = op.Call, op
			}
		case op.Kind == Renew && op.Outcome == Unknown:
			t.last = max(t.last, op.Return)
		case (op.Kind == Renew || op.Kind == Release) && op.Outcome == Lost:
			t.over(op)
		case op.Kind == Release && (op.Outcome == OK || op.Outcome == Unknown):
			t.cut = min(t.cut, op.Call)
			if op.Outcome == OK {
				t.over(op)
				// An acquire that arrives late makes another place, which a release ends as well.
				if ghost := t.open || o.Late > 0; t.token != 0 && op.Call > t.used && !ghost {
					t.used, t.use = op.Call, op
				}
			}
		}
	}
	return tenures, order, nil
}

// overIsOver looks for an attempt that goes on although it was told that it is over, or
// that was never told that it had begun. Only definite answers count.
func overIsOver(ops []Op, tenures map[driver.Attempt]*tenure, o Options) *Violation {
	released := map[driver.Attempt]Op{} // what ended the grant that was known when it was sent
	for _, op := range ops {
		t := tenures[op.Attempt]
		if op.Kind != Release || op.Outcome != OK || t == nil || t.token == 0 || op.Call <= t.ret {
			continue
		}
		if first, ok := released[op.Attempt]; !ok || op.Return < first.Return {
			released[op.Attempt] = op
		}
	}
	for _, op := range ops {
		if op.Outcome != OK || op.Kind != Acquire && op.Kind != Renew && op.Kind != Release {
			continue
		}
		t := tenures[op.Attempt]
		if op.Kind == Renew && (t == nil || t.token == 0 && !t.open && !t.queued) {
			return &Violation{
				Sentence: fmt.Sprintf("a renewal of %q succeeded for an attempt of %s that was never granted it", op.Key, op.Client),
				Proof:    []Op{op},
			}
		}
		end, ok := released[op.Attempt]
		if !ok || op.Call <= end.Return {
			continue
		}
		what := "renewed"
		switch op.Kind {
		case Acquire:
			what = "granted again"
		case Release:
			if t.open || t.queued || o.Late > 0 { // it may have ended another place of the attempt
				continue
			}
			what = "released again"
		}
		return &Violation{
			Sentence: fmt.Sprintf("token %v of %q was %s for %s behind its release at %v", t.token, op.Key, what, op.Client, round(end.Return)),
			Proof:    []Op{t.grant, end, op},
		}
	}
	return nil
}

// promise notes how long the backend said that it keeps the grant.
func (t *tenure) promise(op Op) {
	if until := op.Until - (op.Until-op.Call)/rateError; until > t.until {
		t.until = until
		if t.use.Kind == "" {
			t.use = op
		}
	}
}

// inOrder goes through the grants by their tokens: each must fit behind the one before.
func inOrder(granted []*tenure) *Violation {
	var front *tenure // whose end is the latest so far
	var end time.Duration
	for i, t := range granted {
		if i > 0 && granted[i-1].token == t.token {
			return &Violation{
				Sentence: fmt.Sprintf("token %v of %q was granted twice, to %s and to %s", t.token, t.grant.Key, granted[i-1].grant.Client, t.grant.Client),
				Proof:    []Op{granted[i-1].grant, t.grant},
			}
		}
		if front != nil && end > t.ret {
			return overlap(front, t)
		}
		start := max(t.call, end)
		if !t.queued && !t.open { // otherwise it may have had more than this grant
			t.from = start
		}
		if e := max(start, t.end(), t.believed); front == nil || e > end {
			front, end = t, e
		}
	}
	return nil
}

// overlap explains why the two grants cannot have followed each other.
func overlap(a, b *tenure) *Violation {
	ga, gb := a.grant, b.grant
	if a.call > b.ret {
		return &Violation{
			Sentence: fmt.Sprintf("%s was granted %q with token %v, which is not greater than token %v that %s had got before it asked",
				ga.Client, ga.Key, a.token, b.token, gb.Client),
			Proof: []Op{gb, ga},
		}
	}
	v := &Violation{
		Sentence: fmt.Sprintf("%s was granted %q with token %v at %v at the latest, while token %v of %s was in force until %v at least",
			gb.Client, gb.Key, b.token, round(b.ret), a.token, ga.Client, round(a.end())),
		Proof: []Op{ga, gb},
	}
	switch {
	case a.believed > a.end():
		v.Sentence = fmt.Sprintf("%s was granted %q with token %v at %v at the latest, while %s believed to hold it with token %v until %v at least",
			gb.Client, gb.Key, b.token, round(b.ret), ga.Client, a.token, round(a.believed))
		v.Proof = []Op{ga, gb, a.belief}
	case a.use.Kind != "" && a.use != ga:
		v.Proof = []Op{ga, gb, a.use}
	}
	return v
}
