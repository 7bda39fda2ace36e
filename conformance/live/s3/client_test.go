package s3_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/conformance/live"
	"github.com/fencelock/locker/conformance/live/netfault"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/s3lock"
)

// shared is the server of the tests that harm only their own clients' networks.
var shared = live.Once(func(tb testing.TB) *live.S3Server { return live.S3(tb, live.S3Options{}) })

// full reports whether the tests are to run at their full size.
func full() bool {
	size := os.Getenv(conformance.SizeVariable)
	return size == "full" || size == "soak"
}

// ttl is the least that the backend takes.
const ttl = 2 * time.Second

// space is a namespace of its own for a test.
type space struct {
	t    *testing.T
	s    *live.S3Server
	name string
	raw  *s3.Client
}

func newSpace(t *testing.T) space {
	t.Helper()
	return spaceOn(t, shared(t))
}

func spaceOn(t *testing.T, s *live.S3Server) space {
	t.Helper()
	raw, idle := accountOf(s).client(front(t, s))
	t.Cleanup(idle.CloseIdleConnections)
	return space{t, s, namespace(), raw}
}

// client is a driver behind a network of its own.
type client struct {
	*s3lock.Driver
	t   *testing.T
	net *netfault.HTTP
}

func (sp space) client(o s3lock.Options) client {
	sp.t.Helper()
	c := sp.opened(o)
	c.net.Counts()
	return c
}

// opened is a client whose open is counted.
func (sp space) opened(o s3lock.Options) client {
	sp.t.Helper()
	o.Namespace = sp.name
	d, net, err := accountOf(sp.s).networked(sp.t.Context(), target(sp.s), &o)
	if err != nil {
		sp.t.Fatal(err)
	}
	sp.t.Cleanup(func() { _ = d.Close() })
	return client{d.Driver, sp.t, net}
}

// within bounds one call generously: a test may stop the client in the middle of it.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func request(key string) driver.Request {
	return driver.Request{Key: key, Attempt: driver.NewAttempt(), TTL: ttl, Owner: "live"}
}

func (c client) try(r driver.Request) (driver.Grant, error) { return c.TryAcquire(within(c.t), r) }

func (c client) acquire(key string) driver.Grant {
	c.t.Helper()
	g, err := c.try(request(key))
	if err != nil {
		c.t.Fatalf("acquire %q: %v", key, err)
	}
	return g
}

func (c client) release(g driver.Grant) {
	c.t.Helper()
	if err := c.Release(within(c.t), g); err != nil {
		c.t.Fatalf("release %q: %v", g.Key, err)
	}
}

func (c client) refused(key string) {
	c.t.Helper()
	if g, err := c.try(request(key)); !errors.Is(err, driver.ErrHeld) {
		c.t.Errorf("try %q: got token %v, %v; want ErrHeld", key, g.Token, err)
	}
}

// outcome is what an acquire that runs beside the test came to.
type outcome struct {
	driver.Grant
	err error
}

func (c client) beside(r driver.Request) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		g, err := c.try(r)
		done <- outcome{g, err}
	}()
	return done
}

// What a client sends, for rules.
func creates(r *http.Request) bool {
	return r.Method == http.MethodPut && r.Header.Get("If-None-Match") != ""
}

func replaces(r *http.Request) bool {
	return r.Method == http.MethodPut && r.Header.Get("If-Match") != ""
}

// gate stops a client at its next request that matches, until open is called.
type gate struct{ reached, opened chan struct{} }

func (c client) stopAt(match func(*http.Request) bool) gate {
	g := gate{make(chan struct{}), make(chan struct{})}
	c.net.Rules(netfault.Rule{Match: match, Times: 1, Before: func(*http.Request) {
		close(g.reached)
		<-g.opened
	}})
	c.t.Cleanup(func() {
		select {
		case <-g.opened:
		default:
			close(g.opened)
		}
	})
	return g
}

func (g gate) wait(t *testing.T) {
	t.Helper()
	select {
	case <-g.reached:
	case <-time.After(20 * time.Second):
		t.Fatal("the client never came to where it is to be stopped")
	}
}

func (g gate) open() { close(g.opened) }

// objects returns the names of a key's objects.
func (sp space) objects(key string) []string {
	sp.t.Helper()
	prefix := sp.name + "/" + key + "/"
	out, err := sp.raw.ListObjectsV2(within(sp.t), &s3.ListObjectsV2Input{Bucket: &sp.s.Bucket, Prefix: &prefix})
	if err != nil {
		sp.t.Fatal(err)
	}
	var names []string
	for _, o := range out.Contents {
		names = append(names, (*o.Key)[len(prefix):])
	}
	return names
}
