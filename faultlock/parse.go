package faultlock

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Parse reads a schedule: rules as the package comment describes them, separated by
// semicolons or spaces. The empty schedule has no rules. An error names the rule, the
// piece of it that is wrong, and what would be right.
func Parse(text string) (Schedule, error) {
	pieces, err := split(text)
	if err != nil {
		return nil, fmt.Errorf("faultlock: schedule %q: %w", text, err)
	}
	var s Schedule
	for _, piece := range pieces {
		r, err := parseRule(piece)
		if err != nil {
			return nil, fmt.Errorf("faultlock: rule %q: %w", piece, err)
		}
		s = append(s, r)
	}
	return s, nil
}

// split cuts the text at separators outside quotes.
func split(text string) ([]string, error) {
	var pieces []string
	start := 0
	cut := func(end int) {
		if piece := text[start:end]; piece != "" {
			pieces = append(pieces, piece)
		}
	}
	for i := 0; i < len(text); {
		switch c := rune(text[i]); {
		case c == '"':
			quoted, err := strconv.QuotedPrefix(text[i:])
			if err != nil {
				return nil, fmt.Errorf("the quoted key that begins with %.20s does not end: want a Go string", text[i:])
			}
			i += len(quoted)
		case c == ';' || c < unicode.MaxASCII && unicode.IsSpace(c):
			cut(i)
			i++
			start = i
		default:
			i++
		}
	}
	cut(len(text))
	return pieces, nil
}

func parseRule(piece string) (Rule, error) {
	var r Rule
	op, rest := piece, ""
	if i := strings.IndexAny(piece, "[#%="); i >= 0 {
		op, rest = piece[:i], piece[i:]
	}
	if !known(ops, op) {
		return r, fmt.Errorf("unknown operation %q: want one of %s", op, names(ops))
	}
	r.Op = Op(op)
	rest, err := r.parseKey(rest)
	if err != nil {
		return r, err
	}
	which, fault, ok := strings.Cut(rest, "=")
	if !ok {
		return r, fmt.Errorf("no fault: want =FAULT with one of %s", names(faults))
	}
	if err := r.parseWhich(which); err != nil {
		return r, err
	}
	err = r.parseFault(fault)
	return r, err
}

// parseKey reads [key] or ["key"], if there is one, and returns what follows.
func (r *Rule) parseKey(text string) (rest string, err error) {
	if !strings.HasPrefix(text, "[") {
		return text, nil
	}
	text = text[1:]
	var ok bool
	if strings.HasPrefix(text, `"`) {
		quoted, _ := strconv.QuotedPrefix(text) // split has checked it
		r.Key, _ = strconv.Unquote(quoted)
		rest, ok = strings.CutPrefix(text[len(quoted):], "]")
	} else {
		r.Key, rest, ok = strings.Cut(text, "]")
	}
	if !ok {
		return "", fmt.Errorf("the key in [%s does not end: want ]", text)
	}
	if r.Key == "" {
		return "", errors.New("the key in [] is empty: want a full key, or no brackets for every key")
	}
	return rest, nil
}

// parseWhich reads #ordinal and %probability, each if there is one.
func (r *Rule) parseWhich(text string) (err error) {
	text, p, chance := strings.Cut(text, "%")
	if chance {
		r.P, err = strconv.ParseFloat(p, 64)
		if err != nil || !(r.P > 0 && r.P <= 1) {
			return fmt.Errorf("probability %q: want a number above 0 and at most 1", p)
		}
	}
	if text == "" {
		return nil
	}
	ordinals, ok := strings.CutPrefix(text, "#")
	if !ok {
		return fmt.Errorf("%q: want #ORDINAL, %%PROBABILITY or =FAULT here", text)
	}
	first, last, ranged := strings.Cut(ordinals, "-")
	if r.First, err = ordinal(first); err == nil {
		switch {
		case !ranged:
			r.Last = r.First
		case last != "":
			r.Last, err = ordinal(last)
		}
	}
	if err != nil || r.Last != 0 && r.Last < r.First {
		return fmt.Errorf("ordinal %q: want N, N-M or N-, counted from 1", ordinals)
	}
	return nil
}

func ordinal(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err == nil && n == 0 {
		err = strconv.ErrRange
	}
	return int(n), err
}

// parseFault reads the fault with its duration.
func (r *Rule) parseFault(text string) (err error) {
	fault, duration, timed := strings.Cut(text, ":")
	if !known(faults, fault) {
		return fmt.Errorf("unknown fault %q: want one of %s", fault, names(faults))
	}
	r.Fault = Fault(fault)
	switch {
	case !timed && r.Fault.needsDuration():
		return fmt.Errorf("fault %q has no duration: want %s:D or %s:D-D", fault, fault, fault)
	case !timed:
		return nil
	case !r.Fault.needsDuration() && r.Fault != Dup:
		return fmt.Errorf("fault %q has the duration %q: want none", fault, duration)
	}
	low, high, ranged := strings.Cut(duration, "-")
	if r.Min, err = time.ParseDuration(low); err == nil {
		r.Max = r.Min
		if ranged {
			r.Max, err = time.ParseDuration(high)
		}
	}
	if err != nil || r.Min < 0 || r.Max < r.Min {
		return fmt.Errorf("duration %q: want one like 1.2s, or a rising range like 0s-2s", duration)
	}
	return nil
}
