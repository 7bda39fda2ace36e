package redislock

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/locker/driver"
)

// listPage is how many keys of the database SCAN looks at in one request.
const listPage = 1000

// Inspect returns the state of one key. The token of a free key is unknown: its counter is
// its bucket's.
func (d *Driver) Inspect(ctx context.Context, key string) (driver.State, error) {
	if err := d.enter(ctx); err != nil {
		return driver.State{}, err
	}
	return shown(d.look(ctx, []string{key})[0], key)
}

// look inspects keys side by side.
func (d *Driver) look(ctx context.Context, keys []string) []*run {
	runs := make([]*run, len(keys))
	for i, key := range keys {
		k := d.space.keys(key)
		runs[i] = newRun(&inspectScript, []any{k[0], k[2], k[3], k[4]})
	}
	d.all(ctx, runs, func(*run) {})
	return runs
}

// shown is the state that an inspection found.
func shown(r *run, key string) (driver.State, error) {
	st := driver.State{Key: key}
	if r.err != nil {
		return st, r.err
	}
	reply, _ := r.reply.([]any)
	if len(reply) != 4 {
		return st, driver.Wrap(driver.ErrAmbiguous, errReply)
	}
	value, _ := reply[0].(string)
	left, _ := reply[1].(int64)
	now, _ := reply[2].(int64)
	waiters, _ := reply[3].(int64)
	st.Waiters = int(waiters)
	if value == "" {
		return st, nil
	}
	l, err := parseLock(value)
	if err != nil {
		return st, err
	}
	st.Held, st.Broken = true, l.how == broken
	st.Token, st.Attempt, st.Owner, st.Note = l.token, l.attempt, l.owner, l.note
	switch {
	case l.since >= 0:
		st.HeldFor = millis(max(now-l.since, 0))
	case left >= 0: // never renewed: what is gone of its ttl
		st.HeldFor = millis(max(-l.since-left, 0))
	default: // and somebody has taken that away
		st.HeldFor = -1
	}
	if st.ExpiresIn = until(millis(left)); st.ExpiresIn == 0 {
		st.ExpiresIn = -1 // unknown
	}
	return st, nil
}

// List yields the keys that are held. It reads every key of the database once, a thousand
// in a request, in a Cluster on every master.
func (d *Driver) List(ctx context.Context, prefix string) iter.Seq2[driver.State, error] {
	return func(yield func(driver.State, error) bool) {
		if err := d.enter(ctx); err != nil {
			yield(driver.State{}, err)
			return
		}
		masters, err := d.masters(ctx)
		if err != nil {
			yield(driver.State{}, err)
			return
		}
		seen := map[string]bool{} // SCAN may yield a key twice
		for _, m := range masters {
			if !d.scan(ctx, m, prefix, seen, yield) {
				return
			}
		}
	}
}

// scan lists the keys of one server. False: the caller wants no more, or was told why there
// are none.
func (d *Driver) scan(ctx context.Context, on redis.UniversalClient, prefix string, seen map[string]bool, yield func(driver.State, error) bool) bool {
	server := sender{client: on, detached: d.detached, running: d.running}
	for cursor := "0"; ; {
		if err := d.enter(ctx); err != nil {
			yield(driver.State{}, err)
			return false
		}
		names, next, err := server.page(ctx, cursor, d.space.pattern(prefix))
		if err != nil {
			yield(driver.State{}, err)
			return false
		}
		var keys []string
		for _, n := range names {
			if key, ok := d.space.key(n); ok && !seen[key] {
				seen[key] = true
				keys = append(keys, key)
			}
		}
		for i, r := range d.look(ctx, keys) {
			st, err := shown(r, keys[i])
			if err != nil {
				yield(driver.State{}, fmt.Errorf("key %q: %w", keys[i], err))
				return false
			}
			if st.Held && !yield(st, nil) {
				return false
			}
		}
		if next == "0" {
			return true
		}
		cursor = next
	}
}

// page reads one page of a SCAN.
func (s *sender) page(ctx context.Context, cursor, pattern string) (names []string, next string, err error) {
	got := s.exchange(ctx, []redis.Cmder{
		command{redis.NewCmd(ctx, "scan", cursor, "match", pattern, "count", listPage, "type", "string")},
	})[0]
	if got.err != nil {
		return nil, "", onlyRead(got.err)
	}
	reply, _ := got.reply.([]any)
	if len(reply) != 2 {
		return nil, "", driver.Wrap(driver.ErrUnavailable, errReply)
	}
	next, _ = reply[0].(string)
	found, _ := reply[1].([]any)
	for _, n := range found {
		if name, ok := n.(string); ok {
			names = append(names, name)
		}
	}
	return names, next, nil
}

// masters are the servers that the keys are on.
func (d *Driver) masters(ctx context.Context) ([]redis.UniversalClient, error) {
	cluster, ok := d.client.(*redis.ClusterClient)
	if !ok {
		return []redis.UniversalClient{d.client}, nil
	}
	var mu sync.Mutex
	var all []redis.UniversalClient
	err := cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, c)
		return nil
	})
	if err != nil {
		return nil, onlyRead(err)
	}
	return all, nil
}

// Ping answers whether the server can be reached; in a Cluster, one of them.
func (d *Driver) Ping(ctx context.Context) error {
	if err := d.enter(ctx); err != nil {
		return err
	}
	got := d.exchange(ctx, []redis.Cmder{command{redis.NewCmd(ctx, "ping")}})[0]
	if got.err != nil {
		return onlyRead(got.err)
	}
	return nil
}
