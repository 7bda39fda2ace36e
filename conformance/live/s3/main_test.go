package s3_test

import (
	"context"
	"errors"
	"flag"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/conformance/live"
	"github.com/fencelock/locker/conformance/live/netfault"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/s3lock"
)

// Where children find the store.
const (
	envEndpoint = "LOCKER_CONFORMANCE_S3"
	envBucket   = "LOCKER_CONFORMANCE_S3_BUCKET"
	envKey      = "LOCKER_CONFORMANCE_S3_KEY"
	envSecret   = "LOCKER_CONFORMANCE_S3_SECRET"
	envRule     = "LOCKER_CONFORMANCE_S3_RULE"
)

func TestMain(m *testing.M) {
	conformance.ServeIfChild(func(ctx context.Context) (driver.Driver, error) {
		at := account{bucket: os.Getenv(envBucket), key: os.Getenv(envKey), secret: os.Getenv(envSecret)}
		o := s3lock.Options{Namespace: suite}
		if os.Getenv(envRule) == s3lock.Observed.String() {
			o.Expiry = s3lock.Observed
		}
		return at.open(ctx, os.Getenv(envEndpoint), &o)
	})
	flag.Parse()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "test.parallel" })
	if !asked {
		if err := flag.Set("test.parallel", beside); err != nil {
			panic(err)
		}
	}
	live.Main(m)
}

// beside is how many tests run beside each other, however few processors there are: they wait
// for ttls to pass, and not for a processor.
const beside = "4"

// suite is the namespace of the conformance suite.
const suite = "suite"

// namespace is a name that no test has used, nor a run before on a server that stays.
func namespace() string { return "test-" + driver.NewAttempt().String() }

// account is who uses which bucket.
type account struct{ bucket, key, secret string }

func accountOf(s *live.S3Server) account { return account{s.Bucket, s.AccessKey, s.SecretKey} }

// client makes a client with connections of its own, as an ordinary program would.
func (a account) client(endpoint string) (*s3.Client, *http.Transport) {
	t := &http.Transport{MaxIdleConnsPerHost: 16}
	return s3.New(s3.Options{
		BaseEndpoint: &endpoint, UsePathStyle: true, Region: "us-east-1",
		Credentials: aws.NewCredentialsCache(credentials.NewStaticCredentialsProvider(a.key, a.secret, "")),
		HTTPClient:  &http.Client{Transport: t},
	}), t
}

// closing is a driver and what is closed with it.
type closing struct {
	*s3lock.Driver
	more func() error
}

func (c closing) Close() error { return errors.Join(c.Driver.Close(), c.more()) }

func (a account) open(ctx context.Context, endpoint string, o *s3lock.Options) (driver.Driver, error) {
	c, t := a.client(endpoint)
	d, err := s3lock.NewDriver(ctx, c, a.bucket, o)
	if err != nil {
		t.CloseIdleConnections()
		return nil, err
	}
	return closing{d, func() error { t.CloseIdleConnections(); return nil }}, nil
}

// networked is a client behind a proxy of its own.
func (a account) networked(ctx context.Context, target netfault.Target, o *s3lock.Options) (closing, *netfault.HTTP, error) {
	p, err := netfault.ListenHTTP(target, &netfault.HTTPOptions{Verb: netfault.S3Verb})
	if err != nil {
		return closing{}, nil, err
	}
	d, err := a.open(ctx, p.URL(), o)
	if err != nil {
		return closing{}, nil, errors.Join(err, p.Close())
	}
	c := d.(closing)
	idle := c.more
	c.more = func() error { return errors.Join(idle(), p.Close()) }
	return c, p, nil
}

// network is a client's path to S3 as the suite means it. What it loses the reply of has
// been applied, and so it begins with a write: an acquire here begins with reads, and one
// whose reply is lost is a definite failure, for which the suite has other cases.
type network struct{ *netfault.HTTP }

func (n network) Set(f conformance.NetworkFault, d time.Duration) {
	if f != conformance.LoseReplies {
		n.Rules()
		n.HTTP.Set(f, d)
		return
	}
	n.HTTP.Set(conformance.Sound, 0)
	wrote := false // Match has no two callers at a time
	n.Rules(netfault.Rule{Do: netfault.DropReply, Match: func(r *http.Request) bool {
		wrote = wrote || r.Method == http.MethodPut
		return wrote
	}})
}

// target is where the server is now.
func target(s *live.S3Server) netfault.Target {
	return func(context.Context) (string, error) { return s.Addr(), nil }
}

