package s3_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/conformance/live/netfault"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/s3lock"
)

// over is a driver whose client has another transport, and perhaps retries, with a network
// between it and the server.
func (sp space) over(rt http.RoundTripper, change ...func(*s3.Options)) client {
	sp.t.Helper()
	net, err := netfault.ListenHTTP(target(sp.s), &netfault.HTTPOptions{Verb: netfault.S3Verb})
	if err != nil {
		sp.t.Fatal(err)
	}
	sp.t.Cleanup(func() { _ = net.Close() })
	raw, idle := accountOf(sp.s).client(net.URL())
	sp.t.Cleanup(idle.CloseIdleConnections)
	c := s3.New(raw.Options(), append(change, func(o *s3.Options) { o.HTTPClient = &http.Client{Transport: rt} })...)
	d, err := s3lock.NewDriver(within(sp.t), c, sp.s.Bucket, &s3lock.Options{Namespace: sp.name})
	if err != nil {
		sp.t.Fatal(err)
	}
	sp.t.Cleanup(func() { _ = d.Close() })
	net.Counts()
	return client{d, sp.t, net}
}

// transport is one whose connections end with the test.
func transport(t *testing.T) *http.Transport {
	t.Helper()
	rt := &http.Transport{}
	t.Cleanup(rt.CloseIdleConnections)
	return rt
}

// resending sends a write again whose connection broke, as web servers in front of a store
// do.
type resending struct{ http.RoundTripper }

func (r resending) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodPut {
		return r.RoundTripper.RoundTrip(req)
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	again := req.Clone(req.Context())
	req.Body, again.Body = io.NopCloser(bytes.NewReader(body)), io.NopCloser(bytes.NewReader(body))
	res, err := r.RoundTripper.RoundTrip(req)
	if err != nil {
		res, err = r.RoundTripper.RoundTrip(again)
	}
	return res, err
}

// NE15: whoever retries a write whose reply was lost, the client library, which is told not
// to, the core, or something between, each call succeeds and is made once.
func TestLostRepliesOfWrites(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	sp.client(s3lock.Options{}) // the probe is not what this is about
	for name, c := range map[string]client{
		"a client with retries": sp.over(transport(t), func(o *s3.Options) {
			o.RetryMaxAttempts, o.RetryMode, o.Retryer = 9, aws.RetryModeStandard, nil
		}),
		"something between": sp.over(resending{transport(t)}),
	} {
		l, err := locker.New(c, &locker.Options{TTL: 2 * ttl})
		if err != nil {
			t.Fatal(err)
		}
		lost := func(what string, match func(*http.Request) bool, call func() error) {
			t.Helper()
			c.net.Rules(netfault.Rule{Match: match, Times: 1, Do: netfault.DropReply})
			if err := call(); err != nil {
				t.Errorf("%s: %s whose reply was lost: got %v", name, what, err)
			}
			if n := c.net.Fired(); n != 1 {
				t.Errorf("%s: %s: %d replies were lost, want 1", name, what, n)
			}
			c.net.Rules()
		}
		var lease *locker.Lease
		lost("an acquire", creates, func() (err error) {
			lease, err = l.Acquire(within(t), "k")
			return err
		})
		if lease == nil {
			t.FailNow()
		}
		lost("a renewal", replaces, func() error {
			err := lease.Renew(within(t))
			if errors.Is(err, driver.ErrAmbiguous) { // nobody has asked again yet
				err = lease.Renew(within(t))
			}
			return err
		})
		lost("a release", replaces, func() error { return lease.Release(within(t)) })
		first := lease.Token()
		if lease, err = l.TryAcquire(within(t), "k"); err != nil || lease.Token() != first+1 {
			t.Errorf("%s: the next: got %v, want token %v", name, err, first+1)
		}
		if err := l.Close(); err != nil {
			t.Errorf("%s: Close: %v", name, err)
		}
	}
}

// The same for the driver alone, which knows what it has ended by the writer of the end.
func TestEndsThatAreDeliveredTwice(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	sp.client(s3lock.Options{})
	c := sp.over(resending{transport(t)})
	g := c.acquire("k")
	c.net.Rules(netfault.Rule{Match: replaces, Times: 1, Do: netfault.DropReply})
	if err := c.Release(within(t), g); err != nil || c.net.Fired() != 1 {
		t.Errorf("release: got %v, %d replies lost", err, c.net.Fired())
	}
	c.net.Rules()
	g = c.acquire("k")
	c.net.Rules(netfault.Rule{Match: replaces, Times: 1, Do: netfault.DropReply})
	if err := c.Break(within(t), "k", g.Token, driver.Break{Now: true}); err != nil || c.net.Fired() != 1 {
		t.Errorf("break now: got %v, %d replies lost", err, c.net.Fired())
	}
	c.net.Rules()
	if err := c.Release(within(t), g); !errors.Is(err, driver.ErrLost) {
		t.Errorf("release of what was broken: got %v, want ErrLost", err)
	}
}

