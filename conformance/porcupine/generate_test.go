package porcupine_test

import (
	"cmp"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fencelock/locker/conformance/history"
	"github.com/fencelock/locker/driver"
)

const ttl = 1000 * time.Millisecond

// lock is a correct lock, asked at moments that only rise.
type lock struct {
	holder  driver.Attempt
	expires time.Duration
	last    driver.Token
}

func (l *lock) at(now time.Duration) {
	if l.holder != none && now >= l.expires {
		l.holder = none
	}
}

// client is somebody who wants the lock, all the time.
type client struct {
	name  string
	op    history.Op    // the next one
	point time.Duration // when it is applied
	left  int           // renewals before the release; negative: it just stops renewing
}

// generate plays n operations of some clients against a correct lock. Answers are lost at
// times, renewals come late at times, and holders die.
func generate(seed uint64, n int) []history.Op {
	rng := rand.New(rand.NewPCG(seed, 7))
	within := func(d time.Duration) time.Duration { return 1 + time.Duration(rng.Int64N(int64(d))) }
	var l lock
	attempts := uint64(0)
	clients := make([]*client, 2+rng.IntN(4))
	plan := func(c *client, kind history.Kind, from time.Duration) {
		c.op.Kind, c.op.Call = kind, from
		c.point = from + within(20*time.Millisecond)
	}
	fresh := func(c *client, from time.Duration) {
		attempts++
		c.op = history.Op{Key: "k", Client: c.name, TTL: ttl}
		binary.BigEndian.PutUint64(c.op.Attempt[:], attempts)
		plan(c, history.Acquire, from)
	}
	for i := range clients {
		clients[i] = &client{name: string(rune('A' + i))}
		fresh(clients[i], within(ttl/10))
	}
	var ops []history.Op
	for len(ops) < n {
		c := slices.MinFunc(clients, func(a, b *client) int { return cmp.Compare(a.point, b.point) })
		l.at(c.point)
		op := c.op
		op.Return = c.point + within(20*time.Millisecond)
		mine := l.holder == op.Attempt
		lost := rng.IntN(20) == 0 // the answer
		switch op.Kind {
		case history.Acquire:
			op.Outcome = history.Refused
			if l.holder == none {
				l.last++
				l.holder, l.expires = op.Attempt, c.point+ttl
				op.Outcome, op.Token, op.Until = history.OK, l.last, op.Call+ttl
			}
		case history.Renew:
			op.Outcome = history.Lost
			if mine {
				l.expires = c.point + ttl
				op.Outcome, op.Until = history.OK, op.Call+ttl
			}
		case history.Release:
			op.Outcome = history.Lost
			if mine {
				l.holder = none
				op.Outcome = history.OK
			}
		}
		granted := op.Token
		if lost {
			op.Outcome, op.Until = history.Unknown, 0
			if op.Kind == history.Acquire {
				op.Token = 0
			}
		}
		ops = append(ops, op)
		switch {
		case op.Kind == history.Acquire && op.Outcome == history.OK:
			c.op.Token, c.left = granted, rng.IntN(6)-1
			plan(c, history.Renew, op.Return+within(ttl/3))
			if c.left == 0 {
				plan(c, history.Release, op.Return+within(ttl/3))
			}
		case op.Kind == history.Renew && op.Outcome != history.Lost && c.left > 0:
			c.left--
			next, pause := history.Renew, ttl/2
			if c.left == 0 {
				next = history.Release
			}
			if rng.IntN(10) == 0 {
				pause = 2 * ttl // late
			}
			plan(c, next, op.Return+within(pause))
		default:
			fresh(c, op.Return+within(ttl/5))
		}
	}
	return ops
}

// corruptions are what a broken lock would answer.
var corruptions = map[string]func(rng *rand.Rand, ops []history.Op){
	"token lowered": func(rng *rand.Rand, ops []history.Op) {
		if op := pick(rng, ops, history.Acquire, history.OK); op != nil && op.Token > 2 {
			old := op.Token
			op.Token -= driver.Token(1 + rng.Int64N(int64(op.Token-1)))
			retoken(ops, op.Attempt, old, op.Token)
		}
	},
	"granted instead of refused": func(rng *rand.Rand, ops []history.Op) {
		if op := pick(rng, ops, history.Acquire, history.Refused); op != nil {
			var last driver.Token
			for _, o := range ops {
				if o.Call < op.Return && o.Kind == history.Acquire {
					last = max(last, o.Token)
				}
			}
			op.Outcome, op.Token, op.Until = history.OK, last+1, op.Call+ttl
			for i := range ops { // make room for the token
				if o := &ops[i]; o.Token > last && o.Attempt != op.Attempt {
					o.Token++
				}
			}
		}
	},
	"renewed instead of lost": func(rng *rand.Rand, ops []history.Op) {
		if op := pick(rng, ops, history.Renew, history.Lost); op != nil {
			op.Outcome, op.Until = history.OK, op.Call+ttl
		}
	},
	"lost instead of renewed": func(rng *rand.Rand, ops []history.Op) {
		if op := pick(rng, ops, history.Renew, history.OK); op != nil {
			op.Outcome, op.Until = history.Lost, 0
		}
	},
	"released instead of lost": func(rng *rand.Rand, ops []history.Op) {
		if op := pick(rng, ops, history.Release, history.Lost); op != nil {
			op.Outcome = history.OK
		}
	},
	"refused by nobody": func(rng *rand.Rand, ops []history.Op) {
		if op := pick(rng, ops, history.Acquire, history.Refused); op != nil {
			end := ops[len(ops)-1].Return + 5*ttl
			op.Call, op.Return = end, end+1
		}
	},
	"granted early": func(rng *rand.Rand, ops []history.Op) {
		if op := pick(rng, ops, history.Acquire, history.OK); op != nil {
			op.Call -= ttl / 5
			op.Until -= ttl / 5
			op.Return = op.Call + 1
		}
	},
}

// pick returns one of the operations, or nil.
func pick(rng *rand.Rand, ops []history.Op, k history.Kind, o history.Outcome) *history.Op {
	for range 50 {
		if op := &ops[rng.IntN(len(ops))]; op.Kind == k && op.Outcome == o {
			return op
		}
	}
	return nil
}

// retoken changes the token in the rest of the grant's life.
func retoken(ops []history.Op, a driver.Attempt, old, t driver.Token) {
	for i := range ops {
		if ops[i].Attempt == a && ops[i].Token == old {
			ops[i].Token = t
		}
	}
}
