package conformance_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/memlock"
)

// mutant is a backend, a fence or a harness with one fault, and the case that names it.
type mutant struct {
	name   string
	killer string // the id of the case
	why    string // what is wrong with it
	make   func(conformance.Harness) conformance.Harness
}

// mutants are all of them. Broken cores are patches (see cores_test.go), and real processes
// are broken by process_mutants_test.go.
var mutants = slices.Concat(requestMutants, operatorMutants)

// requestMutants answer single requests, or keep waiters, in a wrong way.
var requestMutants = []mutant{
	{"process-local", "contract/exclusion", "each client locks by itself", func(h conformance.Harness) conformance.Harness {
		own := memory(memlock.NewServer())
		own.Virtual, own.TTL, own.Slack = h.Virtual, h.TTL, h.Slack
		own.Driver = func(context.Context) (driver.Driver, error) { return memlock.NewServer().Driver(), nil }
		return own
	}},
	{"shared-client", "request/independent-clients", "the harness returns one client each time", func(h conformance.Harness) conformance.Harness {
		own := memory(memlock.NewServer())
		own.Virtual, own.TTL, own.Slack = h.Virtual, h.TTL, h.Slack
		shared, err := own.Driver(context.Background())
		own.Driver = func(context.Context) (driver.Driver, error) { return shared, err }
		return own
	}},
	{"close-closes-all", "request/independent-clients", "closing one client closes the others", defect{
		close: func(c *client) error {
			c.w.mu.Lock()
			defer c.w.mu.Unlock()
			for _, other := range c.w.clients {
				_ = other.Driver.Close()
			}
			return nil
		},
	}.harness},
	{"close-frees", "request/independent-clients", "closing a client releases what it holds", defect{
		try: func(c *client, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := c.Driver.TryAcquire(ctx, r)
			if err == nil {
				c.w.mu.Lock()
				c.w.grants[g.Attempt] = g
				c.w.mu.Unlock()
			}
			return g, err
		},
		close: func(c *client) error {
			c.w.mu.Lock()
			defer c.w.mu.Unlock()
			for _, g := range c.w.grants {
				if g.Owner == "A" {
					_ = c.Driver.Release(context.Background(), g)
				}
			}
			return c.Driver.Close()
		},
	}.harness},
	{"keys-folded", "contract/keys-are-apart", "keys are folded to lower case", renamed(strings.ToLower).harness},
	{"keys-cut", "contract/keys-are-apart", "keys are cut after 200 bytes", renamed(func(k string) string { return k[:min(len(k), 200)] }).harness},
	{"keys-escaped-badly", "contract/keys-are-apart", "different bytes become the same escape", renamed(strings.NewReplacer(" ", "_", "/", "_", ":", "_", "\t", "_").Replace).harness},
	{"release-does-nothing", "contract/hand-over", "a release is acknowledged and not done", defect{
		release: func(*client, context.Context, driver.Grant) error { return nil },
	}.harness},
	{"release-by-anyone", "request/only-owner-releases", "a release does not compare the attempt", defect{
		release: func(c *client, ctx context.Context, g driver.Grant) error {
			err := c.Driver.Release(ctx, g)
			if st, _ := c.Driver.Inspect(ctx, g.Key); errors.Is(err, driver.ErrLost) && st.Held {
				return c.Driver.Break(ctx, g.Key, st.Token, driver.Break{Now: true})
			}
			return err
		},
	}.harness},
	{"release-by-token", "request/only-owner-releases", "a release compares the token alone", defect{
		release: func(c *client, ctx context.Context, g driver.Grant) error {
			err := c.Driver.Release(ctx, g)
			if st, _ := c.Driver.Inspect(ctx, g.Key); errors.Is(err, driver.ErrLost) && st.Held && st.Token == g.Token {
				return c.Driver.Break(ctx, g.Key, st.Token, driver.Break{Now: true})
			}
			return err
		},
	}.harness},
	{"release-needs-token", "request/release-by-request", "a release without its token finds nothing", defect{
		release: func(c *client, ctx context.Context, g driver.Grant) error {
			if g.Token == 0 {
				return driver.ErrLost
			}
			return c.Driver.Release(ctx, g)
		},
	}.harness},
	{"released-renews", "request/released-is-over", "a released grant is renewed as long as the key is free", defect{
		renew: func(c *client, ctx context.Context, g driver.Grant) (driver.Grant, error) {
			renewed, err := c.Driver.Renew(ctx, g)
			if st, _ := c.Driver.Inspect(ctx, g.Key); errors.Is(err, driver.ErrLost) && !st.Held && st.Token == g.Token {
				g.Sent, g.Left = driver.Instant{}, g.TTL
				return g, nil
			}
			return renewed, err
		},
	}.harness},
	{"place-leaks", "contract/cancelled-wait", "a cancelled wait leaves its place in the queue", defect{
		release: func(c *client, ctx context.Context, g driver.Grant) error {
			if st, err := c.Driver.Inspect(ctx, g.Key); err == nil && st.Held && st.Attempt != g.Attempt {
				return nil
			}
			return c.Driver.Release(ctx, g)
		},
	}.harness},
	{"renews-after-takeover", "expiry/renew-too-late", "a renewal succeeds whoever holds the key", defect{
		renew: func(c *client, ctx context.Context, g driver.Grant) (driver.Grant, error) {
			if renewed, err := c.Driver.Renew(ctx, g); err == nil {
				return renewed, nil
			}
			g.Sent, g.Left = driver.Instant{}, g.TTL
			return g, nil
		},
	}.harness},
	{"renewal-does-nothing", "renewal/keeps-the-key", "a renewal is acknowledged and extends nothing", defect{
		renew: func(c *client, ctx context.Context, g driver.Grant) (driver.Grant, error) {
			if st, err := c.Driver.Inspect(ctx, g.Key); err != nil || st.Attempt != g.Attempt {
				return g, driver.ErrLost
			}
			g.Sent, g.Left = driver.Instant{}, g.TTL
			return g, nil
		},
	}.harness},
	{"renews-any-attempt", "request/only-owner-renews", "a renewal compares the token alone", defect{
		renew: func(c *client, ctx context.Context, g driver.Grant) (driver.Grant, error) {
			if st, _ := c.Driver.Inspect(ctx, g.Key); st.Held && st.Token == g.Token {
				g.Attempt = st.Attempt
			}
			return c.Driver.Renew(ctx, g)
		},
	}.harness},
	{"token-per-renewal", "request/only-owner-renews", "each renewal draws a new token", retokenedRenewal().harness},
	{"token-reset-on-release", "contract/hand-over", "tokens begin again behind a release", retokened(func(w *world, r driver.Request, _ driver.Token) driver.Token {
		w.last[r.Key]++ // a release sets it to 0
		return w.last[r.Key]
	}).harness},
	{"token-repeated", "expiry/dead-holder", "a takeover repeats the token of the grant that expired", retokened(func(w *world, r driver.Request, inner driver.Token) driver.Token {
		if last := w.last[r.Key]; last != 0 { // no release in between
			return last
		}
		w.last[r.Key] = inner
		return inner
	}).harness},
	{"token-per-process", "contract/tokens-rise", "each client counts for itself", defect{
		info: noQueue,
		try: func(c *client, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := c.Driver.TryAcquire(ctx, r)
			if err == nil {
				c.w.mu.Lock()
				defer c.w.mu.Unlock()
				c.w.inner[g.Attempt] = g.Token
				key := r.Key + r.Owner
				c.w.last[key]++
				g.Token = c.w.last[key]
			}
			return g, err
		},
		renew: func(c *client, ctx context.Context, g driver.Grant) (driver.Grant, error) {
			shown := g.Token
			c.w.mu.Lock()
			g.Token = c.w.inner[g.Attempt]
			c.w.mu.Unlock()
			renewed, err := c.Driver.Renew(ctx, g)
			renewed.Token = shown
			return renewed, err
		},
	}.harness},
	{"token-drawn-early", "fence/rising", "the token is drawn before the grant", tokenDrawnEarly().harness},
	{"own-grant-held", "request/re-sent-try", "a try that is sent again is refused because of its own grant", defect{
		try: func(c *client, ctx context.Context, r driver.Request) (driver.Grant, error) {
			if st, _ := c.Driver.Inspect(ctx, r.Key); st.Held && st.Attempt == r.Attempt {
				return driver.Grant{}, &driver.HeldError{Owner: st.Owner, Token: st.Token, Attempt: st.Attempt, ExpiresIn: st.ExpiresIn}
			}
			return c.Driver.TryAcquire(ctx, r)
		},
	}.harness},
	{"re-send-extends", "request/re-sent-try", "a try that is sent again begins its ttl anew", defect{
		try: func(c *client, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := c.Driver.TryAcquire(ctx, r)
			if err == nil {
				sent := driver.PackageNow()
				_, _ = c.Driver.Renew(ctx, g)
				g.Sent = sent
			}
			return g, err
		},
	}.harness},
	{"never-expires", "expiry/dead-holder", "grants end by the holder's clock alone", ttlTimes(20, 1).harness},
	{"expires-early", "expiry/dead-holder", "the server keeps a grant for 0.8 of its ttl", ttlTimes(4, 5).harness},
	{"ttl-cut", "expiry/odd-ttl", "ttls are cut to seconds, and told as wanted", defect{
		try: func(c *client, ctx context.Context, r driver.Request) (driver.Grant, error) {
			return withTTL(r.TTL.Truncate(time.Second), r, func(r driver.Request) (driver.Grant, error) { return c.Driver.TryAcquire(ctx, r) })
		},
	}.harness},
	{"check-then-act", "contention/barrier", "the key is looked at and then taken, in two steps", defect{
		try: func(c *client, ctx context.Context, r driver.Request) (driver.Grant, error) {
			st, _ := c.Driver.Inspect(ctx, r.Key)
			if st.Held {
				return c.Driver.TryAcquire(ctx, r)
			}
			pause(ctx, time.Millisecond)
			if st, _ := c.Driver.Inspect(ctx, r.Key); st.Held {
				_ = c.Driver.Break(ctx, r.Key, st.Token, driver.Break{Now: true})
			}
			return c.Driver.TryAcquire(ctx, r)
		},
	}.harness},
	{"refusal-names-nobody", "contract/refusal-names-holder", "a refusal says no more than held", defect{
		try: func(c *client, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := c.Driver.TryAcquire(ctx, r)
			if errors.Is(err, driver.ErrHeld) {
				err = &driver.HeldError{}
			}
			return g, err
		},
	}.harness},
	{"refusal-too-long", "request/refusal", "a refusal tells an end that is too far", defect{
		try: func(c *client, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := c.Driver.TryAcquire(ctx, r)
			var held *driver.HeldError
			if errors.As(err, &held) {
				held.ExpiresIn *= 2
			}
			return g, err
		},
	}.harness},
	{"try-queues", "request/refusals-leave-nothing", "a refused try takes a place in the queue", defect{
		try: func(c *client, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := c.Driver.TryAcquire(ctx, r)
			if errors.Is(err, driver.ErrHeld) {
				_, _ = c.Driver.Enqueue(ctx, r)
			}
			return g, err
		},
	}.harness},
	{"context-means-held", "request/ended-context", "a call whose context has ended answers held", defect{
		try: func(c *client, ctx context.Context, r driver.Request) (driver.Grant, error) {
			if ctx.Err() != nil {
				return driver.Grant{}, &driver.HeldError{}
			}
			return c.Driver.TryAcquire(ctx, r)
		},
	}.harness},
	{"undeclared-works", "request/undeclared-operations", "an operation that is not declared answers nil", defect{
		info: func(i driver.Info) driver.Info {
			i.Features = slices.DeleteFunc(slices.Clone(i.Features), func(f driver.Feature) bool { return f == driver.FeaturePing })
			return i
		},
	}.harness},
	{"floor-ignored", "request/floor", "a try ignores the floor", defect{
		try: func(c *client, ctx context.Context, r driver.Request) (driver.Grant, error) {
			r.Floor = 0
			return c.Driver.TryAcquire(ctx, r)
		},
	}.harness},
	{"queued-floor-ignored", "queue/floor", "a place forgets the floor", defect{
		enqueue: func(c *client, ctx context.Context, r driver.Request) (driver.Grant, error) {
			r.Floor = 0
			return c.Driver.Enqueue(ctx, r)
		},
	}.harness},
	{"ghosts-kept-alive", "queue/lost-enqueue", "places never die", defect{
		enqueue: func(c *client, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := c.Driver.Enqueue(ctx, r)
			if errors.Is(err, driver.ErrHeld) {
				c.keepAlive(r)
			}
			return g, err
		},
	}.harness},
	{"enqueue-twice", "queue/places", "an enqueue that is sent again takes a second place", defect{
		enqueue: func(c *client, ctx context.Context, r driver.Request) (driver.Grant, error) {
			c.w.mu.Lock()
			again := slices.ContainsFunc(c.w.places[r.Key], func(p driver.Request) bool { return p.Attempt == r.Attempt })
			c.w.places[r.Key] = append(c.w.places[r.Key], r)
			c.w.mu.Unlock()
			if again {
				_ = c.Driver.Release(ctx, driver.Grant{Request: r}) // the last place is the one that counts
			}
			return c.Driver.Enqueue(ctx, r)
		},
		poll: func(c *client, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := c.Driver.Poll(ctx, r)
			var held *driver.HeldError
			if errors.As(err, &held) {
				c.w.mu.Lock()
				held.Ahead = 0 // it counts itself
				c.w.mu.Unlock()
			}
			return g, err
		},
	}.harness},
	{"last-come-first", "queue/fifo", "the last to come is served first", defect{
		enqueue: func(c *client, ctx context.Context, r driver.Request) (driver.Grant, error) {
			c.w.mu.Lock()
			defer c.w.mu.Unlock()
			var waiting []driver.Request
			for _, p := range c.w.places[r.Key] {
				if _, err := c.Driver.Poll(ctx, p); p.Attempt != r.Attempt && errors.Is(err, driver.ErrHeld) {
					waiting = append(waiting, p)
					_ = c.Driver.Release(ctx, driver.Grant{Request: p})
				}
			}
			g, err := c.Driver.Enqueue(ctx, r)
			for _, p := range waiting {
				_, _ = c.Driver.Enqueue(ctx, p)
			}
			c.w.places[r.Key] = append([]driver.Request{r}, waiting...)
			return g, err
		},
	}.harness},
	{"poll-extends", "queue/poll-extends-nothing", "a poll that finds its grant renews it", defect{
		poll: func(c *client, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := c.Driver.Poll(ctx, r)
			if err == nil {
				sent := driver.PackageNow()
				_, _ = c.Driver.Renew(ctx, g)
				g.Sent, g.Left = sent, g.TTL
			}
			return g, err
		},
	}.harness},
	{"push-counts-from-hearing", "queue/expired-push", "a push counts from when it is heard", defect{
		listen: func(c *client, ctx context.Context, r driver.Request) (driver.Ticket, error) {
			t, err := c.Driver.Listen(ctx, r)
			return freshTicket{t}, err
		},
	}.harness},
	{"never-pushes", "queue/early-push", "nobody is told that it was granted the key", defect{
		listen: func(c *client, ctx context.Context, r driver.Request) (driver.Ticket, error) {
			t, err := c.Driver.Listen(ctx, r)
			return deafTicket{t}, err
		},
	}.harness},
	{"late-push-released", "queue/late-push", "a push that nobody listens to any more is released", defect{
		listen: func(c *client, ctx context.Context, r driver.Request) (driver.Ticket, error) {
			t, err := c.Driver.Listen(ctx, r)
			return &tidyTicket{Ticket: t, c: c, pushes: make(chan driver.Grant, 1), closed: make(chan struct{})}, err
		},
	}.harness},
}
