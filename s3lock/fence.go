package s3lock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/epoch"
	"github.com/fencelock/locker/fence"
)

// Token returns the token of a lease for a fence around an object. A lease of another
// backend is driver.ErrUnsupported; one that is over is its error.
func Token(l *locker.Lease) (driver.Token, error) {
	d, ok := epoch.HolderOf(l.Grant())
	if ok {
		v, _ := d.Held(l.Grant())
		_, ok = v.(version)
	}
	if err := l.Err(); err != nil {
		return 0, fmt.Errorf("%s: fence: %q: %w", name, l.Key(), err)
	}
	if !ok {
		return 0, fmt.Errorf("%s: fence: %w: %q is a lease of another backend", name, driver.ErrUnsupported, l.Key())
	}
	return l.Token(), nil
}

// Fence guards one object: it keeps the greatest token that it has seen in the object
// itself, and every write is a PUT that S3 refuses if the object has changed since the
// token was compared. So the check and the write are one atomic step, and the mark is as
// durable as the data. It needs no driver, and the bucket may be another one than the
// locks'.
//
// The mark is one line behind the content, "fencing-token: " with the token and a number
// that is fresh for each write. It is not in the metadata, because an ETag is a hash of
// the content alone: a Raise would not change it, and a writer that had looked before would
// not be refused. [Fence.Read] takes the line off; who reads the object otherwise sees it.
//
// Everybody who writes the object must do it through a Fence: an ordinary PUT takes the
// mark away, and so does a DELETE, be it a lifecycle rule's. An object that was there before has the mark 0. Objects are held in memory as
// a whole.
//
// A Fence is safe for concurrent use, and needs no Close.
type Fence struct {
	*bucket
	object string
	// raised is the greatest token that this Fence knows to be in the object.
	raised atomic.Uint64
}

// NewFence is a fence around an object, which need not exist. Nothing is sent yet. The
// client's own retries are not used.
func NewFence(client *s3.Client, bucketName, object string) (*Fence, error) {
	if client == nil || bucketName == "" || object == "" {
		return nil, fmt.Errorf("%s: fence: %w: want a client, a bucket and an object's name", name, driver.ErrUnsupported)
	}
	return &Fence{bucket: &bucket{client: client, name: bucketName, clock: newClock("not a lock's")}, object: object}, nil
}

// marked is a content with the line that keeps its mark.
func marked(content []byte, t driver.Token, write string) []byte {
	return fmt.Appendf(nil, "%s\nfencing-token: %s %s\n", content, t, write)
}

var markLine = regexp.MustCompile(`\nfencing-token: ([0-9]{1,19}) ([0-9a-f]{32})\n$`)

// unmarked is the inverse of marked. What has no such line has the mark 0.
func unmarked(body []byte) (content []byte, mark driver.Token, write string, err error) {
	at := markLine.FindSubmatchIndex(body)
	if at == nil {
		return body, 0, "", nil
	}
	n, err := strconv.ParseUint(string(body[at[2]:at[3]]), 10, 63)
	return body[:at[0]], driver.Token(n), string(body[at[4]:at[5]]), err
}

// guarded is the object as it is: its mark, and what must not have changed when it is
// written.
type guarded struct {
	mark  driver.Token
	write string // the number of the write that made it
	etag  string // "": there is none
	body  []byte
	was   *s3.GetObjectOutput // what describes it; nil: there is none
}

// Raise shows the token to the object, creating an empty one if there is none. A holder
// calls it before its first read: from then on every smaller token is refused with a
// *fence.StaleError, which is driver.ErrStale. It costs two requests, or one if the token
// was seen already.
func (f *Fence) Raise(ctx context.Context, t driver.Token) error {
	return f.change(ctx, "raise", t, func(g *guarded) bool { return g.etag == "" || g.mark < t || driver.Token(f.raised.Load()) < t })
}

// Read returns the object's content, empty if there is none. It raises nothing: a holder
// that reads without having raised can be overtaken by an older one. What is older than the
// greatest token that this Fence has raised or written is driver.ErrUnavailable: a cache
// answers, or somebody wrote past the fence.
func (f *Fence) Read(ctx context.Context, t driver.Token) (string, error) {
	raised := driver.Token(f.raised.Load()) // before the read: others may raise meanwhile
	g, err := f.look(ctx)
	switch {
	case err != nil:
	case t < g.mark:
		err = f.stale(t, g.mark)
	case g.mark < raised:
		err = driver.Wrap(driver.ErrUnavailable, fmt.Errorf("the reply shows token %v, and %v was written: a cache answers, or something took the mark away: raise the token again", g.mark, raised))
	}
	if err != nil {
		return "", f.failed("read", err)
	}
	return string(g.body), nil
}

