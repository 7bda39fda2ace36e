package s3lock

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/fencelock/locker/driver"
)

// bucket makes single requests: each call is one request, sent once.
type bucket struct {
	client *s3.Client
	name   string
	sse    types.ServerSideEncryption
	kmsKey string
	clock  *clock
}

// answer is what a reply says beside its body.
type answer struct {
	// sent: bytes of the request may have left this process.
	sent atomic.Bool
	// unbounded: only the end of the connection ends the body, and so does a failure.
	unbounded bool
	began     driver.Instant
	arrived   driver.Instant
	status    int
	alien     bool // what came is not the store's answer
	header    http.Header
	date      time.Time // zero: the reply has none
	modified  time.Time // zero: the reply has none
}

// object is one object as it was read.
type object struct {
	body      []byte
	etag      string
	unchanged bool
	*answer
}

// begin prepares one request. The client's own retries are off, whatever client it is: a
// retry finds its own first send and calls it somebody else's. So are checksums beyond
// what S3 requires, which other stores do not know.
func (b *bucket) begin() (*answer, func(*s3.Options)) {
	a := &answer{began: driver.Now(), header: http.Header{}}
	return a, func(o *s3.Options) {
		o.Retryer = aws.NopRetryer{}
		o.RetryMaxAttempts = 0
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		o.APIOptions = append(o.APIOptions[:len(o.APIOptions):len(o.APIOptions)], func(s *middleware.Stack) error {
			return s.Deserialize.Add(middleware.DeserializeMiddlewareFunc("LockerAnswer", func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
				// The innermost step: what the client asks elsewhere before, for
				// credentials, is not this request.
				var traced atomic.Bool
				out, md, err := next.HandleDeserialize(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
					GetConn: func(string) { traced.Store(true) },
					GotConn: func(httptrace.GotConnInfo) { a.sent.Store(true) },
				}), in)
				if !traced.Load() { // a client of its own kind, which tells nothing
					a.sent.Store(true)
				}
				// The client makes a response without a status where there was none.
				if res, ok := out.RawResponse.(*smithyhttp.Response); ok && res != nil && res.Response != nil && res.StatusCode != 0 {
					method := methodOf(in.Request)
					redirected(method, res)
					b.took(a, method, res)
				}
				return out, md, err
			}), middleware.After)
		})
	}
}

// maxRecord bounds what is read of an object: a record has some hundred bytes, and an
// owner and a note.
const maxRecord = 1 << 20

// get reads an object; with an ETag only if it has another one.
func (b *bucket) get(ctx context.Context, name, unless string) (object, error) {
	a, once := b.begin()
	in := &s3.GetObjectInput{Bucket: &b.name, Key: &name}
	if unless != "" {
		in.IfNoneMatch = &unless
	}
	out, err := b.client.GetObject(ctx, in, once)
	if unless != "" && notModified(err) {
		return object{etag: unless, unchanged: true, answer: a}, nil
	}
	if err != nil {
		return object{answer: a}, b.refused(opGet, a, err)
	}
	defer func() { _ = out.Body.Close() }()
	if aws.ToString(out.ETag) == "" {
		return object{answer: a}, driver.Wrap(driver.ErrUnavailable, noETag(opGet, name))
	}
	body, err := io.ReadAll(io.LimitReader(out.Body, maxRecord))
	if err != nil {
		return object{answer: a}, fmt.Errorf("%s: %w", opGet, err)
	}
	return object{body: body, etag: aws.ToString(out.ETag), answer: a}, nil
}

// head asks for an object's ETag. No object, as far as a reply without a body tells: "".
func (b *bucket) head(ctx context.Context, name string) (etag string, err error) {
	a, once := b.begin()
	out, err := b.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.name, Key: &name}, once)
	if a.status == http.StatusNotFound {
		return "", nil
	}
	if err != nil {
		return "", b.refused(opHead, a, err)
	}
	return aws.ToString(out.ETag), nil
}