// front is an endpoint of the server that stays when it restarts. It passes bytes on.
func front(t testing.TB, s *live.S3Server) string {
	t.Helper()
	p, err := netfault.Listen(target(s), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return "http://" + p.Addr()
}

// harness is the suite's for a server that no other test harms. Clients use the endpoints
// in turn: several gateways on one store are one store.
func harness(t *testing.T, s *live.S3Server, rule s3lock.Expiry, endpoints ...string) conformance.Harness {
	t.Helper()
	at := accountOf(s)
	of := func(o s3lock.Options) *s3lock.Options {
		o.Expiry = rule
		if o.Namespace == "" {
			o.Namespace = suite
		}
		return &o
	}
	var next atomic.Int64
	endpoint := func() string { return endpoints[int(next.Add(1))%len(endpoints)] }
	control, idle := at.client(endpoints[0])
	t.Cleanup(idle.CloseIdleConnections)
	return conformance.Harness{
		Driver: func(ctx context.Context) (driver.Driver, error) {
			return at.open(ctx, endpoint(), of(s3lock.Options{}))
		},
		Control: func(ctx context.Context) error { // what every acquire ends with; the store's disk is in it
			if _, err := control.PutObject(ctx, &s3.PutObjectInput{Bucket: &s.Bucket, Key: aws.String("control/object"), Body: strings.NewReader("x")}); err != nil {
				return err
			}
			_, err := control.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &s.Bucket, Prefix: aws.String("control/"), MaxKeys: aws.Int32(1)})
			return err
		},
		Child: func(ctx context.Context) (*exec.Cmd, error) {
			cmd, err := conformance.Self(ctx)
			if err == nil {
				cmd.Env = append(os.Environ(), envEndpoint+"="+endpoint(), envBucket+"="+s.Bucket, envKey+"="+s.AccessKey, envSecret+"="+s.SecretKey,
					envRule+"="+rule.String())
			}
			return cmd, err
		},
		Fence: func(_ context.Context, name string) (conformance.Fence, error) {
			return s3lock.NewFence(control, s.Bucket, "fenced/"+name)
		},
		Faults: conformance.Faults{
			Client: func(ctx context.Context) (driver.Driver, conformance.Network, error) {
				c, p, err := at.networked(ctx, target(s), of(s3lock.Options{}))
				return c, network{p}, err
			},
			Unreachable: map[string]func(context.Context) (driver.Driver, error){
				"no such host": func(ctx context.Context) (driver.Driver, error) {
					return at.open(ctx, "http://no-such-host.invalid", of(s3lock.Options{}))
				},
				"nobody listens": func(ctx context.Context) (driver.Driver, error) {
					return at.open(ctx, "http://127.0.0.1:1", of(s3lock.Options{}))
				},
				"no TLS there": func(ctx context.Context) (driver.Driver, error) {
					return at.open(ctx, "https"+strings.TrimPrefix(endpoint(), "http"), of(s3lock.Options{}))
				},
				"a wrong secret": func(ctx context.Context) (driver.Driver, error) {
					stranger := at
					stranger.secret = "wrong"
					return stranger.open(ctx, endpoint(), of(s3lock.Options{}))
				},
			},
			Remove:    func(ctx context.Context, key string) error { return remove(ctx, control, s.Bucket, suite+"/", key) },
			Overwrite: func(ctx context.Context, key string) error { return overwrite(ctx, control, s.Bucket, suite+"/", key) },
		},
		Footprint: func(ctx context.Context) (map[string]int, error) { return footprint(ctx, control, s.Bucket, suite+"/") },
		Reopen: func(ctx context.Context, base driver.Token) (driver.Driver, error) {
			return at.open(ctx, endpoint(), of(s3lock.Options{TokenBase: base}))
		},
		Fresh: func(ctx context.Context, base driver.Token) (driver.Driver, error) {
			return at.open(ctx, endpoint(), of(s3lock.Options{Namespace: namespace(), TokenBase: base}))
		},
	}
}

// remove deletes a key's objects as an operator would.
func remove(ctx context.Context, c *s3.Client, bucket, base, key string) error {
	names, err := recordsOf(ctx, c, bucket, base, key)
	for _, name := range names {
		if _, derr := c.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &bucket, Key: &name}); derr != nil {
			return derr
		}
	}
	return err
}

// overwrite puts nonsense in the place of a key's newest record.
func overwrite(ctx context.Context, c *s3.Client, bucket, base, key string) error {
	names, err := recordsOf(ctx, c, bucket, base, key)
	if err == nil { // newest first
		_, err = c.PutObject(ctx, &s3.PutObjectInput{Bucket: &bucket, Key: &names[0], Body: strings.NewReader("nonsense")})
	}
	return err
}

// recordsOf lists a key's objects.
func recordsOf(ctx context.Context, c *s3.Client, bucket, base, key string) (names []string, err error) {
	pages := s3.NewListObjectsV2Paginator(c, &s3.ListObjectsV2Input{Bucket: &bucket, Prefix: &base})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, o := range page.Contents {
			folder, _, _ := strings.Cut(strings.TrimPrefix(*o.Key, base), "/")
			if folder == strings.ReplaceAll(key, "/", "!2f") {
				names = append(names, *o.Key)
			}
		}
	}
	if len(names) == 0 {
		return nil, errors.New("there is no such lock")
	}
	return names, nil
}

// footprint counts the objects of the suite, whatever they are for.
func footprint(ctx context.Context, c *s3.Client, bucket, base string) (map[string]int, error) {
	n := map[string]int{"objects": 0}
	pages := s3.NewListObjectsV2Paginator(c, &s3.ListObjectsV2Input{Bucket: &bucket, Prefix: &base})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		n["objects"] += len(page.Contents)
	}
	return n, nil
}

// eventually polls until ok, at most for the given time.
func eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !ok(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}