// A write that is delivered again a little later changes nothing.
func TestRepeatedWrites(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	b := sp.client(s3lock.Options{})
	var applied, refused atomic.Int64 // by the server, as another proxy right before it hears
	a := sp.behind(func(r *http.Response) {
		if r.StatusCode == http.StatusOK {
			applied.Add(1)
		} else {
			refused.Add(1)
		}
	})
	a.net.Rules(netfault.Rule{Match: writes, Do: netfault.Repeat, After: 200 * time.Millisecond})
	g := a.acquire("k")
	g, err := a.Renew(within(t), g)
	if err != nil {
		t.Fatal(err)
	}
	a.release(g)
	next := b.acquire("k")
	eventually(t, 20*time.Second, "the server has answered three writes and their copies", func() bool { return applied.Load()+refused.Load() == 6 })
	if applied.Load() != 3 {
		t.Errorf("the server applied %d writes, and refused %d; want 3 and 3", applied.Load(), refused.Load())
	}
	if next, err = b.Renew(within(t), next); err != nil || next.Token != g.Token+1 {
		t.Errorf("the next holder renews: got token %v, %v; want %v", next.Token, err, g.Token+1)
	}
	b.release(next)
	if got := b.acquire("k"); got.Token != g.Token+2 {
		t.Errorf("token: got %v, want %v", got.Token, g.Token+2)
	}
}

// behind is a client of which the server's answers to its writes are heard, whatever its own
// network does to them.
func (sp space) behind(heard func(*http.Response)) client {
	sp.t.Helper()
	server, err := netfault.ListenHTTP(target(sp.s), nil)
	if err != nil {
		sp.t.Fatal(err)
	}
	sp.t.Cleanup(func() { _ = server.Close() })
	d, net, err := accountOf(sp.s).networked(sp.t.Context(), netfault.At(server.Addr()), &s3lock.Options{Namespace: sp.name})
	if err != nil {
		sp.t.Fatal(err)
	}
	sp.t.Cleanup(func() { _ = d.Close() })
	server.Rules(netfault.Rule{Match: writes, Behind: heard})
	return client{d.Driver, sp.t, net}
}

// NE13: a pool that is in use until the deadline, and a name that is gone while leases are
// held: the failures are definite and in time, and when it is over leases go on.
func TestUnreachableWhileHeld(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	sp.client(s3lock.Options{})
	pool := transport(t)
	pool.MaxConnsPerHost = 1
	var gone atomic.Bool
	names := transport(t)
	names.DisableKeepAlives = true
	names.DialContext = func(ctx context.Context, network, at string) (net.Conn, error) {
		if gone.Load() {
			at = "no-such-host.invalid:80"
		}
		return (&net.Dialer{}).DialContext(ctx, network, at)
	}
	for name, rt := range map[string]*http.Transport{"pool": pool, "name": names} {
		c := sp.over(rt)
		r := request(name)
		r.TTL = time.Minute // what it is not about
		g, err := c.try(r)
		if err != nil {
			t.Fatal(err)
		}
		reached := make(chan struct{}, 1)
		if rt == pool {
			c.net.Rules(netfault.Rule{Do: netfault.Silence, Times: 1, Before: func(*http.Request) { reached <- struct{}{} }})
			go func() { _, _ = c.Inspect(t.Context(), "other") }()
			<-reached
		}
		gone.Store(rt == names)
		c.net.Counts()
		definite := func(what string, call func(context.Context) error) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			begun := time.Now()
			err := call(ctx)
			took := time.Since(begun)
			if !errors.Is(err, driver.ErrUnavailable) || driver.IsAmbiguous(err) || took > 10*time.Second {
				t.Errorf("%s: %s: got %v after %v, want ErrUnavailable in about a second", name, what, err, took)
			}
		}
		definite("acquire", func(ctx context.Context) error { _, err := c.TryAcquire(ctx, request("other")); return err })
		definite("renew", func(ctx context.Context) error { _, err := c.Renew(ctx, g); return err })
		definite("ping", c.Ping)
		if n := c.net.Counts(); len(n) > 0 {
			t.Errorf("%s: %v were sent", name, n)
		}
		gone.Store(false)
		c.net.Rules() // the silence ends
		if got, err := c.Renew(within(t), g); err != nil || got.Token != g.Token {
			t.Errorf("%s: when it is over: got token %v, %v; want %v", name, got.Token, err, g.Token)
		}
	}
}

// VersityGW lists its own file of a write that is under way, before the objects: it is passed
// over.
func TestTemporaryFilesOfTheStore(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	a := sp.client(s3lock.Options{})
	g := a.acquire("k")
	name := sp.name + "/k/.9999999998.json.sgwtmp.1"
	if _, err := sp.raw.PutObject(within(t), &s3.PutObjectInput{Bucket: &sp.s.Bucket, Key: &name, Body: bytes.NewReader([]byte("{}"))}); err != nil {
		t.Fatal(err)
	}
	sp.client(s3lock.Options{}).refused("k")
	a.release(g)
	if got := sp.client(s3lock.Options{}).acquire("k"); got.Token != g.Token+1 {
		t.Errorf("token: got %v, want %v", got.Token, g.Token+1)
	}
}
