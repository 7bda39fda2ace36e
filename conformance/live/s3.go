package live

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"
)

// S3Options is what an S3 server can be asked to be. The zero value is one gateway over a store of its own, and a server of
// the environment will do for it.
type S3Options struct {
	// Own: a server of the environment will not do.
	Own bool
	// Versioned: the bucket keeps every version of an object.
	Versioned bool
	// Store is a server whose objects this one serves, too: a second gateway on one store.
	Store *S3Server
}

// S3Server is an S3 server with an empty bucket. One of the environment takes its credentials from AWS_ACCESS_KEY_ID and
// AWS_SECRET_ACCESS_KEY, its bucket must exist, and need not be empty.
type S3Server struct {
	*Server
	Bucket, Region       string
	AccessKey, SecretKey string

	scheme string
	exists bool // the bucket
}

// S3 starts an S3 server, VersityGW over a directory, for a test, or skips the test.
func S3(tb testing.TB, o S3Options) *S3Server {
	tb.Helper()
	s := newS3()
	p := s.spec(image{server: "s3", official: "versity/versitygw:v1.8.0"}, o)
	if o.Store != nil {
		if !o.Store.Ours() {
			tb.Fatalf("live: %s has no handle, and so it can have no second gateway: make it with Own", o.Store.name)
		}
		s.AccessKey, s.SecretKey = o.Store.AccessKey, o.Store.SecretKey
		s.exists = true
		p.volume, p.as = o.Store.volume, o.Store.name+"-second"
	}
	p.command = []string{"--port", ":9000", "--region", s.Region, "--access", s.AccessKey, "--secret", s.SecretKey, "--keep-alive", "posix"}
	if !o.Versioned {
		p.command = append(p.command, "/data")
		return s.start(tb, p)
	}
	// Both folders on one file system, and neither in the other. A file makes them.
	const objects, versions = "/data/objects", "/data/versions"
	for _, folder := range []string{objects, versions} {
		p.files = append(p.files, testcontainers.ContainerFile{
			Reader: strings.NewReader(""), ContainerFilePath: folder + "/.made", FileMode: 0o600,
		})
	}
	p.command = append(p.command, "--versioning-dir", versions, objects)
	s.start(tb, p)
	const enable = `<VersioningConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Status>Enabled</Status></VersioningConfiguration>`
	r, err := s.Do(tb.Context(), http.MethodPut, "", map[string]string{"versioning": ""}, nil, []byte(enable))
	if err != nil || r.StatusCode != http.StatusOK {
		tb.Fatalf("live: turn versioning on: %v, %v", err, r)
	}
	return s
}

// MinIO starts another S3 server, which other people have written: one process over one folder, without a second gateway.
func MinIO(tb testing.TB, o S3Options) *S3Server {
	tb.Helper()
	if o.Store != nil {
		tb.Fatal("live: MinIO has no second gateway on one store")
	}
	s := newS3()
	p := s.spec(image{server: "minio", official: "quay.io/minio/minio:RELEASE.2025-09-07T16-13-09Z.hotfix.7aa24e772"}, o)
	p.env = map[string]string{
		"MINIO_ROOT_USER": s.AccessKey, "MINIO_ROOT_PASSWORD": s.SecretKey, "MINIO_REGION": s.Region,
		"MINIO_UPDATE": "off", "MINIO_BROWSER": "off",
	}
	p.command = []string{"server", "--address", ":9000", "/data"}
	return s.start(tb, p)
}

func newS3() *S3Server {
	return &S3Server{
		Bucket: "locks", Region: "us-east-1", scheme: "http",
		AccessKey: "live", SecretKey: rand.Text(), // letters and digits: it stands in a command line
	}
}

func (s *S3Server) spec(i image, o S3Options) spec {
	return spec{
		image: i, port: 9000, data: "/data", plain: !o.Own && !o.Versioned && o.Store == nil,
		schemes: map[string]string{"s3": ""}, adopt: s.adopt, url: s.address, ready: s.answer,
	}
}

func (s *S3Server) start(tb testing.TB, p spec) *S3Server {
	tb.Helper()
	s.Server = start(tb, p)
	return s
}

// Endpoint returns the URL of the server itself. It is another one after each Start, Restart and Crash.
func (s *S3Server) Endpoint() string { return s.scheme + "://" + s.Addr() }

