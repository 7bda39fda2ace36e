package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/locker/driver"
)

// NewDriver opens a namespace over a client, which stays the caller's and must outlive the
// driver. One round trip reads the namespace record and what can be known of the server, and
// loads the scripts; creating the namespace costs one more.
//
// The client must be a *redis.Client, standalone or of Sentinel, or a *redis.ClusterClient. A
// *redis.Ring is refused: it moves a key to another server when one is down, and then two
// servers grant it. The client's own settings stay; its timeouts and retries do not count
// here: a call ends at its deadline, and is never sent twice. Hooks of a *redis.Client see
// the driver's commands only if it has ContextTimeoutEnabled and read and write timeouts of
// at most two seconds; otherwise the driver works with a clone, which has none.
//
// Errors: driver.ErrUnsupported for a client or a server that cannot be used (Ring, below
// 7.0, a memory policy that evicts), driver.ErrUnavailable beside go-redis's error where
// the server cannot be reached, refuses the password, is a replica or has fewer than
// WaitReplicas, driver.ErrLayout where the namespace was created otherwise. o may be nil.
func NewDriver(ctx context.Context, client redis.UniversalClient, o *Options) (*Driver, error) {
	d, err := open(ctx, client, o)
	if err != nil {
		return nil, fmt.Errorf("%s: open: %w", name, err)
	}
	return d, nil
}

func open(ctx context.Context, client redis.UniversalClient, o *Options) (*Driver, error) {
	opts, err := o.checked()
	if err != nil {
		return nil, err
	}
	sp, err := newSpace(opts.Namespace)
	if err != nil {
		return nil, err
	}
	d := &Driver{space: sp, terms: opts.terms(), closed: make(chan struct{})}
	if err := d.use(client); err != nil {
		return nil, err
	}
	if opts.WaitReplicas > 0 {
		if d.cluster() {
			return nil, fmt.Errorf("%w: waiting for replicas in a Cluster", driver.ErrUnsupported)
		}
		d.replicas = opts.WaitReplicas
	}
	got, servers, err := d.probe(ctx)
	if err != nil {
		return nil, opening(err)
	}
	for _, s := range servers {
		if err := s.fit(opts.AllowEviction, d.cluster()); err != nil {
			return nil, err
		}
		if err := s.replicated(d.replicas); err != nil {
			return nil, err
		}
	}
	record, err := recordOf(got) // a server that does not fit may have answered it with an error
	if err != nil {
		return nil, opening(err)
	}
	if err := opts.layout().Agree(ctx, d.layoutStore(record)); err != nil {
		return nil, err
	}
	d.info = d.describe(servers)
	d.ear = newEar(d.client, sp.channel(driver.NewAttempt().String()))
	return d, nil
}

func (d *Driver) cluster() bool {
	_, is := d.client.(*redis.ClusterClient)
	return is
}

// probe reads the namespace record and asks each server that holds keys what it is. It
// loads the scripts on the way.
func (d *Driver) probe(ctx context.Context) (record outcome, servers []server, err error) {
	cluster, ok := d.client.(*redis.ClusterClient)
	if !ok {
		got := d.exchange(ctx, append([]redis.Cmder{d.readRecord(ctx)}, questions(ctx)...))
		s, err := answers(got[1:])
		return got[0], []server{s}, err
	}
	record = d.exchange(ctx, []redis.Cmder{d.readRecord(ctx)})[0]
	if record.err != nil && !isReply(record.err) { // nothing is there, and would not be a second time
		return record, nil, onlyRead(record.err)
	}
	var mu sync.Mutex
	err = cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		one := sender{client: c}
		s, err := answers(one.exchange(ctx, questions(ctx)))
		mu.Lock()
		defer mu.Unlock()
		servers = append(servers, s)
		return err
	})
	if err != nil && !errors.Is(err, driver.ErrUnavailable) {
		err = onlyRead(err)
	}
	return record, servers, err
}

func (d *Driver) readRecord(ctx context.Context) redis.Cmder {
	return command{redis.NewCmd(ctx, "get", d.space.record())}
}

func recordOf(got outcome) ([]byte, error) {
	if errors.Is(got.err, redis.Nil) {
		return nil, nil
	}
	if got.err != nil {
		return nil, onlyRead(got.err)
	}
	text, ok := got.reply.(string)
	if !ok {
		return nil, driver.Wrap(driver.ErrCorrupt, errReply)
	}
	return []byte(text), nil
}

// layoutStore keeps the namespace record. The first read was made already.
func (d *Driver) layoutStore(record []byte) driver.LayoutStore {
	first := true
	return driver.LayoutStore{
		Read: func(ctx context.Context) ([]byte, error) {
			if first {
				first = false
				return record, nil
			}
			return recordOf(d.exchange(ctx, []redis.Cmder{d.readRecord(ctx)})[0])
		},
		Create: func(ctx context.Context, record []byte) (bool, error) {
			got := d.exchange(ctx, []redis.Cmder{command{redis.NewCmd(ctx, "set", d.space.record(), record, "nx")}})[0]
			if errors.Is(got.err, redis.Nil) { // somebody else was first
				return false, nil
			}
			if got.err != nil {
				return false, failure(got.err, true)
			}
			return true, nil
		},
	}
}
