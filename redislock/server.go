package redislock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/locker/driver"
)

// server is what a server says of itself. Empty: it does not tell.
type server struct {
	version   string
	role      string
	clustered bool
	replicas  int
	policy    string // what it does when memory is full
	aof, sync string // appendonly, appendfsync
	snapshots string // save
	rewriting string // no-appendfsync-on-rewrite: "no" syncs it also then
}

// asked are the settings that say what a crash loses.
var asked = []any{"appendonly", "appendfsync", rewritingSetting, "save", "maxmemory-policy"}

const rewritingSetting = "no-appendfsync-on-rewrite"

// questions are the commands that a server is asked when it is met; the scripts are loaded
// with them.
func questions(ctx context.Context) []redis.Cmder {
	cmds := []redis.Cmder{
		command{redis.NewCmd(ctx, "info")},
		command{redis.NewCmd(ctx, append([]any{"config", "get"}, asked...)...)},
	}
	for _, s := range scripts {
		cmds = append(cmds, command{redis.NewCmd(ctx, "script", "load", s.source)})
	}
	return cmds
}

// answers reads what the server replied. What it forbids to ask is unknown; a script that
// could not be loaded will be sent whole when it is needed.
func answers(got []outcome) (s server, err error) {
	for _, g := range got {
		if errors.Is(g.err, redis.Nil) { // no server answers these with nothing: it is what a Sentinel said
			return s, driver.Wrap(driver.ErrUnavailable, errors.New("the Sentinels know no server by that name: check master_name"))
		}
		if g.err != nil && !isReply(g.err) {
			return s, onlyRead(g.err)
		}
	}
	s.read(got[0])
	settings := pairs(got[1])
	s.aof, s.sync, s.snapshots = settings["appendonly"], settings["appendfsync"], settings["save"]
	s.rewriting = settings[rewritingSetting]
	if p := settings["maxmemory-policy"]; p != "" {
		s.policy = p
	}
	return s, nil
}

func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// read reads INFO: lines of name:value.
func (s *server) read(got outcome) {
	text, _ := got.reply.(string)
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		switch key {
		case "redis_version": // Valkey says here which Redis it is compatible with
			s.version = value
		case "role":
			s.role = value
		case "cluster_enabled":
			s.clustered = value == "1"
		case "connected_slaves":
			s.replicas, _ = strconv.Atoi(value)
		case "maxmemory_policy":
			s.policy = value
		}
	}
}

// pairs reads the reply of CONFIG GET, a map or a list.
func pairs(got outcome) map[string]string {
	m := map[string]string{}
	put := func(k, v any) {
		key, _ := k.(string)
		m[key], _ = v.(string)
	}
	switch reply := got.reply.(type) {
	case map[any]any:
		for k, v := range reply {
			put(k, v)
		}
	case []any:
		for i := 0; i+1 < len(reply); i += 2 {
			put(reply[i], reply[i+1])
		}
	}
	return m
}

// oldest is the first major version that works: PEXPIRETIME, and scripts that are refused
// as a whole.
const oldest = 7

// noEviction is the policy that drops nothing.
const noEviction = "noeviction"

// fit reports why the server cannot be used.
func (s *server) fit(allowEviction, cluster bool) error {
	major, _, _ := strings.Cut(s.version, ".")
	if n, err := strconv.Atoi(major); err == nil && n < oldest {
		return fmt.Errorf("%w: the server is Redis %s: want %d.0 or later, or Valkey", driver.ErrUnsupported, s.version, oldest)
	}
	if s.clustered && !cluster {
		return fmt.Errorf("%w: the server is a node of a Cluster: use a *redis.ClusterClient, or redis+cluster://", driver.ErrUnsupported)
	}
	if s.role == "slave" {
		return driver.Wrap(driver.ErrUnavailable, errors.New("the server is a replica, which cannot be written to: connect to its primary"))
	}
	if s.policy != "" && s.policy != noEviction && !allowEviction {
		return fmt.Errorf("%w: the server's maxmemory-policy is %s, so that it may drop locks that are held: "+
			"set it to %s, or allow_eviction=true", driver.ErrUnsupported, s.policy, noEviction)
	}
	return nil
}