// address is the lock URL of the bucket. It holds no credentials.
func (s *S3Server) address(at string) string {
	q := url.Values{"region": {s.Region}, "endpoint": {s.scheme + "://" + at}, "path_style": {"true"}}
	return "s3://" + s.Bucket + "?" + q.Encode()
}

// adopt takes a server of the environment: the host of its URL is the bucket, and the parameter endpoint is its own.
func (s *S3Server) adopt(u *url.URL, _ string) (string, error) {
	if u.Host == "" {
		return "", errors.New("the bucket is missing: write s3://bucket?endpoint=http://host:port")
	}
	q := u.Query()
	endpoint, err := url.Parse(q.Get("endpoint"))
	if err != nil || endpoint.Host == "" {
		return "", errors.New("endpoint=http://host:port is missing")
	}
	port, known := map[string]string{"http": "80", "https": "443"}[endpoint.Scheme]
	if !known {
		return "", fmt.Errorf("endpoint=%s: want http://host:port or https://host:port", endpoint.Redacted())
	}
	if u.User != nil || endpoint.User != nil {
		return "", errors.New("credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and not from the URL")
	}
	s.scheme, s.Bucket, s.Region = endpoint.Scheme, u.Host, cmp.Or(q.Get("region"), s.Region)
	s.exists = true
	s.AccessKey, s.SecretKey = os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY")
	return withPort(endpoint, port)
}

// s3Refusals are what to do about an answer that will not change.
var s3Refusals = map[int]string{
	http.StatusMovedPermanently:  "give the bucket's region",
	http.StatusTemporaryRedirect: "give the bucket's own endpoint",
	http.StatusBadRequest:        "correct the region, or the credentials",
	http.StatusUnauthorized:      "correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
	http.StatusForbidden:         "correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the rights that they have",
	http.StatusNotFound:          "correct the endpoint, or AWS_ACCESS_KEY_ID", // VersityGW says so of a key that it does not know
}

// answer is the server's first answer: it makes the bucket, or lists it.
func (s *S3Server) answer(ctx context.Context, at string) error {
	method, query := http.MethodPut, map[string]string{}
	if s.exists {
		method, query = http.MethodGet, map[string]string{"list-type": "2", "max-keys": "1"}
	}
	r, err := s.send(ctx, at, method, "", query, nil, nil)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.200s", r.Status, r.Body)
		if bytes.Contains(r.Body, []byte("<Code>NoSuchBucket<")) {
			err = refusal{err, "make the bucket first"}
		} else {
			err = refusedHTTP(r.StatusCode, err, s3Refusals)
		}
	}
	s.exists = s.exists || err == nil
	return refused(err)
}

// S3Response is the answer to one request.
type S3Response struct {
	Status     string
	StatusCode int
	Header     http.Header
	Body       []byte
}

// Do sends one signed request for a key of the bucket, on a connection of its own. An empty key means the bucket itself.
func (s *S3Server) Do(ctx context.Context, method, key string, query map[string]string, header http.Header, body []byte) (S3Response, error) {
	r, err := s.send(ctx, s.Addr(), method, key, query, header, body)
	if err != nil {
		return S3Response{}, fmt.Errorf("live: %s: %w", s.name, err)
	}
	return r, nil
}

func (s *S3Server) send(ctx context.Context, at, method, key string, query map[string]string, header http.Header, body []byte) (S3Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.scheme+"://"+at, bytes.NewReader(body))
	if err != nil {
		return S3Response{}, err
	}
	for name, values := range header {
		r.Header[name] = values
	}
	r.URL.Path = "/" + s.Bucket
	if key != "" {
		r.URL.Path += "/" + key
	}
	r.URL.RawPath, r.URL.RawQuery = s3Escape(r.URL.Path, false), s3Query(query)
	s3Keys{s.Region, s.AccessKey, s.SecretKey}.sign(r, body, time.Now())

	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // it would need another signature
	}
	got, err := client.Do(r)
	if err != nil {
		return S3Response{}, err
	}
	defer got.Body.Close()
	all, err := io.ReadAll(got.Body)
	return S3Response{Status: got.Status, StatusCode: got.StatusCode, Header: got.Header, Body: all}, err
}
