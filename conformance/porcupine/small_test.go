package porcupine_test

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/locker/conformance/history"
	"github.com/fencelock/locker/driver"
)

// small makes a history of a few attempts whose answers and times are drawn, most of them
// impossible: it comes from no lock.
func small(rng *rand.Rand) []history.Op {
	var ops []history.Op
	draw := func(of ...history.Outcome) history.Outcome { return of[rng.IntN(len(of))] }
	tokens := rng.Perm(4)
	for i := range 2 + rng.IntN(2) {
		op := history.Op{Kind: history.Acquire, Outcome: draw(history.OK, history.OK, history.Unknown, history.Refused), Key: "k",
			Client: string(rune('A' + i)), Attempt: driver.Attempt{byte(i + 1)}, TTL: ttl}
		now := time.Duration(rng.Int64N(int64(2 * ttl)))
		add := func() {
			now += 1 + time.Duration(rng.Int64N(int64(ttl/2)))
			op.Call = now
			now += 1 + time.Duration(rng.Int64N(int64(ttl/2)))
			op.Return, op.Until = now, 0
			if op.Outcome == history.OK && op.Kind != history.Release {
				op.Until = op.Call + ttl
			}
			ops = append(ops, op)
		}
		granted := op.Outcome == history.OK
		if granted {
			op.Token = driver.Token(tokens[i] + 1)
		}
		add()
		if !granted {
			continue
		}
		over := false
		for range rng.IntN(3) {
			op.Kind, op.Outcome = history.Renew, draw(history.OK, history.Lost, history.Unknown)
			add()
			if over = op.Outcome == history.Lost; over {
				break
			}
		}
		if !over && rng.IntN(2) == 0 {
			op.Kind, op.Outcome = history.Release, draw(history.OK, history.Lost, history.Unknown)
			add()
		}
	}
	return ops
}

// The verdicts agree on what no lock has made, too.
func TestSmallHistories(t *testing.T) {
	t.Parallel()
	n := uint64(20_000)
	if size := os.Getenv("LOCKER_TEST_SIZE"); size == "full" || size == "soak" {
		n = 1_000_000
	}
	legal := 0
	for seed := range n {
		ops := small(rand.New(rand.NewPCG(seed, 3)))
		err := history.Check(ops, options)
		// A refusal that only an acquire of unknown outcome explains proves that this one was granted, and one
		// behind a release of unknown outcome that it was not done. We draw no such conclusions.
		unknown := slices.ContainsFunc(ops, func(op history.Op) bool {
			return op.Kind != history.Renew && op.Outcome == history.Unknown
		})
		if says := porcupineSays(t, ops); says != (err == nil) && (says || !unknown) {
			var b strings.Builder
			for _, op := range ops {
				b.WriteString("\n\t" + op.String())
			}
			t.Fatalf("seed %d: Porcupine says the contrary of %v%s", seed, err, b.String())
		}
		if err == nil {
			legal++
		}
	}
	t.Logf("%d histories, %d of them legal", n, legal)
	if legal < int(n/20) || legal > int(n-n/20) {
		t.Errorf("%d of %d histories are legal: they compare little", legal, n)
	}
}
