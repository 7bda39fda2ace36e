package locker

import (
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/fencelock/locker/driver"
)

const (
	defaultTTL            = 30 * time.Second
	defaultReleaseTimeout = 5 * time.Second
)

// Options set up a Locker. The zero value and nil mean the defaults.
type Options struct {
	// TTL is how long a lease outlives its holder's last sign of life. Zero: 30 s, or
	// the backend's minimum if that is larger.
	TTL time.Duration
	// Owner names this process to people who ask who holds a key. Empty: host:pid.
	Owner string
	// ReleaseTimeout bounds one Release, and all releases of a Close together. Zero: 5 s.
	ReleaseTimeout time.Duration
	// Logger gets a line per event: Debug for what is normal, Warn for what is not.
	// Nil: silent. Keys and owners are logged, secrets never.
	Logger *slog.Logger
	// OnEvent is told what happens to leases; metrics and traces hang here. It is called
	// in order for each lease, concurrently for different ones, with no lock held, on the
	// goroutine that did it: it must not block, and must not call Close.
	OnEvent func(Event)
}

// withDefaults checks o and fills in what was left out. o may be nil.
func (o *Options) withDefaults(info driver.Info) (Options, error) {
	var opts Options
	if o != nil {
		opts = *o
	}
	if opts.TTL == 0 {
		opts.TTL = max(defaultTTL, info.MinTTL)
	}
	if err := checkTTL(opts.TTL, info); err != nil {
		return opts, err
	}
	switch {
	case opts.ReleaseTimeout < 0:
		return opts, fmt.Errorf("Options.ReleaseTimeout: %v: want a positive duration", opts.ReleaseTimeout)
	case opts.ReleaseTimeout == 0:
		opts.ReleaseTimeout = defaultReleaseTimeout
	}
	if opts.Owner == "" {
		opts.Owner = defaultOwner()
	}
	return opts, checkText("Options.Owner", opts.Owner)
}

// defaultOwner is host:pid.
func defaultOwner() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	return host + ":" + strconv.Itoa(os.Getpid())
}

// AcquireOption changes one Acquire, TryAcquire, Do or Lead.
type AcquireOption func(*acquireConfig)

type acquireConfig struct {
	ttl         time.Duration
	wait        time.Duration
	waitBounded bool
	maxHold     time.Duration
	owner, note string
	manual      bool
	function    bool  // it is for Do or Lead
	err         error // the first bad option
}

func (a *acquireConfig) reject(format string, args ...any) {
	if a.err == nil {
		a.err = fmt.Errorf(format, args...)
	}
}

// WithTTL sets the ttl of this lease. Zero is an error, like any other impossible ttl.
func WithTTL(ttl time.Duration) AcquireOption {
	return func(a *acquireConfig) { a.ttl = ttl }
}

// WithWait bounds how long Acquire (and Do) waits for the key, never how long it is held.
// Zero: one attempt, as TryAcquire. TryAcquire ignores it; Lead starts a new wait each
// time.
func WithWait(d time.Duration) AcquireOption {
	return func(a *acquireConfig) {
		if d < 0 {
			a.reject("WithWait(%v): want zero or a positive duration", d)
		}
		a.wait, a.waitBounded = d, true
	}
}

// WithMaxHold ends the lease with ErrMaxHold d after it was granted: Done closes and
// renewals stop. The key is free when the holder releases it, or at the deadline.
func WithMaxHold(d time.Duration) AcquireOption {
	return func(a *acquireConfig) {
		if d <= 0 {
			a.reject("WithMaxHold(%v): want a positive duration", d)
		}
		a.maxHold = d
	}
}

// WithOwner names the holder of this lease, instead of Options.Owner.
func WithOwner(owner string) AcquireOption {
	return func(a *acquireConfig) {
		if err := checkText("WithOwner", owner); err != nil {
			a.reject("%w", err)
		}
		a.owner = owner
	}
}

// WithNote attaches a note for people: a job id, a ticket.
func WithNote(note string) AcquireOption {
	return func(a *acquireConfig) {
		if err := checkText("WithNote", note); err != nil {
			a.reject("%w", err)
		}
		a.note = note
	}
}

// WithManualRenew leaves renewal to the caller: nothing is renewed but by Lease.Renew,
// apart from the first renewal of a grant that a queue made for a short claim window
// only.
func WithManualRenew() AcquireOption {
	return func(a *acquireConfig) { a.manual = true }
}

// configure folds the options of one call over the Locker's.
func (c *core) configure(a *acquireConfig, opts []AcquireOption) error {
	*a = acquireConfig{ttl: c.opts.TTL, owner: c.opts.Owner}
	for _, o := range opts {
		o(a)
	}
	if a.err != nil {
		return a.err
	}
	return checkTTL(a.ttl, c.info)
}
