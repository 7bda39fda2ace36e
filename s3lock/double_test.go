package s3lock

import (
	"context"
	"crypto/md5"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fencelock/locker/driver"
)

// double is an S3 server in memory whose faults are chosen. What real servers do is tested
// on real servers; here are the stores that nobody should use, and the answers that no
// server gives when asked.
type double struct {
	*httptest.Server
	t *testing.T

	mu      sync.Mutex
	objects map[string]thing
	log     []string // the verbs
	heads   []http.Header

	// What is wrong with it.
	ignoreNoneMatch, ignoreMatch, createsOnMatch, backwards bool
	noETag, noETagPut                                       bool          // in replies to reads, to writes
	cut                                                     int           // if not 0, reads end behind so many bytes with their connection
	gap                                                     time.Duration // between the check and the write
	dates                                                   []time.Duration
	header                                                  http.Header
	lifecycle                                               string
	listedETag                                              string // what a LIST says behind each ETag
	listing                                                 string // if not empty, what every LIST is answered
	// answer, if it returns a status, is what the server says instead. after: the request
	// is applied before.
	answer func(*http.Request) (status int, code string, after bool)
	now    func() time.Time
}

type thing struct {
	body     []byte
	etag     string
	modified time.Time
	meta     http.Header
}

const testBucket = "locks"

func newDouble(t *testing.T) *double {
	t.Helper()
	d := &double{t: t, objects: map[string]thing{}, now: time.Now}
	d.Server = httptest.NewServer(d)
	t.Cleanup(d.Close)
	return d
}

func (d *double) client() *s3.Client { return clientAt(d.URL) }

func clientAt(url string) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: &url, UsePathStyle: true, Region: "us-east-1",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "key", SecretAccessKey: "secret"}, nil
		}),
	})
}

func (d *double) driver(o *Options) *Driver {
	d.t.Helper()
	dr, err := NewDriver(d.t.Context(), d.client(), testBucket, o)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = dr.Close() })
	return dr
}

func (d *double) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/"+testBucket), "/")
	q := r.URL.Query()
	verb := r.Method
	if q.Has("list-type") {
		verb = "LIST"
	}
	d.mu.Lock()
	d.log = append(d.log, verb)
	d.heads = append(d.heads, r.Header.Clone())
	skew := time.Duration(0)
	if len(d.dates) > 0 {
		skew = d.dates[len(d.log)%len(d.dates)]
	}
	w.Header().Set("Date", d.now().Add(skew).UTC().Format(http.TimeFormat))
	maps.Copy(w.Header(), d.header)
	answer := d.answer
	d.mu.Unlock()
	if answer != nil {
		if status, code, after := answer(r); status != 0 {
			if after {
				d.serve(httptest.NewRecorder(), r, verb, name, body)
			}
			fail(w, status, code)
			return
		}
	}
	d.serve(w, r, verb, name, body)
}

