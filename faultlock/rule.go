package faultlock

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Op is an operation of a driver, by the name that rules use.
type Op string

// The operations, and Any for all of them.
const (
	Any     Op = "*"
	Try     Op = "try"
	Renew   Op = "renew"
	Release Op = "release"
	Listen  Op = "listen"
	Enqueue Op = "enqueue"
	Poll    Op = "poll"
	Wait    Op = "wait"
	Inspect Op = "inspect"
	List    Op = "list" // its key is the prefix
	Break   Op = "break"
	Ping    Op = "ping" // its key is empty
)

var ops = []Op{Any, Try, Renew, Release, Listen, Enqueue, Poll, Wait, Inspect, List, Break, Ping}

// Fault is what happens to a call. The package comment says what each one means.
type Fault string

// The faults.
const (
	Before    Fault = "before"
	After     Fault = "after"
	Delay     Fault = "delay"
	DelayBack Fault = "delayback"
	Hang      Fault = "hang"
	HangBack  Fault = "hangback"
	Dup       Fault = "dup"
)

var faults = []Fault{Before, After, Delay, DelayBack, Hang, HangBack, Dup}

// Rule says which calls fail, and how.
type Rule struct {
	// Op is the operation; Any matches each.
	Op Op
	// Key is the full key. Empty: every key.
	Key string
	// First and Last are the ordinals, counted from 1 per operation and key. First
	// zero: every call. Last zero: all from First on.
	First, Last int
	// P is the probability. Zero: always.
	P float64
	// Fault is what happens.
	Fault Fault
	// Min and Max are the fault's duration, drawn between them. Delay and DelayBack
	// need them; Dup may have them; the others ignore them.
	Min, Max time.Duration
}

// Schedule is a list of rules. The first one that matches decides.
type Schedule []Rule

// String returns the schedule as Parse reads it.
func (s Schedule) String() string {
	rules := make([]string, len(s))
	for i, r := range s {
		rules[i] = r.String()
	}
	return strings.Join(rules, "; ")
}

// MarshalText is String.
func (s Schedule) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is Parse.
func (s *Schedule) UnmarshalText(b []byte) (err error) {
	*s, err = Parse(string(b))
	return err
}

// String returns the rule as Parse reads it.
func (r Rule) String() string {
	var b strings.Builder
	b.WriteString(string(r.Op))
	if r.Key != "" {
		fmt.Fprintf(&b, "[%s]", quoteKey(r.Key))
	}
	switch {
	case r.First == 0:
	case r.First == r.Last:
		fmt.Fprintf(&b, "#%d", r.First)
	case r.Last == 0:
		fmt.Fprintf(&b, "#%d-", r.First)
	default:
		fmt.Fprintf(&b, "#%d-%d", r.First, r.Last)
	}
	if r.P != 0 {
		b.WriteString("%" + strconv.FormatFloat(r.P, 'g', -1, 64))
	}
	b.WriteString("=" + string(r.Fault))
	if r.hasDuration() {
		b.WriteString(":" + r.Min.String())
		if r.Max != r.Min {
			b.WriteString("-" + r.Max.String())
		}
	}
	return b.String()
}

func (r Rule) hasDuration() bool {
	return r.Fault.needsDuration() || r.Fault == Dup && r.Max != 0
}

// needsDuration reports whether the fault means nothing without one.
func (f Fault) needsDuration() bool { return f == Delay || f == DelayBack }

// quoteKey returns the key bare if it can be read back that way, else quoted.
func quoteKey(key string) string {
	odd := func(c rune) bool {
		return c == ']' || c == '"' || c == ';' || c == unicode.ReplacementChar || unicode.IsSpace(c) || !unicode.IsPrint(c)
	}
	if strings.ContainsFunc(key, odd) {
		return strconv.Quote(key)
	}
	return key
}

// matches reports whether the rule is about the call, before its probability.
func (r Rule) matches(op Op, key string, ordinal int) bool {
	return (r.Op == Any || r.Op == op) &&
		(r.Key == "" || r.Key == key) &&
		ordinal >= r.First && (r.Last == 0 || ordinal <= r.Last)
}

// names lists what a piece of a rule may be, for people.
func names[S ~string](of []S) string {
	s := make([]string, len(of))
	for i, n := range of {
		s[i] = string(n)
	}
	return strings.Join(s, ", ")
}

func known[S ~string](of []S, s string) bool { return slices.Contains(of, S(s)) }
