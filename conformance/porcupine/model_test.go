package porcupine_test

import (
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/fencelock/locker/conformance/history"
	"github.com/fencelock/locker/driver"
)

// state is a lock as the model knows it.
type state struct {
	holder driver.Attempt // zero: free
	last   driver.Token
}

// expire is the synthetic operation that ends a grant.
const expire history.Kind = "expire"

var none driver.Attempt

// model is a lock that forgets nothing. An operation of unknown outcome may have been
// applied or not.
var model = (&porcupine.NondeterministicModel{
	Init: func() []interface{} { return []interface{}{state{}} },
	Step: func(s, input, _ interface{}) []interface{} {
		was, op := s.(state), input.(history.Op)
		free := state{last: was.last}
		mine := was.holder == op.Attempt
		switch {
		case op.Kind == history.Acquire && op.Outcome == history.OK:
			return only(was.holder == none && op.Token > was.last, state{op.Attempt, op.Token})
		case op.Kind == history.Acquire && op.Outcome == history.Unknown:
			if was.holder == none {
				return []interface{}{was, state{op.Attempt, was.last}}
			}
			return []interface{}{was}
		case op.Kind == history.Acquire:
			return only(was.holder != none && !mine, was)
		case op.Kind == history.Release && op.Outcome == history.OK:
			// The record of a grant that has lapsed may stand until somebody takes over, and a release finds it.
			return only(mine || was.holder == none && was.last == op.Token, free)
		case op.Kind == history.Release && op.Outcome == history.Unknown:
			if mine {
				return []interface{}{was, free}
			}
			return []interface{}{was}
		case op.Kind == expire:
			if mine {
				return []interface{}{free}
			}
			return []interface{}{was}
		case op.Outcome == history.OK: // a renewal
			return only(mine, was)
		case op.Outcome == history.Lost:
			return only(!mine, was)
		}
		return []interface{}{was}
	},
}).ToModel()

func only(legal bool, s state) []interface{} {
	if !legal {
		return nil
	}
	return []interface{}{s}
}

// operations turns a history of one key into Porcupine's form. Each grant, and each
// acquire that may have been one, gets an expiry: not before what was promised, and not
// after the latest time at which it can still be there.
func operations(ops []history.Op, slack time.Duration) []porcupine.Operation {
	type life struct {
		from, until, last, ttl time.Duration
	}
	lives := map[driver.Attempt]*life{}
	var all []porcupine.Operation
	add := func(op history.Op) {
		all = append(all, porcupine.Operation{Input: op, Call: int64(op.Call), Return: int64(op.Return)})
	}
	for _, op := range ops {
		add(op)
		applied := op.Outcome == history.OK || op.Outcome == history.Unknown
		switch {
		case op.Kind == history.Acquire && applied:
			lives[op.Attempt] = &life{op.Call, 0, op.Return, op.TTL}
			fallthrough
		case op.Kind == history.Renew && applied:
			l := lives[op.Attempt]
			if l == nil {
				continue
			}
			l.last = max(l.last, op.Return)
			if op.Outcome == history.OK {
				l.until = max(l.until, op.Until-(op.Until-op.Call)/100)
			}
		}
	}
	for a, l := range lives {
		from := l.until
		if from == 0 {
			// Unknown: whoever does not know that it holds is undone at any time, but not
			// before it was applied.
			from = l.last + 1
		}
		add(history.Op{Kind: expire, Attempt: a, Call: max(from, l.from), Return: l.last + l.ttl + slack})
	}
	return all
}
