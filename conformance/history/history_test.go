package history_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/locker/conformance/history"
	"github.com/fencelock/locker/driver"
)

const ttl = 100

func attempt(i byte) driver.Attempt { return driver.Attempt{i} }

// grant is attempt i's acquire, answered with a token.
func grant(i byte, t driver.Token, call, ret time.Duration) history.Op {
	return history.Op{Kind: history.Acquire, Outcome: history.OK, Key: "k", Client: "client", Attempt: attempt(i), Token: t,
		Call: call, Return: ret, Until: call + ttl, TTL: ttl}
}

func op(k history.Kind, o history.Outcome, i byte, t driver.Token, call, ret time.Duration) history.Op {
	op := history.Op{Kind: k, Outcome: o, Key: "k", Client: "client", Attempt: attempt(i), Token: t, Call: call, Return: ret, TTL: ttl}
	if k == history.Renew && o == history.OK {
		op.Until = call + ttl
	}
	return op
}

func by(client string, o history.Op) history.Op {
	o.Client = client
	return o
}

func TestCheck(t *testing.T) {
	t.Parallel()
	const ok, lost, unknown, refused = history.OK, history.Lost, history.Unknown, history.Refused
	const acquire, renew, release, write, raise, belief = history.Acquire, history.Renew, history.Release, history.Write, history.Raise, history.Belief
	for _, c := range []struct {
		name string
		ops  []history.Op
		opts history.Options
		want string // part of the sentence; empty: legal
	}{
		{name: "nothing"},
		{name: "grant, release, grant", ops: []history.Op{grant(1, 1, 0, 2), op(release, ok, 1, 1, 10, 12), grant(2, 2, 11, 14)}},
		{name: "grant behind an expiry", ops: []history.Op{grant(1, 1, 0, 2), grant(2, 2, 90, 101)}},
		{name: "grant within the rate error", ops: []history.Op{grant(1, 1, 0, 2), grant(2, 2, 90, 99)}},
		{name: "grant while held", ops: []history.Op{grant(1, 1, 0, 2), grant(2, 2, 20, 50)}, want: "was in force until"},
		{name: "grant while renewed", ops: []history.Op{grant(1, 1, 0, 2), op(renew, ok, 1, 1, 80, 85), grant(2, 2, 90, 110)}, want: "was in force until"},
		{name: "renewed behind a takeover", ops: []history.Op{grant(1, 1, 0, 2), grant(2, 2, 100, 105), op(renew, ok, 1, 1, 110, 111)}, want: "was in force until"},
		{name: "released behind a takeover", ops: []history.Op{grant(1, 1, 0, 2), grant(2, 2, 100, 105), op(release, ok, 1, 1, 110, 111)}, want: "was in force until"},
		{name: "release of unknown outcome frees", ops: []history.Op{grant(1, 1, 0, 2), op(release, unknown, 1, 1, 10, 20), grant(2, 2, 12, 14)}},
		{name: "token not greater", ops: []history.Op{grant(1, 2, 0, 2), op(release, ok, 1, 2, 10, 12), grant(2, 1, 13, 14)}, want: "not greater than token 2"},
		{name: "token twice", ops: []history.Op{grant(1, 1, 0, 2), op(release, ok, 1, 1, 10, 12), grant(2, 1, 13, 14)}, want: "granted twice"},
		{name: "two tokens for one attempt whose request came late", ops: []history.Op{grant(1, 1, 0, 2), grant(1, 2, 102, 104), op(renew, ok, 1, 2, 110, 111)}, opts: history.Options{Late: 200}},
		{name: "two tokens at one time", ops: []history.Op{grant(1, 1, 0, 2), grant(1, 2, 5, 7), op(renew, ok, 1, 1, 50, 51)}, opts: history.Options{Late: 200}, want: "was in force until"},
		{name: "two tokens for one attempt", ops: []history.Op{grant(1, 1, 0, 2), grant(1, 2, 5, 7)}, want: "two tokens"},
		{name: "tokens of concurrent grants in either order", ops: []history.Op{grant(1, 2, 0, 20), op(release, ok, 1, 2, 25, 26), grant(2, 1, 1, 10), op(release, unknown, 2, 1, 11, 13)}},
		{name: "renewal changes the token", ops: []history.Op{grant(1, 1, 0, 2), op(renew, ok, 1, 2, 10, 12)}, want: "changed the token"},
		{name: "false loss", ops: []history.Op{grant(1, 1, 0, 2), op(renew, lost, 1, 1, 10, 12)}, want: "told that"},
		{name: "loss behind the expiry", ops: []history.Op{grant(1, 1, 0, 2), op(renew, lost, 1, 1, 95, 101)}},
		{name: "loss behind the expiry, and an undo that finds it", ops: []history.Op{grant(1, 1, 0, 2), op(renew, lost, 1, 1, 95, 101), op(release, ok, 1, 1, 110, 112)}},
		{name: "loss behind a renewal", ops: []history.Op{grant(1, 1, 0, 2), op(renew, ok, 1, 1, 50, 52), op(renew, lost, 1, 1, 95, 101)}, want: "told that"},
		{name: "loss behind a break", ops: []history.Op{grant(1, 1, 0, 2),
			{Kind: history.Break, Outcome: ok, Key: "k", Token: 1, Call: 3, Return: 4, Until: 4}, op(renew, lost, 1, 1, 10, 12)}},
		{name: "refused beside a holder", ops: []history.Op{grant(1, 1, 0, 2), op(acquire, refused, 2, 0, 10, 12)}, opts: history.Options{Refusals: true}},
		{name: "refused by nobody", ops: []history.Op{op(acquire, refused, 2, 0, 10, 12)}, opts: history.Options{Refusals: true}, want: "nobody else"},
		{name: "refused by an unknown acquire", ops: []history.Op{op(acquire, unknown, 1, 0, 0, 5), op(acquire, refused, 2, 0, 100, 102)}, opts: history.Options{Refusals: true}},
		{name: "refused long behind an unknown acquire", ops: []history.Op{op(acquire, unknown, 1, 0, 0, 5), op(acquire, refused, 2, 0, 106, 108)},
			opts: history.Options{Refusals: true}, want: "nobody else"},
		{name: "refused by one whose token comes behind another's", ops: []history.Op{op(acquire, refused, 3, 0, 0, 12), grant(1, 1, 13, 20), op(release, unknown, 1, 1, 21, 24), grant(2, 2, 8, 30)},
			opts: history.Options{Refusals: true}, want: "nobody else"},
		{name: "refused by one that was replaced", ops: []history.Op{grant(1, 1, 0, 2), op(release, unknown, 1, 1, 4, 9), grant(2, 2, 5, 8), op(release, ok, 2, 2, 10, 12), op(acquire, refused, 3, 0, 13, 14)},
			opts: history.Options{Refusals: true}, want: "nobody else"},
		{name: "refused by one that is lost", ops: []history.Op{grant(1, 1, 0, 50), op(renew, lost, 1, 1, 95, 101), op(acquire, refused, 2, 0, 102, 104)},
			opts: history.Options{Refusals: true}, want: "nobody else"},
		{name: "refused by one that was never there", ops: []history.Op{op(acquire, unknown, 1, 0, 0, 5), op(release, lost, 1, 0, 6, 8), op(acquire, refused, 2, 0, 9, 10)},
			opts: history.Options{Refusals: true}, want: "nobody else"},
		{name: "refused by one that asked beside its release", ops: []history.Op{op(acquire, unknown, 1, 0, 0, 5), op(release, ok, 1, 0, 6, 8), grant(1, 1, 7, 14), op(acquire, refused, 2, 0, 20, 22)},
			opts: history.Options{Refusals: true}},
		{name: "refused because of itself", ops: []history.Op{op(acquire, unknown, 2, 0, 0, 5), op(acquire, refused, 2, 0, 10, 12)}, opts: history.Options{Refusals: true}, want: "nobody else"},
		{name: "beliefs in turn", ops: []history.Op{op(belief, ok, 1, 1, 0, 10), op(belief, ok, 2, 2, 11, 20)}},
		{name: "beliefs together", ops: []history.Op{op(belief, ok, 1, 1, 0, 10), op(belief, ok, 2, 2, 9, 20)}, want: "both believed"},
		{name: "beliefs nested", ops: []history.Op{op(belief, ok, 1, 1, 0, 100), op(belief, ok, 1, 1, 1, 2), op(belief, ok, 2, 2, 50, 60)}, want: "both believed"},
		{name: "beliefs in turn with one token", ops: []history.Op{by("A", op(belief, ok, 1, 5, 0, 10)), by("B", op(belief, ok, 2, 5, 11, 20))}, want: "which is A's"},
		{name: "beliefs in turn with a lower token", ops: []history.Op{by("A", op(belief, ok, 1, 5, 0, 10)), by("B", op(belief, ok, 2, 4, 11, 20))}, want: "while B believed"},
		{name: "told late of a lower token, and never sure", ops: []history.Op{op(belief, ok, 1, 5, 0, 10), op(belief, ok, 2, 4, 11, 11)}},
		{name: "beliefs without tokens", ops: []history.Op{by("A", op(belief, ok, 1, 0, 0, 10)), by("B", op(belief, ok, 2, 0, 11, 20))}},
		{name: "belief within its grant", ops: []history.Op{grant(1, 1, 0, 2), op(belief, ok, 1, 1, 3, 90), grant(2, 2, 95, 101), op(belief, ok, 2, 2, 102, 110)}},
		{name: "belief behind a takeover", ops: []history.Op{by("A", grant(1, 1, 0, 2)), by("A", op(belief, ok, 1, 1, 3, 500)), by("B", grant(2, 2, 120, 125))}, want: "while A believed"},
		{name: "told late, and never sure", ops: []history.Op{grant(1, 1, 0, 2), op(belief, ok, 1, 1, 300, 300), grant(2, 2, 120, 125)}},
		{name: "belief behind a break now", ops: []history.Op{grant(1, 1, 0, 2), op(belief, ok, 1, 1, 3, 30),
			{Kind: history.Break, Outcome: ok, Key: "k", Token: 1, Call: 10, Return: 12}, grant(2, 2, 13, 15)}},
		{name: "belief behind a break that waits", ops: []history.Op{grant(1, 1, 0, 2), op(belief, ok, 1, 1, 3, 120),
			{Kind: history.Break, Outcome: ok, Key: "k", Token: 1, Call: 10, Return: 12, Until: 12}, grant(2, 2, 101, 103)}, want: "believed"},
		{name: "belief that nobody was granted", ops: []history.Op{by("A", grant(1, 1, 0, 2)), by("B", op(belief, ok, 2, 9, 50, 60))}, want: "was in force until"},
		{name: "belief of another process", ops: []history.Op{grant(1, 1, 0, 2), op(release, ok, 1, 1, 10, 12), by("child", op(belief, ok, 0, 2, 11, 20)), grant(3, 3, 19, 21)}},
		{name: "belief with another's token", ops: []history.Op{by("A", grant(1, 1, 0, 2)), by("B", op(belief, ok, 2, 1, 3, 4))}, want: "which is A's"},
		{name: "belief of a lock that may forget", ops: []history.Op{op(belief, ok, 1, 5, 0, 10), op(belief, ok, 2, 4, 11, 20)}, opts: history.Options{MayForget: true}},
		{name: "renewed behind its release", ops: []history.Op{grant(1, 1, 0, 2), op(release, ok, 1, 1, 10, 12), op(renew, ok, 1, 1, 13, 14)}, want: "was renewed"},
		{name: "renewed beside its release", ops: []history.Op{grant(1, 1, 0, 2), op(release, ok, 1, 1, 10, 12), op(renew, ok, 1, 1, 9, 14)}},
		{name: "renewed behind a release without an answer", ops: []history.Op{grant(1, 1, 0, 2), op(release, unknown, 1, 1, 10, 12), op(renew, ok, 1, 1, 13, 14)}},
		{name: "granted again behind its release", ops: []history.Op{grant(1, 1, 0, 2), op(release, ok, 1, 1, 10, 12), grant(1, 1, 13, 14)}, want: "was granted again"},
		{name: "granted when a release had undone an unknown acquire", ops: []history.Op{op(acquire, unknown, 1, 0, 0, 5), op(release, ok, 1, 0, 6, 8), grant(1, 1, 7, 14), op(renew, ok, 1, 1, 15, 16)}},
		{name: "released twice", ops: []history.Op{grant(1, 1, 0, 2), op(release, ok, 1, 1, 10, 12), op(release, ok, 1, 1, 13, 14)}, want: "was released again"},
		{name: "released again behind no answer", ops: []history.Op{grant(1, 1, 0, 2), op(release, unknown, 1, 1, 10, 12), op(release, ok, 1, 1, 13, 14)}},
		{name: "renewed without a grant", ops: []history.Op{op(renew, ok, 1, 1, 13, 14)}, want: "never granted"},
		{name: "renewed behind a refusal", ops: []history.Op{grant(2, 1, 0, 2), op(acquire, refused, 1, 0, 3, 4), op(renew, ok, 1, 1, 13, 14)}, want: "never granted"},
		{name: "fence", ops: []history.Op{op(write, ok, 0, 1, 0, 1), op(raise, ok, 0, 2, 2, 3), op(write, refused, 0, 1, 4, 5), op(write, ok, 0, 2, 6, 7)}},
		{name: "stale write", ops: []history.Op{op(raise, ok, 0, 2, 2, 3), op(write, ok, 0, 1, 4, 5)}, want: "after it had accepted token 2"},
		{name: "write beside a raise", ops: []history.Op{op(raise, ok, 0, 2, 2, 6), op(write, ok, 0, 1, 4, 5)}},
		{name: "refused without a reason", ops: []history.Op{op(write, refused, 0, 1, 4, 5), op(raise, ok, 0, 2, 6, 7)}, want: "no greater one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := history.Check(c.ops, c.opts)
			var v *history.Violation
			switch {
			case c.want == "" && err != nil:
				t.Fatalf("got %v, want it legal", err)
			case c.want != "" && !errors.As(err, &v):
				t.Fatalf("got %v, want a violation", err)
			case c.want != "" && !strings.Contains(v.Sentence, c.want):
				t.Fatalf("got %q, want %q in it", v.Sentence, c.want)
			case c.want != "" && len(v.Proof) == 0:
				t.Fatal("got no proof")
			}
		})
	}
}

