package s3lock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/epoch"
)

// Driver keeps locks in a bucket. Several Lockers may share one.
type Driver struct {
	*epoch.Driver
	store *store
	// owned closes what Open made.
	owned func()
}

const (
	// minTTL leaves room for a renewal every third of it over a store that takes some
	// hundred milliseconds at times.
	minTTL = 2 * time.Second
	// slack is how late an answer may come behind its deadline, and a poll behind an
	// expiry.
	slack   = 500 * time.Millisecond
	pollMin = 100 * time.Millisecond
)

// NewDriver opens the namespace in a bucket, and creates it, after a [Probe] of the store,
// if it is not there. That costs one request when it is. It fails with ErrStore where
// locks would mean nothing, with ErrNoBucket, ErrDenied or ErrRegion where the bucket
// cannot be used, and with driver.ErrLayout where the namespace was made with other
// options. o may be nil. The client stays the caller's; its retries are not used.
func NewDriver(ctx context.Context, client *s3.Client, bucketName string, o *Options) (*Driver, error) {
	if o == nil {
		o = &Options{}
	}
	b, base, err := open(client, bucketName, o)
	if err != nil {
		return nil, err
	}
	s := &store{bucket: b, base: base}
	if err := s.agree(ctx, o); err != nil {
		return nil, err
	}
	return &Driver{store: s, Driver: epoch.New(s, epoch.Options{Info: s.info(), TokenBase: o.TokenBase, Keep: o.Keep})}, nil
}

// New makes a driver, and a Locker over it whose Close closes both. o and lo may be nil.
func New(ctx context.Context, client *s3.Client, bucketName string, o *Options, lo *locker.Options) (*locker.Locker, error) {
	d, err := NewDriver(ctx, client, bucketName, o)
	if err != nil {
		return nil, err
	}
	return locker.Own(d, lo)
}

// Probe tries out the store behind the driver, as the function of that name does.
func (d *Driver) Probe(ctx context.Context) (Report, error) {
	r, err := d.store.probe(ctx)
	if err != nil {
		return r, definite(err)
	}
	return r, nil
}

// Close ends no grant: what is held lapses. It waits for clean-ups.
func (d *Driver) Close() error {
	err := d.Driver.Close()
	if d.owned != nil {
		d.owned()
	}
	return err
}

// directoryBucket is how the names of S3 Express buckets end.
const directoryBucket = "--x-s3"

func open(client *s3.Client, bucketName string, o *Options) (*bucket, string, error) {
	base, err := o.base()
	if err != nil {
		return nil, "", err
	}
	switch {
	case client == nil:
		return nil, "", driver.Wrap(driver.ErrUnsupported, errors.New("no client"))
	case bucketName == "":
		return nil, "", driver.Wrap(driver.ErrUnavailable, fmt.Errorf("%w: give its name", ErrNoBucket))
	case strings.HasSuffix(bucketName, directoryBucket):
		return nil, "", driver.Wrap(driver.ErrUnsupported,
			fmt.Errorf("%w: %q is a directory bucket (S3 Express), which lists in no order: use a general purpose bucket", ErrStore, bucketName))
	}
	c := newClock("")
	if o.Logger != nil {
		c.tell = func(why string) {
			o.Logger.Warn("s3lock: holders are judged by the contender's own clock", "bucket", bucketName, "why", why)
		}
	}
	return &bucket{client: client, name: bucketName, sse: o.SSE, kmsKey: o.KMSKey, clock: c}, base, nil
}

// The setting of the namespace record that holds the probe's verdict about the clocks. It
// binds nobody: each client judges for itself, and may be more careful.
const (
	clockSetting = "clock"
	clockAgrees  = "store"
	clockDiffers = "observed"
)