// replicated reports why no grant would ever count: it has fewer replicas than must have it.
func (s *server) replicated(want int) error {
	if s.role == "" || s.replicas >= want { // without a role it has told nothing
		return nil
	}
	return driver.Wrap(driver.ErrUnavailable, fmt.Errorf(
		"the server has %d replicas, and a grant counts only when %d have it (wait_replicas)", s.replicas, want))
}

// describe is what can be said of the servers together: the weakest of them counts.
func (d *Driver) describe(servers []server) driver.Info {
	i := driver.Info{
		Name:          name,
		Tokens:        driver.Durable,
		ExpiryClock:   "the Redis server's wall clock",
		Waiting:       driver.WaitQueue,
		MinTTL:        minTTL,
		Granularity:   granularity,
		Slack:         slack,
		MaxBatch:      maxBatch,
		ConfirmPushes: d.replicas > 0 || d.failsOver(), // a push may come from another server's clock
		Features: []driver.Feature{
			driver.FeatureQueue, driver.FeatureFIFO, driver.FeatureFloor, driver.FeatureBatch, driver.FeatureProcesses,
			driver.FeatureInspect, driver.FeatureList, driver.FeatureBreak, driver.FeatureBreakNow, driver.FeaturePing,
		},
	}
	for _, s := range servers {
		if loses := s.loses(d.failsOver()); loses != "" {
			i.Tokens, i.FailoverLoses = driver.BestEffort, loses
		}
	}
	return i
}

// sentinelAddr is the address that go-redis shows of a client of Sentinel.
const sentinelAddr = "FailoverClient"

func (d *Driver) failsOver() bool {
	c, ok := d.client.(*redis.Client)
	return !ok || c.Options().Addr == sentinelAddr
}

// loses says what a crash or a failover of the server can lose. Empty: nothing.
func (s *server) loses(failsOver bool) string {
	switch {
	case s.policy != "" && s.policy != noEviction:
		return "locks and counters at any time: its memory policy is " + s.policy
	case failsOver || s.replicas > 0:
		return "what the replica that is promoted has not received: replication is asynchronous"
	case s.aof == "" || s.role == "": // CONFIG says how it keeps its data, INFO whether it has replicas
		return "unknown: the server does not tell how it keeps its data"
	case s.aof == "yes" && s.sync == "always" && s.rewriting != "no":
		return "what came while its append-only file was rewritten: it does not say " + rewritingSetting + " no"
	case s.aof == "yes" && s.sync == "always":
		return ""
	case s.aof == "yes":
		return "about the last second: its append-only file is synced " + s.sync
	case s.snapshots != "":
		return "everything since the last snapshot"
	}
	return "everything: nothing is kept on disk"
}

// opening adds to an error of the first contact what it probably means.
func opening(err error) error {
	advice := ""
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		advice = "the server closed the connection at the first command: it may want TLS, as with rediss://, be in protected mode, or have too many clients"
	case strings.Contains(err.Error(), "cluster support disabled"):
		advice = "the server is no node of a Cluster: use redis://"
	case strings.Contains(err.Error(), "unknown command 'sentinel'"):
		advice = "the server is no Sentinel: use redis://"
	default:
		return err
	}
	return fmt.Errorf("%w (%s)", err, advice)
}

// advised adds what to do about an error, where that is known.
func advised(err error) error {
	var record tls.RecordHeaderError
	advice := ""
	switch {
	case errors.As(err, &record):
		advice = "the server does not speak TLS at this port: use redis://"
	case redis.HasErrorPrefix(err, "WRONGPASS"), redis.HasErrorPrefix(err, "NOAUTH"):
		advice = "check the user and the password"
	case forbidden(err.Error()):
		advice = "the user lacks a permission that docs/backends/redis.md lists"
	case redis.HasErrorPrefix(err, "READONLY"):
		advice = "this is a replica: connect to its primary"
	default:
		return err
	}
	return fmt.Errorf("%w (%s)", err, advice)
}
