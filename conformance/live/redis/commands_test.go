package redis_test

import (
	"maps"
	"regexp"
	"strconv"
	"testing"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/conformance/live"
	"github.com/fencelock/locker/redislock"
)

var commandStat = regexp.MustCompile(`cmdstat_(exists|incr|time|set|get|del|zrange|hget):calls=(\d+),`)

// An uncontended acquire and its release run six commands inside their scripts: each is
// some tenth of what the server does for both.
func TestCommandsOfFreeKey(t *testing.T) {
	t.Parallel()
	s := live.Redis(t, live.RedisOptions{Own: true})
	d, err := open(t.Context(), s.Addr(), &redislock.Options{Namespace: namespace()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	l, err := locker.New(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for range 2 { // the second one finds the counter
		if _, err := s.Do(t.Context(), "CONFIG", "RESETSTAT"); err != nil {
			t.Fatal(err)
		}
		lease, err := l.TryAcquire(short(t), "k")
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(short(t)); err != nil {
			t.Fatal(err)
		}
		stats, err := s.Do(t.Context(), "INFO", "commandstats")
		if err != nil {
			t.Fatal(err)
		}
		text, _ := stats.(string)
		got := map[string]int{}
		for _, m := range commandStat.FindAllStringSubmatch(text, -1) {
			got[m[1]], _ = strconv.Atoi(m[2])
		}
		want := map[string]int{"exists": 2, "incr": 1, "set": 1, "get": 1, "del": 1}
		if !maps.Equal(got, want) {
			t.Errorf("commands of an acquire and a release: got %v, want %v", got, want)
		}
	}
}
