package porcupine_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/fencelock/locker/conformance/history"
)

// patience is how long Porcupine may think. No verdict is a failure of the test, never a
// pass.
const patience = time.Minute

var options = history.Options{Refusals: true}

func porcupineSays(t *testing.T, ops []history.Op) bool {
	t.Helper()
	switch porcupine.CheckOperationsTimeout(model, operations(ops, options.Slack), patience) {
	case porcupine.Ok:
		return true
	case porcupine.Illegal:
		return false
	default:
		t.Fatalf("Porcupine has no verdict on %d operations after %v", len(ops), patience)
		return false
	}
}

// The direct checker and Porcupine say the same about legal histories and corrupted ones.
func TestVerdictsAgree(t *testing.T) {
	t.Parallel()
	seeds, lengths := uint64(40), []int{10, 60, 300}
	if size := os.Getenv("LOCKER_TEST_SIZE"); size == "full" || size == "soak" {
		seeds = 200
	}
	names := slices.Sorted(maps.Keys(corruptions))
	illegal, compared := map[string]int{}, 0
	for seed := range seeds {
		for _, n := range lengths {
			sound := generate(seed, n)
			if err := history.Check(sound, options); err != nil {
				t.Fatalf("seed %d, %d operations: a legal history: %v", seed, n, err)
			}
			if !porcupineSays(t, sound) {
				t.Fatalf("seed %d, %d operations: Porcupine refuses a legal history", seed, n)
			}
			for _, name := range names {
				ops := slices.Clone(sound)
				corruptions[name](rand.New(rand.NewPCG(seed, uint64(n))), ops)
				err := history.Check(ops, options)
				legal := porcupineSays(t, ops)
				if (err == nil) != legal {
					t.Errorf("seed %d, %d operations, %s: Porcupine says legal: %v, and we say: %v", seed, n, name, legal, err)
				}
				compared++
				if err != nil {
					illegal[name]++
				}
			}
		}
	}
	for _, name := range names {
		if illegal[name] == 0 {
			t.Errorf("%s never made a history illegal: it compares nothing", name)
		}
	}
	t.Logf("%d corrupted histories compared, illegal among them: %v", compared, illegal)
}

// Long ones, too.
func TestLongHistories(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2000, 5000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			ops := generate(uint64(n), n)
			if err := history.Check(ops, options); err != nil || !porcupineSays(t, ops) {
				t.Errorf("a legal history: we say %v", err)
			}
			corruptions["granted instead of refused"](rand.New(rand.NewPCG(1, 2)), ops)
			if err := history.Check(ops, options); (err == nil) != porcupineSays(t, ops) {
				t.Errorf("a corrupted history: we say %v, and Porcupine says the contrary", err)
			}
		})
	}
}