// agree reads or makes the namespace record.
func (s *store) agree(ctx context.Context, o *Options) error {
	if o.Expiry == Observed { // at the end: a probe judges the store, not the wish
		defer s.clock.distrust("expiry=observed")
	}
	layout := driver.Layout{Backend: name, TokenBase: o.TokenBase, Settings: map[string]string{"escape": "1", "names": "newest-first"}}
	path := s.base + layoutName
	read := func(ctx context.Context) ([]byte, error) {
		got, err := s.get(ctx, path, "")
		if errors.Is(err, epoch.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, definite(err)
		}
		s.adopt(layout, got.body)
		return got.body, nil
	}
	stored, err := read(ctx)
	if err != nil {
		return err
	}
	if stored == nil {
		if err := s.prove(ctx, o, layout); err != nil {
			return err
		}
	}
	first := true
	return layout.Agree(ctx, driver.LayoutStore{
		Read: func(ctx context.Context) ([]byte, error) {
			if first {
				first = false
				return stored, nil
			}
			return read(ctx)
		},
		Create: func(ctx context.Context, record []byte) (bool, error) {
			_, err := s.create(ctx, path, record)
			if errors.Is(err, epoch.ErrExist) || errors.Is(err, errConflict) {
				return false, nil
			}
			return err == nil, err
		},
	})
}

// adopt takes the clock's verdict from a record that is there.
func (s *store) adopt(layout driver.Layout, record []byte) {
	var have driver.Layout
	if json.Unmarshal(record, &have) != nil {
		return
	}
	verdict := have.Settings[clockSetting]
	layout.Settings[clockSetting] = verdict
	if verdict != clockAgrees {
		s.clock.distrust("the probe found that the store's clocks disagree")
	}
}

// prove probes a store that has no namespace yet.
func (s *store) prove(ctx context.Context, o *Options, layout driver.Layout) error {
	if err := s.apart(ctx); err != nil {
		return err
	}
	r, err := s.probe(ctx)
	if err != nil {
		return definite(err)
	}
	if err := r.Err(); err != nil {
		return err
	}
	layout.Settings[clockSetting] = clockAgrees
	if !r.ClocksAgree() {
		layout.Settings[clockSetting] = clockDiffers
		s.clock.distrust("the probe found that the store's clocks disagree")
	}
	if o.Logger != nil {
		for _, c := range r.Checks {
			if c.Verdict == Warned {
				o.Logger.Warn("s3lock: "+c.Requirement, "bucket", s.name, "found", c.Found)
			}
		}
	}
	return nil
}

// apart refuses a place within another namespace, where a key of that one would find this
// one's objects among its own. What may not be read above is not asked again.
func (s *store) apart(ctx context.Context) error {
	for i := range len(s.base) - 1 {
		if s.base[i] != '/' {
			continue
		}
		if _, err := s.get(ctx, s.base[:i+1]+layoutName, ""); err == nil {
			return driver.Wrap(driver.ErrLayout, fmt.Errorf("%q lies within the namespace %q: use another prefix", s.base, s.base[:i+1]))
		}
	}
	return nil
}

// definite says of a failure at open that nothing was granted by it.
func definite(err error) error {
	if driver.IsAmbiguous(err) {
		return driver.Wrap(driver.ErrUnavailable, err)
	}
	return err
}

func (s *store) info() driver.Info {
	i := driver.Info{
		Name:        name,
		Tokens:      driver.Durable,
		ExpiryClock: "the store's: Date of a reply against Last-Modified",
		Waiting:     driver.WaitPoll,
		MinTTL:      minTTL,
		// Seen from outside a record may look younger than it is by what the clocks are cut
		// to, and is judged at the next poll.
		Slack:         slack + margin + 2*second,
		FailoverLoses: "where a replica of the bucket takes over, the grants and tokens that it has not yet",
		Features:      []driver.Feature{driver.FeatureProcesses},
		Poll:          driver.Backoff{Min: pollMin},

		RenewChangesState: true,
	}
	if !s.clock.trusted() {
		i.ExpiryClock = "the contender's own, while it sees the object unchanged (" + s.clock.why() + ")"
	}
	return i
}
