package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/memlock"
)

// operatorMutants are wrong in what operators do and see: breaks, lists, records, namespaces,
// what stays behind, networks, fences.
var operatorMutants = []mutant{
	{"break-at-once", "break/waits-for-deadline", "a break frees the key at once", defect{
		brk: func(c *client, ctx context.Context, key string, t driver.Token, b driver.Break) error {
			b.Now = true
			return c.Driver.Break(ctx, key, t, b)
		},
	}.harness},
	{"break-any-token", "break/wrong-token", "a break does not compare the token", defect{
		brk: func(c *client, ctx context.Context, key string, t driver.Token, b driver.Break) error {
			if st, _ := c.Driver.Inspect(ctx, key); st.Held {
				t = st.Token
			}
			return c.Driver.Break(ctx, key, t, b)
		},
	}.harness},
	{"break-does-nothing", "break/ends-holder", "a break is acknowledged and not done", defect{
		brk: func(*client, context.Context, string, driver.Token, driver.Break) error { return nil },
	}.harness},
	{"break-never-now", "break/now", "a break with Now waits for the deadline", defect{
		brk: func(c *client, ctx context.Context, key string, t driver.Token, b driver.Break) error {
			b.Now = false
			return c.Driver.Break(ctx, key, t, b)
		},
	}.harness},
	{"inspect-remembers", "inspect/states", "an inspection shows the last holder of a free key as its holder", defect{
		inspect: func(c *client, ctx context.Context, key string) (driver.State, error) {
			st, err := c.Driver.Inspect(ctx, key)
			st.Held = st.Held || st.Token != 0
			return st, err
		},
	}.harness},
	{"list-first-page", "inspect/list", "a list ends with its first page", defect{
		list: func(c *client, ctx context.Context, prefix string) iter.Seq2[driver.State, error] {
			return func(yield func(driver.State, error) bool) {
				n := 0
				for st, err := range c.Driver.List(ctx, prefix) {
					if n++; n > 256 || !yield(st, err) {
						return
					}
				}
			}
		},
	}.harness},
	{"list-ignores-prefix", "inspect/list", "a list yields keys without the prefix", defect{
		list: func(c *client, ctx context.Context, prefix string) iter.Seq2[driver.State, error] {
			return c.Driver.List(ctx, prefix[:len(prefix)-2])
		},
	}.harness},
	{"list-escapes", "inspect/list", "a list yields keys as they are stored, escaped", defect{
		list: func(c *client, ctx context.Context, prefix string) iter.Seq2[driver.State, error] {
			return func(yield func(driver.State, error) bool) {
				for st, err := range c.Driver.List(ctx, prefix) {
					st.Key = strings.ReplaceAll(st.Key, "%", "%25")
					if !yield(st, err) {
						return
					}
				}
			}
		},
	}.harness},
	{"token-from-zero", "contract/fresh-key", "the first token is 0", retokened(func(_ *world, _ driver.Request, inner driver.Token) driver.Token {
		return inner - 1
	}).harness},
	{"left-too-long", "contract/fresh-lease", "a grant promises twice its ttl", defect{
		try: func(c *client, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := c.Driver.TryAcquire(ctx, r)
			g.Left *= 2
			return g, err
		},
	}.harness},
	{"ping-unsupported", "request/ping", "an operation that is declared is not supported", defect{
		ping: func(*client, context.Context) error { return driver.ErrUnsupported },
	}.harness},
	{"restart-forgets", "server/restart", "an orderly restart loses the counter", func(h conformance.Harness) conformance.Harness {
		own := fragileMemory()
		own.Virtual, own.TTL, own.Slack = h.Virtual, h.TTL, h.Slack
		own.Faults.Restart = own.Faults.Kill
		return own
	}},
	{"removed-lives-on", "operate/record-removed", "a renewal does not look whether its record is there", defect{
		renew: func(c *client, ctx context.Context, g driver.Grant) (driver.Grant, error) {
			if renewed, err := c.Driver.Renew(ctx, g); err == nil {
				return renewed, nil
			}
			g.Sent, g.Left = driver.Instant{}, g.TTL
			return g, nil
		},
	}.harness},
	{"overwritten-lives-on", "operate/record-overwritten", "a renewal looks only whether there is a record, not whose", defect{
		renew: func(c *client, ctx context.Context, g driver.Grant) (driver.Grant, error) {
			renewed, err := c.Driver.Renew(ctx, g)
			if st, ierr := c.Driver.Inspect(ctx, g.Key); err != nil && ierr == nil && st.Held {
				g.Sent, g.Left = driver.Instant{}, g.TTL
				return g, nil
			}
			return renewed, err
		},
	}.harness},
	{"release-leaks", "resources/rounds", "each release leaves a goroutine behind", defect{
		release: func(c *client, ctx context.Context, g driver.Grant) error {
			leak()
			return c.Driver.Release(ctx, g)
		},
	}.harness},
	{"release-leaves-a-record", "resources/rounds", "each release leaves a record behind", defect{
		release: func(c *client, ctx context.Context, g driver.Grant) error {
			tomb := driver.Request{Key: fmt.Sprintf("released %v", g.Attempt), Attempt: driver.NewAttempt(), TTL: time.Hour}
			_, _ = c.Driver.TryAcquire(ctx, tomb)
			return c.Driver.Release(ctx, g)
		},
	}.harness},
	{"connection-per-grant", "resources/held-keys", "each grant has a connection", func(h conformance.Harness) conformance.Harness {
		own := defect{}.harness(h)
		records := own.Footprint
		own.Footprint = func(ctx context.Context) (map[string]int, error) {
			all, err := records(ctx)
			return map[string]int{"connections": all["held keys"]}, err
		}
		return own
	}},
	{"refusal-leaks", "resources/refusals", "each refused try leaves a goroutine behind", defect{
		try: func(c *client, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := c.Driver.TryAcquire(ctx, r)
			if errors.Is(err, driver.ErrHeld) {
				leak()
			}
			return g, err
		},
	}.harness},
	{"goroutine-per-grant", "resources/held-keys", "each grant has a goroutine", defect{
		try: func(c *client, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := c.Driver.TryAcquire(ctx, r)
			if err == nil {
				leak()
			}
			return g, err
		},
	}.harness},
	{"close-leaks", "resources/close", "a client that was closed leaves its goroutines behind", defect{
		close: func(c *client) error {
			leak()
			leak()
			return c.Driver.Close()
		},
	}.harness},
	{"layout-ignored", "namespace/other-layout", "another token base is taken without a word", func(h conformance.Harness) conformance.Harness {
		own := defect{}.harness(h)
		own.Reopen = func(ctx context.Context, _ driver.Token) (driver.Driver, error) { return own.Driver(ctx) }
		return own
	}},
	{"base-ignored", "namespace/token-base", "tokens do not begin at the base", func(h conformance.Harness) conformance.Harness {
		own := defect{}.harness(h)
		own.Fresh = func(context.Context, driver.Token) (driver.Driver, error) { return memlock.NewServer().Driver(), nil }
		return own
	}},
	{"network-dead", "network/resets", "the harness's network lets nothing pass", func(h conformance.Harness) conformance.Harness {
		own := defect{}.harness(h)
		client := own.Faults.Client
		own.Faults.Client = func(ctx context.Context) (driver.Driver, conformance.Network, error) {
			d, n, err := client(ctx)
			return d, deadNetwork{n}, err
		}
		return own
	}},
	{"renewal-unanswered", "expiry/renew-too-late", "a renewal of a lost grant says that the server cannot be reached", defect{
		renew: func(c *client, ctx context.Context, g driver.Grant) (driver.Grant, error) {
			renewed, err := c.Driver.Renew(ctx, g)
			return renewed, unanswered(err)
		},
	}.harness},
	{"release-unanswered", "expiry/release-too-late", "a release of a lost grant says that the server cannot be reached", defect{
		release: func(c *client, ctx context.Context, g driver.Grant) error {
			return unanswered(c.Driver.Release(ctx, g))
		},
	}.harness},
	{"break-unanswered", "break/wrong-token", "a break that is refused says that the server cannot be reached", defect{
		brk: func(c *client, ctx context.Context, key string, t driver.Token, b driver.Break) error {
			return unanswered(c.Driver.Break(ctx, key, t, b))
		},
	}.harness},
	{"refusal-unanswered", "contention/barrier", "a try that is refused says that the server cannot be reached", defect{
		try: func(c *client, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := c.Driver.TryAcquire(ctx, r)
			return g, unanswered(err)
		},
	}.harness},
	{"unreachable-unclear", "network/unreachable", "a client that reached nobody says that the outcome is unknown", func(h conformance.Harness) conformance.Harness {
		own := defect{}.harness(h)
		own.Faults.Unreachable = map[string]func(context.Context) (driver.Driver, error){
			"nobody there": func(context.Context) (driver.Driver, error) { return nil, driver.ErrAmbiguous },
		}
		return own
	}},
	{"fence-open", "fence/late-write", "the fence compares nothing", fences(func() conformance.Fence { return &openFence{} })},
	{"fence-not-raised", "fence/raised", "Raise does not raise", fences(func() conformance.Fence { return &lazyFence{} })},
	{"fence-raised-by-readers", "fence/not-raised", "reading raises the fence", fences(func() conformance.Fence { return &eagerFence{} })},
	{"fence-strict", "fence/one-token-many-writes", "an equal token is refused", fences(func() conformance.Fence { return &strictFence{} })},
	{"fence-shared", "fence/each-resource-its-own", "all resources share one mark", sharedFence},
}