func fail(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>as told</Message></Error>`, code)
}

func (d *double) serve(w http.ResponseWriter, r *http.Request, verb, name string, body []byte) {
	if !strings.HasPrefix(r.URL.Path, "/"+testBucket) {
		fail(w, 404, "NoSuchBucket")
		return
	}
	q := r.URL.Query()
	switch {
	case q.Has("lifecycle") && d.lifecycle == "":
		fail(w, 404, "NoSuchLifecycleConfiguration")
	case q.Has("lifecycle"):
		_, _ = io.WriteString(w, d.lifecycle)
	case verb == "LIST" && d.listing != "":
		_, _ = io.WriteString(w, d.listing)
	case verb == "LIST":
		d.list(w, q.Get)
	case q.Has("delete"):
		var in struct {
			Object []struct{ Key string }
		}
		if err := xml.Unmarshal(body, &in); err != nil {
			fail(w, 400, "MalformedXML")
			return
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, o := range in.Object {
			delete(d.objects, o.Key)
		}
		_, _ = io.WriteString(w, "<DeleteResult></DeleteResult>")
	case verb == http.MethodPut:
		d.put(w, r, name, body)
	case verb == http.MethodDelete:
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.objects, name)
		w.WriteHeader(http.StatusNoContent)
	case name == "": // HEAD of the bucket
	default:
		d.get(w, r, name)
	}
}

func (d *double) get(w http.ResponseWriter, r *http.Request, name string) {
	d.mu.Lock()
	o, ok := d.objects[name]
	noETag, cut := d.noETag, d.cut
	d.mu.Unlock()
	if !ok {
		fail(w, 404, "NoSuchKey")
		return
	}
	if !noETag {
		w.Header().Set("ETag", o.etag)
	}
	if r.Header.Get("If-None-Match") == o.etag {
		w.WriteHeader(http.StatusNotModified) // without Last-Modified, as some servers do
		return
	}
	w.Header().Set("Last-Modified", o.modified.UTC().Format(http.TimeFormat))
	maps.Copy(w.Header(), o.meta)
	if cut > 0 {
		c, out, err := http.NewResponseController(w).Hijack()
		if err != nil {
			d.t.Error(err)
			return
		}
		_, _ = out.WriteString("HTTP/1.0 200 OK\r\n")
		_ = w.Header().Write(out)
		_, _ = out.WriteString("\r\n")
		_, _ = out.Write(o.body[:cut])
		_ = errors.Join(out.Flush(), c.Close())
		return
	}
	_, _ = w.Write(o.body)
}

func (d *double) put(w http.ResponseWriter, r *http.Request, name string, body []byte) {
	d.mu.Lock()
	o, ok := d.objects[name]
	none, match := r.Header.Get("If-None-Match") != "" && !d.ignoreNoneMatch, r.Header.Get("If-Match")
	if d.ignoreMatch {
		match = ""
	}
	if d.gap > 0 {
		d.mu.Unlock()
		time.Sleep(d.gap) //nolint:forbidigo // the gap is the fault
		d.mu.Lock()
	}
	defer d.mu.Unlock()
	switch {
	case none && ok, match != "" && ok && match != o.etag:
		fail(w, 412, "PreconditionFailed")
		return
	case match != "" && !ok && !d.createsOnMatch:
		fail(w, 404, "NoSuchKey")
		return
	}
	o = thing{body: body, etag: fmt.Sprintf(`"%x"`, md5.Sum(body)), modified: d.now(), meta: http.Header{}}
	for h, v := range r.Header {
		if strings.HasPrefix(h, "X-Amz-Meta-") || strings.HasPrefix(h, "X-Amz-Server-Side-Encryption") || h == "Cache-Control" ||
			strings.HasPrefix(h, "Content-") && h != "Content-Length" {
			o.meta[h] = v
		}
	}
	d.objects[name] = o
	if !d.noETagPut {
		w.Header().Set("ETag", o.etag)
	}
}

// leastTwo returns the two least names, without sorting all.
func leastTwo(names []string) []string {
	for i := range 2 {
		for j := i + 1; j < len(names); j++ {
			if names[j] < names[i] {
				names[i], names[j] = names[j], names[i]
			}
		}
	}
	return names[:2]
}

func (d *double) list(w http.ResponseWriter, q func(string) string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	most, _ := strconv.Atoi(q("max-keys"))
	behind := max(q("start-after"), q("continuation-token"))
	var names []string
	for n := range d.objects {
		if strings.HasPrefix(n, q("prefix")) && (n > behind || d.backwards) {
			names = append(names, n)
		}
	}
	if most == 1 && q("delimiter") == "" && !d.backwards && len(names) > 2 { // of very many, and often
		names = leastTwo(names)
	}
	slices.Sort(names)
	if d.backwards {
		slices.Reverse(names)
	}
	var b strings.Builder
	count, last, more := 0, "", false
	seen := map[string]bool{}
	for _, n := range names {
		folder := ""
		if rest := strings.TrimPrefix(n, q("prefix")); q("delimiter") != "" && strings.Contains(rest, "/") {
			folder = q("prefix") + rest[:strings.Index(rest, "/")+1]
		}
		if folder != "" && seen[folder] {
			last = n
			continue
		}
		if count == most {
			more = true
			break
		}
		count, last = count+1, n
		if folder != "" {
			seen[folder] = true
			fmt.Fprintf(&b, "<CommonPrefixes><Prefix>%s</Prefix></CommonPrefixes>", folder)
			continue
		}
		fmt.Fprintf(&b, "<Contents><Key>%s</Key><LastModified>%s</LastModified><ETag>%s</ETag><Size>1</Size></Contents>",
			n, d.objects[n].modified.UTC().Format("2006-01-02T15:04:05.000Z"), d.objects[n].etag+d.listedETag)
	}
	next := ""
	if more {
		next = "<NextContinuationToken>" + last + "</NextContinuationToken>"
	}
	w.Header().Set("Content-Type", "application/xml")
	_, _ = fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><IsTruncated>%v</IsTruncated>%s%s</ListBucketResult>`, more, next, b.String())
}

// verbs returns how many requests of each verb came since the last call.
func (d *double) verbs() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := map[string]int{}
	for _, v := range d.log {
		n[v]++
	}
	d.log, d.heads = nil, nil
	return n
}

// lastHeads returns the headers of the requests since the last call of verbs.
func (d *double) lastHeads() []http.Header {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.heads)
}

// wrong sets what the server does from now on.
func (d *double) wrong(f func(*double)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
}

// edit changes an object behind everybody's back.
func (d *double) edit(name string, body []byte) {
	d.wrong(func(d *double) {
		d.objects[name] = thing{body: body, etag: fmt.Sprintf(`"%x"`, md5.Sum(body)), modified: d.now(), meta: http.Header{}}
	})
}

func (d *double) names() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.objects))
}

// Requests, as the core makes them.

const ttl = 2 * time.Second

func request(key string) driver.Request {
	return driver.Request{Key: key, Attempt: driver.NewAttempt(), TTL: ttl, Owner: "test"}
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func acquire(t *testing.T, d *Driver, key string) driver.Grant {
	t.Helper()
	g, err := d.TryAcquire(within(t), request(key))
	if err != nil {
		t.Fatalf("acquire %q: %v", key, err)
	}
	return g
}

func release(t *testing.T, d *Driver, g driver.Grant) {
	t.Helper()
	if err := d.Release(within(t), g); err != nil {
		t.Fatalf("release %q: %v", g.Key, err)
	}
}
