package s3lock

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fencelock/locker/driver"
)

// over is the double's client over another transport.
func (d *double) over(rt http.RoundTripper) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: &d.URL, UsePathStyle: true, Region: "us-east-1",
		Credentials: d.client().Options().Credentials, HTTPClient: &http.Client{Transport: rt},
	})
}

// What failed before a connection was there was not applied.
func TestNoConnectionIsDefinite(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	var broken atomic.Bool
	d, err := NewDriver(within(t), s.over(&http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, at string) (net.Conn, error) {
			if broken.Load() {
				return nil, errors.New("nobody listens")
			}
			return (&net.Dialer{}).DialContext(ctx, network, at)
		},
	}), testBucket, nil)
	if err != nil {
		t.Fatal(err)
	}
	definite := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, driver.ErrUnavailable) || driver.IsAmbiguous(err) {
			t.Errorf("%s: got %v, want ErrUnavailable", what, err)
		}
	}
	g := acquire(t, d, "k")
	broken.Store(true)
	_, err = d.Renew(within(t), g)
	definite("renew", err)
	broken.Store(false)
	release(t, d, g)
	broken.Store(true)
	_, err = d.TryAcquire(within(t), request("k"))
	definite("acquire, warm", err)
}

// The same where all connections are in use until the deadline.
func TestNoFreeConnectionIsDefinite(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	d, err := NewDriver(within(t), s.over(&http.Transport{MaxConnsPerHost: 1}), testBucket, nil)
	if err != nil {
		t.Fatal(err)
	}
	g := acquire(t, d, "k")
	asked := make(chan struct{}, 1)
	s.wrong(func(s *double) {
		s.answer = func(r *http.Request) (int, string, bool) {
			asked <- struct{}{}
			<-r.Context().Done()
			return 500, "", false
		}
	})
	go func() { _, _ = d.Inspect(within(t), "other") }()
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := d.Renew(ctx, g); !errors.Is(err, driver.ErrUnavailable) || driver.IsAmbiguous(err) {
		t.Errorf("renew: got %v, want ErrUnavailable", err)
	}
}

// A connection that breaks while a write is on it leaves its outcome unknown, on whatever
// transport.
func TestBrokenConnectionIsUnknown(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	sealed := httptest.NewUnstartedServer(s)
	sealed.EnableHTTP2 = true
	sealed.StartTLS()
	t.Cleanup(sealed.Close)
	for name, c := range map[string]*s3.Client{
		"traced": s.over(&http.Transport{}), "of its own kind": s.over(untraced{}),
		"HTTP/2": s3.New(s.client().Options(), func(o *s3.Options) { o.BaseEndpoint, o.HTTPClient = &sealed.URL, sealed.Client() }),
	} {
		d, err := NewDriver(within(t), c, testBucket, nil)
		if err != nil {
			t.Fatal(err)
		}
		g := acquire(t, d, strings.ReplaceAll(name, "/", ""))
		s.wrong(func(s *double) {
			s.answer = func(*http.Request) (int, string, bool) { panic(http.ErrAbortHandler) }
		})
		if _, err := d.Renew(within(t), g); !driver.IsAmbiguous(err) {
			t.Errorf("%s: renew: got %v, want an unknown outcome", name, err)
		}
		s.wrong(func(s *double) { s.answer = nil })
	}
}

// untraced tells nothing of its connections.
type untraced struct{}

func (untraced) RoundTrip(r *http.Request) (*http.Response, error) {
	bare, err := http.NewRequest(r.Method, r.URL.String(), r.Body) //nolint:noctx // without its trace
	if err != nil {
		return nil, err
	}
	bare.Header, bare.ContentLength = r.Header, r.ContentLength
	return http.DefaultTransport.RoundTrip(bare)
}

// elsewhere looks for credentials over HTTP and finds none.
type elsewhere struct{ url string }

func (e elsewhere) Retrieve(ctx context.Context) (aws.Credentials, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url, nil)
	if err != nil {
		return aws.Credentials{}, err
	}
	res, err := http.DefaultClient.Do(r)
	if err == nil {
		err = res.Body.Close()
	}
	return aws.Credentials{}, errors.Join(err, errors.New("no role"))
}

func TestCredentialsThatAreSoughtOverHTTP(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	role := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(role.Close)
	c := s3.New(s3.Options{BaseEndpoint: &s.URL, UsePathStyle: true, Region: "us-east-1", Credentials: aws.NewCredentialsCache(elsewhere{role.URL})})
	if _, err := NewDriver(within(t), c, testBucket, nil); !errors.Is(err, ErrDenied) || !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("got %v, want ErrDenied", err)
	}
}

// eager is a client as programs have them, with retries and checksums of its own.
func (d *double) eager() *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: &d.URL, UsePathStyle: true, Region: "us-east-1", Credentials: d.client().Options().Credentials,
		RetryMaxAttempts: 9, RetryMode: aws.RetryModeAdaptive,
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenSupported, ResponseChecksumValidation: aws.ResponseChecksumValidationWhenSupported,
	})
}