// The clock never stands still, so that what happened before has the smaller reading.
func TestClock(t *testing.T) {
	t.Parallel()
	r := history.NewRecorder()
	last := r.Now()
	for range 1000 {
		now := r.Now()
		if now <= last {
			t.Fatalf("got %v behind %v", now, last)
		}
		last = now
	}
}

// long is a legal history of n operations on one key.
func long(n int) []history.Op {
	var ops []history.Op
	now := time.Duration(0)
	for i := 0; len(ops) < n; i++ {
		a := driver.Attempt{byte(i), byte(i >> 8), byte(i >> 16), 1}
		token := driver.Token(i + 1)
		base := history.Op{Key: "k", Client: "client", Attempt: a, TTL: ttl}
		g, r, rel, other := base, base, base, base
		g.Kind, g.Outcome, g.Token, g.Call, g.Return, g.Until = history.Acquire, history.OK, token, now, now+2, now+ttl
		other.Kind, other.Outcome, other.Call, other.Return = history.Acquire, history.Refused, now+3, now+5
		other.Attempt[4] = 1
		r.Kind, r.Outcome, r.Token, r.Call, r.Return, r.Until = history.Renew, history.OK, token, now+10, now+12, now+10+ttl
		rel.Kind, rel.Outcome, rel.Token, rel.Call, rel.Return = history.Release, history.OK, token, now+20, now+22
		ops = append(ops, g, other, r, rel)
		now += 23
	}
	return ops
}

func TestLongHistory(t *testing.T) {
	t.Parallel()
	ops := long(100_000)
	if err := history.Check(ops, history.Options{Refusals: true}); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkCheck100000(b *testing.B) {
	ops := long(100_000)
	for b.Loop() {
		if err := history.Check(ops, history.Options{Refusals: true}); err != nil {
			b.Fatal(err)
		}
	}
}
