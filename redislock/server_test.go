package redislock

import (
	"errors"
	"strings"
	"testing"

	"github.com/fencelock/locker/driver"
)

// info is what a server answers to INFO, as far as it matters.
func info(lines ...string) outcome {
	return outcome{reply: "# Server\r\n" + strings.Join(lines, "\r\n") + "\r\n"}
}

func TestFit(t *testing.T) {
	t.Parallel()
	for name, k := range map[string]struct {
		info          []string
		evict, client bool
		want          error
		says          string
	}{
		"Redis 7.0":                {[]string{"redis_version:7.0.15", "role:master", "maxmemory_policy:noeviction"}, false, false, nil, ""},
		"Redis 8":                  {[]string{"redis_version:8.0.2", "role:master"}, false, false, nil, ""},
		"Redis 10":                 {[]string{"redis_version:10.0.0"}, false, false, nil, ""},
		"Valkey":                   {[]string{"redis_version:7.2.4", "server_name:valkey", "valkey_version:8.1.1"}, false, false, nil, ""},
		"Redis 6.2":                {[]string{"redis_version:6.2.14"}, false, false, driver.ErrUnsupported, "6.2.14"},
		"a replica":                {[]string{"redis_version:7.2.0", "role:slave"}, false, false, driver.ErrUnavailable, "primary"},
		"evicts":                   {[]string{"maxmemory_policy:volatile-ttl"}, false, false, driver.ErrUnsupported, "volatile-ttl"},
		"evicts, allowed":          {[]string{"maxmemory_policy:volatile-ttl"}, true, false, nil, ""},
		"a node":                   {[]string{"cluster_enabled:1"}, false, false, driver.ErrUnsupported, "Cluster"},
		"a node, by its Cluster":   {[]string{"cluster_enabled:1"}, false, true, nil, ""},
		"one that says not a word": {nil, false, false, nil, ""},
	} {
		var s server
		s.read(info(k.info...))
		err := s.fit(k.evict, k.client)
		if !errors.Is(err, k.want) || (k.want == nil) != (err == nil) {
			t.Errorf("%s: got %v, want %v", name, err, k.want)
		}
		if err != nil && !strings.Contains(err.Error(), k.says) {
			t.Errorf("%s: got %v, want it to say %q", name, err, k.says)
		}
	}
}

func TestReplicated(t *testing.T) {
	t.Parallel()
	for name, k := range map[string]struct {
		info []string
		want error
	}{
		"none":        {[]string{"role:master", "connected_slaves:0"}, driver.ErrUnavailable},
		"one too few": {[]string{"role:master", "connected_slaves:1"}, driver.ErrUnavailable},
		"enough":      {[]string{"role:master", "connected_slaves:2"}, nil},
		"unknown":     {nil, nil},
	} {
		var s server
		s.read(info(k.info...))
		if err := s.replicated(2); !errors.Is(err, k.want) {
			t.Errorf("%s: got %v, want %v", name, err, k.want)
		}
	}
}

func TestLoses(t *testing.T) {
	t.Parallel()
	for name, k := range map[string]struct {
		s         server
		failsOver bool
		says      string // empty: nothing
	}{
		"always":                 {server{role: "master", aof: "yes", sync: "always", rewriting: "no"}, false, ""},
		"always, with a replica": {server{aof: "yes", sync: "always", rewriting: "no", replicas: 1}, false, "replica"},
		"always, by Sentinel":    {server{aof: "yes", sync: "always", rewriting: "no"}, true, "replica"},
		"always, but":            {server{role: "master", aof: "yes", sync: "always", rewriting: "yes"}, false, "no-appendfsync-on-rewrite"},
		"always, and it evicts":  {server{aof: "yes", sync: "always", rewriting: "no", policy: "allkeys-lru"}, false, "allkeys-lru"},
		"always, it half says":   {server{role: "master", aof: "yes", sync: "always"}, false, "no-appendfsync-on-rewrite"},
		"everysec":               {server{role: "master", aof: "yes", sync: "everysec"}, false, "everysec"},
		"snapshots":              {server{role: "master", aof: "no", snapshots: "3600 1"}, false, "snapshot"},
		"nothing":                {server{role: "master", aof: "no"}, false, "everything"},
		"unknown":                {server{}, false, "unknown"},
		"always, without INFO":   {server{aof: "yes", sync: "always", rewriting: "no"}, false, "unknown"},
		"without CONFIG":         {server{role: "master"}, false, "unknown"},
	} {
		if got := k.s.loses(k.failsOver); (got == "") != (k.says == "") || !strings.Contains(got, k.says) {
			t.Errorf("%s: got %q, want %q in it", name, got, k.says)
		}
	}
}

// CONFIG GET is a map in RESP3 and a list in RESP2.
func TestPairs(t *testing.T) {
	t.Parallel()
	for _, reply := range []any{
		map[any]any{"save": "", "appendonly": "yes"},
		[]any{"save", "", "appendonly", "yes"},
	} {
		if got := pairs(outcome{reply: reply}); got["appendonly"] != "yes" || len(got) != 2 {
			t.Errorf("pairs(%v): got %v", reply, got)
		}
	}
}
