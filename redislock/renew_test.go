package redislock

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/locker/driver"
)

// What one run renews is of one ttl, and bounded. In a Cluster it is one grant.
func TestRenewals(t *testing.T) {
	t.Parallel()
	sp, err := newSpace("app")
	if err != nil {
		t.Fatal(err)
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer func() { _ = cluster.Close() }()
	gs := make([]driver.Grant, 1000)
	for i := range gs {
		gs[i].Key, gs[i].TTL = fmt.Sprint("k", i), time.Duration(1+i%2)*time.Minute
	}
	for name, k := range map[string]struct {
		client redis.UniversalClient
		most   int // grants in a run
	}{
		"one server": {&redis.Client{}, maxTogether},
		"a Cluster":  {cluster, 1},
	} {
		d := &Driver{space: sp, sender: sender{client: k.client}}
		parts := d.renewals(gs)
		if len(parts) != len(gs)/k.most {
			t.Errorf("%s: got %d runs, want %d", name, len(parts), len(gs)/k.most)
		}
		seen := make([]int, len(gs))
		for _, together := range parts {
			if len(together) > k.most {
				t.Errorf("%s: got %d renewals in a run, want at most %d", name, len(together), k.most)
			}
			for _, g := range together {
				seen[g.index]++
				if g.Key != gs[g.index].Key || g.TTL != together[0].TTL {
					t.Errorf("%s: got %s for %v beside %s for %v", name, g.Key, g.TTL, together[0].Key, together[0].TTL)
				}
			}
		}
		for i, n := range seen {
			if n != 1 {
				t.Errorf("%s: grant %d is in %d runs, want 1", name, i, n)
			}
		}
	}
}