// The client's own retries are never used, whatever client it is: behind a lost reply they
// would find their own write and call it somebody else's.
func TestRetriesAreOff(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	d, err := NewDriver(within(t), s.eager(), testBucket, nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := NewFence(s.eager(), testBucket, "report.csv")
	if err != nil {
		t.Fatal(err)
	}
	ctx := within(t)
	s.verbs()
	s.wrong(func(s *double) {
		s.answer = func(*http.Request) (int, string, bool) { return 500, "InternalError", false }
	})
	for what, c := range map[string]struct {
		verb string
		call func() error
	}{
		"get":        {"GET", func() error { _, err := d.store.get(ctx, "x", ""); return err }},
		"head":       {"HEAD", func() error { _, err := d.store.head(ctx, "x"); return err }},
		"create":     {"PUT", func() error { _, err := d.store.create(ctx, "x", []byte("x")); return err }},
		"replace":    {"PUT", func() error { _, err := d.store.replace(ctx, "x", `"x"`, []byte("x")); return err }},
		"delete":     {"DELETE", func() error { return d.store.delete(ctx, "x") }},
		"delete all": {"POST", func() error { return d.store.deleteAll(ctx, []string{"1", "2", "3", "4", "5"}) }},
		"list":       {"LIST", func() error { _, err := d.store.list(ctx, "x", "", "", 1, false); return err }},
		"ping":       {"HEAD", func() error { return d.store.ping(ctx) }},
		"fence":      {"GET", func() error { return f.Write(ctx, 1, "x") }},
	} {
		if err := c.call(); err == nil {
			t.Errorf("%s: got no error", what)
		}
		sent(t, s, what, map[string]int{c.verb: 1})
	}
	s.wrong(func(s *double) { s.answer = refuses("If-None-Match", 500, "InternalError") })
	if err := f.Write(ctx, 1, "x"); !driver.IsAmbiguous(err) {
		t.Errorf("a fence's write: got %v, want an unknown outcome", err)
	}
	sent(t, s, "a fence's write", map[string]int{"GET": 1, "PUT": 1})
}

// No request carries a checksum that S3 does not require: other stores do not know them.
func TestNoChecksumsBeyondWhatIsRequired(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	d, err := NewDriver(within(t), s.eager(), testBucket, nil) // with a probe
	if err != nil {
		t.Fatal(err)
	}
	g, err := d.Renew(within(t), acquire(t, d, "k"))
	if err != nil {
		t.Fatal(err)
	}
	release(t, d, g)
	heads := s.lastHeads()
	if len(heads) < 80 {
		t.Errorf("%d requests: too few to tell", len(heads))
	}
	for _, h := range heads {
		for name, values := range h {
			if strings.HasPrefix(name, "X-Amz-Checksum") || strings.HasPrefix(name, "X-Amz-Sdk-Checksum") || name == "X-Amz-Trailer" || name == "Trailer" {
				t.Fatalf("a request carries %s: %v", name, values)
			}
		}
	}
}

// resending is something between that sends writes again whose reply it has lost, as web
// servers in front of a store do: the client has the answer to the second one.
type resending struct{ http.RoundTripper }

func (r resending) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodPut {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		first := req.Clone(req.Context())
		first.Body, req.Body = io.NopCloser(bytes.NewReader(body)), io.NopCloser(bytes.NewReader(body))
		res, err := r.RoundTripper.RoundTrip(first)
		if err != nil {
			return nil, err
		}
		if err := res.Body.Close(); err != nil {
			return nil, err
		}
	}
	return r.RoundTripper.RoundTrip(req)
}

// NE15: a write that something between delivers twice, and of which the client sees the second
// answer only, is known for its own.
func TestWritesThatAreDeliveredTwice(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	s.driver(nil) // the probe is not what this is about
	between := s.over(resending{&http.Transport{}})
	open := func() *Driver {
		d, err := NewDriver(within(t), between, testBucket, nil)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := open()
	g := acquire(t, d, "k")
	g, err := d.Renew(within(t), g)
	if err != nil || g.Token != 1 {
		t.Fatalf("renew: got token %v, %v", g.Token, err)
	}
	if err := d.Release(within(t), g); err != nil {
		t.Errorf("release: %v", err)
	}
	g = acquire(t, d, "k")
	if err := d.Break(within(t), "k", g.Token, driver.Break{}); err != nil {
		t.Errorf("break: %v", err)
	}
	if err := d.Break(within(t), "k", g.Token, driver.Break{Now: true}); err != nil {
		t.Errorf("break now: %v", err)
	}
	if g = acquire(t, d, "k"); g.Token != 3 {
		t.Errorf("token: got %v, want 3", g.Token)
	}
	then := s.now()
	s.wrong(func(s *double) { s.now = func() time.Time { return then.Add(ttl + margin + second) } })
	d = open() // the one before would notice the jump
	if g = acquire(t, d, "k"); g.Token != 4 {
		t.Errorf("token behind a seal: got %v, want 4", g.Token)
	}
	// It is no success that somebody else has ended it.
	if err := s.driver(nil).Break(within(t), "k", g.Token, driver.Break{Now: true}); err != nil {
		t.Fatal(err)
	}
	if err := d.Release(within(t), g); !errors.Is(err, driver.ErrLost) {
		t.Errorf("release of what was broken: got %v, want ErrLost", err)
	}
	f, err := NewFence(between, testBucket, "report.csv")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Write(within(t), 3, "three"); err != nil {
		t.Errorf("a fence's write: %v", err)
	}
	if got, err := f.Read(within(t), 3); got != "three" || err != nil {
		t.Errorf("read: got %q, %v", got, err)
	}
}