// create writes an object only if there is none of the name: epoch.ErrExist. replace does
// only if its ETag is still the given one: epoch.ErrChanged, epoch.ErrNotExist.
func (b *bucket) create(ctx context.Context, name string, body []byte) (etag string, err error) {
	return b.put(ctx, opCreate, name, body, func(in *s3.PutObjectInput) { in.IfNoneMatch = aws.String("*") })
}

func (b *bucket) replace(ctx context.Context, name, etag string, body []byte) (string, error) {
	return b.put(ctx, opReplace, name, body, func(in *s3.PutObjectInput) { in.IfMatch = &etag })
}

func (b *bucket) put(ctx context.Context, op, name string, body []byte, condition func(*s3.PutObjectInput)) (string, error) {
	a, once := b.begin()
	in := &s3.PutObjectInput{
		Bucket: &b.name, Key: &name, Body: bytes.NewReader(body), ContentLength: aws.Int64(int64(len(body))),
		ContentType: aws.String("application/json"), ServerSideEncryption: b.sse,
	}
	if b.kmsKey != "" {
		in.SSEKMSKeyId = &b.kmsKey
	}
	condition(in)
	out, err := b.client.PutObject(ctx, in, once)
	if err != nil {
		return "", b.refused(op, a, err)
	}
	etag := aws.ToString(out.ETag)
	if etag == "" { // it may have been written, or the reply is not the store's
		return "", noETag(op, name)
	}
	return etag, nil
}

// noETag is of a reply that cannot be used: objects without ETags cannot be told apart, and
// an empty If-Match is no condition.
func noETag(op, name string) error {
	return fmt.Errorf("%s %q: the reply has no ETag: it is not the store's, something between takes it off, or it was put there past the store: put it there through the store", op, name)
}

// page is one page of a listing, in the order of names.
type page struct {
	objects []types.Object
	folders []string
	next    string // "": the last one
	*answer
}

// list reads one page of the names with a prefix. behind, if not empty, is the name after
// which it begins; more is the next of the page before. folders lists what is up to the
// next slash only.
func (b *bucket) list(ctx context.Context, prefix, behind, more string, most int32, folders bool) (page, error) {
	a, once := b.begin()
	in := &s3.ListObjectsV2Input{Bucket: &b.name, Prefix: &prefix, MaxKeys: &most}
	if behind != "" {
		in.StartAfter = &behind
	}
	if more != "" {
		in.ContinuationToken = &more
	}
	if folders {
		in.Delimiter = aws.String("/")
	}
	out, err := b.client.ListObjectsV2(ctx, in, once)
	if err != nil {
		err = b.refused(opList, a, err)
		return page{answer: a}, err
	}
	if out.IsTruncated == nil && out.Name == nil && out.KeyCount == nil && len(out.Contents) == 0 { // to the client it is one of nothing
		return page{answer: a}, driver.Wrap(driver.ErrUnavailable, fmt.Errorf("%s: the reply is no listing: it is not the store's", opList))
	}
	p := page{objects: out.Contents, answer: a}
	for _, f := range out.CommonPrefixes {
		p.folders = append(p.folders, aws.ToString(f.Prefix))
	}
	if !aws.ToBool(out.IsTruncated) {
		return p, nil
	}
	p.next = aws.ToString(out.NextContinuationToken)
	if p.next == more && (most > 1 || len(p.objects) == 0) { // none, or the same page again
		return page{answer: a}, driver.Wrap(driver.ErrUnavailable, fmt.Errorf("%s: the reply says that there is more, and not where", opList))
	}
	return p, nil
}

// ping asks whether the bucket can be reached. The answer to a HEAD has no body that would
// say what is wrong, so that is asked for with a listing.
func (b *bucket) ping(ctx context.Context) error {
	a, once := b.begin()
	_, err := b.client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &b.name}, once)
	if a.status >= http.StatusBadRequest && a.status < http.StatusInternalServerError {
		_, err = b.list(ctx, "", "", "", 1, false)
		return err
	}
	return b.refused(opBucket, a, err)
}