// Write replaces the object's content, if no greater token was seen. driver.ErrAmbiguous:
// it may have been written. Where something between delivers it twice, and a greater token
// comes between the two, it is refused although it was there before. The object's encryption,
// content type, encoding, language and disposition, Cache-Control and its own metadata stay.
func (f *Fence) Write(ctx context.Context, t driver.Token, content string) error {
	return f.change(ctx, "write", t, func(g *guarded) bool {
		g.body = []byte(content)
		return true
	})
}

// change makes a change and remembers that the object has seen the token.
func (f *Fence) change(ctx context.Context, op string, t driver.Token, alter func(*guarded) bool) error {
	err := f.settle(ctx, op, t, alter)
	for now := f.raised.Load(); err == nil && now < uint64(t) && !f.raised.CompareAndSwap(now, uint64(t)); now = f.raised.Load() {
		continue
	}
	return err
}

// settle reads, compares and writes until nothing came in between.
func (f *Fence) settle(ctx context.Context, op string, t driver.Token, alter func(*guarded) bool) error {
	if t == 0 || t > driver.MaxToken {
		return f.failed(op, fmt.Errorf("%w: %v is no token", driver.ErrStale, t))
	}
	var last string // the number of the write that was sent last
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		g, err := f.look(ctx)
		if err != nil && last != "" { // what was sent may have been delivered twice, and refused once
			err = driver.Wrap(driver.ErrAmbiguous, err)
		}
		if err != nil {
			return f.failed(op, err)
		}
		if last != "" && g.write == last { // it was delivered twice, and the second answer came
			return nil
		}
		if t < g.mark {
			return f.failed(op, f.stale(t, g.mark))
		}
		if !alter(&g) {
			return nil
		}
		last = driver.NewAttempt().String()
		err = f.store(ctx, t, last, g)
		switch {
		case err == nil:
			return nil
		case !answered(err), errors.Is(err, driver.ErrUnsupported):
			if driver.IsAmbiguous(err) {
				err = driver.Wrap(driver.ErrAmbiguous, err)
			}
			return f.failed(op, err)
		case !rest(ctx, pause):
			return f.failed(op, driver.Wrap(driver.ErrAmbiguous, errors.New("the object changes faster than it can be written")))
		}
	}
}

// look reads the object.
func (f *Fence) look(ctx context.Context) (guarded, error) {
	a, once := f.begin()
	out, err := f.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &f.name, Key: &f.object}, once)
	if err = f.refused(opGet, a, err); errors.Is(err, epoch.ErrNotExist) {
		return guarded{}, nil
	}
	if err != nil {
		return guarded{}, definite(err)
	}
	defer func() { _ = out.Body.Close() }()
	body, err := io.ReadAll(out.Body)
	if err != nil {
		return guarded{}, driver.Wrap(driver.ErrUnavailable, err)
	}
	g := guarded{etag: aws.ToString(out.ETag), was: out}
	switch {
	case g.etag == "":
		return guarded{}, driver.Wrap(driver.ErrUnavailable, noETag(opGet, f.object))
	case a.unbounded: // the mark is at its end
		return guarded{}, driver.Wrap(driver.ErrUnavailable, errCutOff)
	}
	if g.body, g.mark, g.write, err = unmarked(body); err != nil {
		return g, fmt.Errorf("%w: object %q has a mark that is no token: %w", driver.ErrCorrupt, f.object, err)
	}
	return g, nil
}

func (f *Fence) store(ctx context.Context, t driver.Token, write string, g guarded) error {
	a, once := f.begin()
	body := marked(g.body, t, write)
	in := &s3.PutObjectInput{
		Bucket: &f.name, Key: &f.object, Body: bytes.NewReader(body), ContentLength: aws.Int64(int64(len(body))),
	}
	describe(in, g.was)
	op := opReplace
	if g.etag == "" {
		op, in.IfNoneMatch = opCreate, aws.String("*")
	} else {
		in.IfMatch = &g.etag
	}
	out, err := f.client.PutObject(ctx, in, once)
	if err == nil && aws.ToString(out.ETag) == "" {
		return noETag(op, f.object)
	}
	return f.refused(op, a, err)
}

// describe makes a write leave everything about the object but its content as it was, and
// its encryption above all.
func describe(in *s3.PutObjectInput, was *s3.GetObjectOutput) {
	if was == nil {
		return
	}
	in.ContentType, in.ContentEncoding, in.ContentLanguage = was.ContentType, was.ContentEncoding, was.ContentLanguage
	in.ContentDisposition, in.CacheControl, in.Metadata = was.ContentDisposition, was.CacheControl, was.Metadata
	in.ServerSideEncryption, in.SSEKMSKeyId, in.BucketKeyEnabled = was.ServerSideEncryption, was.SSEKMSKeyId, was.BucketKeyEnabled
}

func (f *Fence) stale(t, mark driver.Token) error {
	return &fence.StaleError{Resource: f.object, Token: t, Mark: mark}
}

func (f *Fence) failed(op string, err error) error {
	return fmt.Errorf("%s: fence: %s %q: %w", name, op, f.object, err)
}
