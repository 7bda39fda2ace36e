package s3lock

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fencelock/locker/driver"
)

// Bad input is refused with a sentence that says what to do.
func TestBadInput(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	says := func(status int, code string) *s3.Client {
		s := newDouble(t)
		s.answer = func(*http.Request) (int, string, bool) { return status, code, false }
		return s.client()
	}
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = dead.Close()
	sealed := httptest.NewTLSServer(http.NotFoundHandler()) // by an authority that nobody knows
	sealed.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(sealed.Close)
	keyless := newDouble(t)
	keyless.answer = refuses("If-None-Match", 501, "NotImplemented")
	naked := s3.New(s3.Options{BaseEndpoint: &s.URL, UsePathStyle: true, Region: "us-east-1", Credentials: aws.NewCredentialsCache(failing{})})
	for name, c := range map[string]struct {
		client *s3.Client
		bucket string
		o      Options
		is     []error
		says   string
	}{
		"no such bucket":      {s.client(), "other", Options{}, []error{ErrNoBucket, driver.ErrUnavailable}, `create bucket "other"`},
		"no bucket's name":    {says(400, "InvalidBucketName"), testBucket, Options{}, []error{ErrNoBucket, driver.ErrUnavailable}, "correct its name"},
		"no bucket":           {s.client(), "", Options{}, []error{ErrNoBucket}, "give its name"},
		"directory bucket":    {s.client(), "locks--usw2-az1--x-s3", Options{}, []error{ErrStore, driver.ErrUnsupported}, "use a general purpose bucket"},
		"denied":              {says(403, "AccessDenied"), testBucket, Options{}, []error{ErrDenied, driver.ErrUnavailable}, "allow s3:GetObject and s3:ListBucket"},
		"wrong secret":        {says(403, "SignatureDoesNotMatch"), testBucket, Options{}, []error{ErrDenied}, "check the access key"},
		"wrong clock":         {says(403, "RequestTimeTooSkewed"), testBucket, Options{}, []error{ErrDenied}, "this machine's clock"},
		"wrong region":        {says(301, "PermanentRedirect"), testBucket, Options{}, []error{ErrRegion, driver.ErrUnavailable}, "use the region"},
		"malformed region":    {says(400, "AuthorizationHeaderMalformed"), testBucket, Options{}, []error{ErrRegion}, "use the region"},
		"no credentials":      {naked, testBucket, Options{}, []error{ErrDenied, driver.ErrUnavailable}, "AWS_ACCESS_KEY_ID"},
		"nobody listens":      {clientAt("http://" + dead.Addr().String()), testBucket, Options{}, []error{driver.ErrUnavailable}, "check the endpoint"},
		"unknown authority":   {clientAt(sealed.URL), testBucket, Options{}, []error{driver.ErrUnavailable}, "AWS_CA_BUNDLE"},
		"no TLS there":        {clientAt("https" + strings.TrimPrefix(s.URL, "http")), testBucket, Options{}, []error{driver.ErrUnavailable}, "give it as http://"},
		"TLS there":           {clientAt("http" + strings.TrimPrefix(sealed.URL, "https")), testBucket, Options{}, []error{driver.ErrUnavailable}, "http or https"},
		"no keys to encrypt":  {keyless.client(), testBucket, Options{SSE: "aws:kms"}, []error{driver.ErrUnavailable}, "without sse"},
		"slow down":           {says(503, "SlowDown"), testBucket, Options{}, []error{driver.ErrUnavailable}, "SlowDown"},
		"odd prefix":          {s.client(), testBucket, Options{Prefix: "a//b"}, []error{driver.ErrLayout}, "one slash"},
		"prefix of a path":    {s.client(), testBucket, Options{Prefix: "../b"}, []error{driver.ErrLayout}, "one slash"},
		"long prefix":         {s.client(), testBucket, Options{Prefix: strings.Repeat("x", 900)}, []error{driver.ErrLayout}, "want at most"},
		"odd namespace":       {s.client(), testBucket, Options{Namespace: "a/b"}, []error{driver.ErrLayout}, "plain name"},
		"too large base":      {s.client(), testBucket, Options{TokenBase: driver.MaxToken}, []error{driver.ErrLayout}, "leaves no tokens"},
		"key without its sse": {s.client(), testBucket, Options{KMSKey: "k"}, []error{driver.ErrLayout}, "only for sse=aws:kms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := NewDriver(within(t), c.client, c.bucket, &c.o)
			for _, is := range c.is {
				if !errors.Is(err, is) {
					t.Errorf("got %v, want %v", err, is)
				}
			}
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want it to say %q", err, c.says)
			}
			if err != nil && (strings.Contains(err.Error(), "secret\"") || driver.IsAmbiguous(err)) {
				t.Errorf("got %v: want it definite and without secrets", err)
			}
		})
	}
}

type failing struct{}

func (failing) Retrieve(context.Context) (aws.Credentials, error) {
	return aws.Credentials{}, errors.New("no EC2 IMDS role found")
}

// Tokens that a floor has raised go on behind a stranger's object, however far above.
func TestTokensGoOnBehindAForeignObject(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	d := s.driver(nil)
	r := request("k")
	r.Floor = 100
	g, err := d.TryAcquire(within(t), r)
	if err == nil {
		err = d.Release(within(t), g)
	}
	if err != nil || g.Token != 101 {
		t.Fatalf("got token %v (%v), want 101", g.Token, err)
	}
	s.edit("locker/k/"+recordName(50), []byte("hello"))
	if err := d.Break(within(t), "k", 50, driver.Break{Now: true}); err != nil {
		t.Fatal(err)
	}
	if g := acquire(t, d, "k"); g.Token <= 101 {
		t.Errorf("got token %v, want more than 101", g.Token)
	}
}

// VersityGW lists its own file of a write that is under way, .<name>.sgwtmp.<number>, which
// comes first. It is no record, and nobody else's object: it is passed over, and so is the
// mark of a folder.
func TestTemporaryFilesOfTheStore(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	d := s.driver(&Options{Keep: 1000})
	g := acquire(t, d, "k")
	s.edit("locker/k/."+recordName(1)+".sgwtmp.1796038651389200586", []byte("{}"))
	s.edit("locker/k/", nil) // consoles and file systems over S3 make such a name for a folder
	s.verbs()
	if _, err := s.driver(nil).TryAcquire(within(t), request("k")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("got %v, want ErrHeld", err)
	}
	sent(t, s, "open and refused", map[string]int{"GET": 2, "LIST": 2})
	if st, err := d.Inspect(within(t), "k"); !st.Held || err != nil {
		t.Errorf("inspect: got held %v, %v", st.Held, err)
	}
	release(t, d, g)
	if g := acquire(t, d, "k"); g.Token != 2 {
		t.Errorf("token: got %v, want 2", g.Token)
	}
}

func TestForeignAndCorruptObjects(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	d := s.driver(nil)
	s.edit("locker/foreign/0.txt", []byte("hello"))
	_, err := d.TryAcquire(within(t), request("foreign"))
	if !errors.Is(err, driver.ErrCorrupt) || !strings.Contains(err.Error(), `"locker/foreign/0.txt"`) || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("a foreign object: got %v", err)
	}
	for name, body := range map[string]string{"torn": `{"layout":1,"key":"to`, "empty": "", "xml": "<html>", "otherkey": `{"layout":1,"key":"x","epoch":7}`} {
		s.edit("locker/"+name+"/"+recordName(7), []byte(body))
		if _, err := d.TryAcquire(within(t), request(name)); !errors.Is(err, driver.ErrCorrupt) || !strings.Contains(err.Error(), recordName(7)) {
			t.Errorf("%s: got %v, want ErrCorrupt that names the object", name, err)
		}
		if err := d.Break(within(t), name, 7, driver.Break{}); !errors.Is(err, driver.ErrCorrupt) {
			t.Errorf("%s: break: got %v, want ErrCorrupt", name, err)
		}
		if err := d.Break(within(t), name, 7, driver.Break{Now: true}); err != nil {
			t.Errorf("%s: break now: got %v", name, err)
		}
		if g := acquire(t, d, name); g.Token != 8 {
			t.Errorf("%s: token behind it: got %v, want 8", name, g.Token)
		}
	}
	s.edit("other/"+layoutName, []byte("<html>"))
	if _, err := NewDriver(within(t), s.client(), testBucket, &Options{Namespace: "other"}); !errors.Is(err, driver.ErrCorrupt) {
		t.Errorf("a namespace record of something else: got %v, want ErrCorrupt", err)
	}
	if _, err := NewDriver(within(t), s.client(), testBucket, &Options{TokenBase: 7}); !errors.Is(err, driver.ErrLayout) {
		t.Errorf("another token base: got %v, want ErrLayout", err)
	}
}

// What a reply means: applied, not applied, or unknown.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		code   string
		after  bool
		want   error // nil: unknown
	}{
		"503 SlowDown":             {503, "SlowDown", false, driver.ErrUnavailable},
		"429":                      {429, "TooManyRequests", false, driver.ErrUnavailable},
		"500 and applied":          {500, "InternalError", true, nil},
		"500 and not":              {500, "InternalError", false, nil},
		"502":                      {502, "", true, nil},
		"503 of something between": {503, "", true, nil},
		"403":                      {403, "AccessDenied", false, ErrDenied},
		"200 with a 500 in it":     {200, "InternalError", true, nil},
		"200 with SlowDown in it":  {200, "SlowDown", false, driver.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newDouble(t)
			d := s.driver(nil)
			s.wrong(func(s *double) {
				s.answer = func(r *http.Request) (int, string, bool) {
					if r.Method == http.MethodPut {
						return c.status, c.code, c.after
					}
					return 0, "", false
				}
			})
			r := request("k")
			g, err := d.TryAcquire(within(t), r)
			switch {
			case c.want == nil && !driver.IsAmbiguous(err):
				t.Errorf("acquire: got %v, want an unknown outcome", err)
			case c.want != nil && (!errors.Is(err, c.want) || driver.IsAmbiguous(err)):
				t.Errorf("acquire: got %v, want %v", err, c.want)
			}
			s.wrong(func(s *double) { s.answer = nil })
			s.verbs()
			if c.want != nil { // nothing is there
				if g := acquire(t, d, "k"); g.Token != 1 {
					t.Errorf("token behind it: got %v, want 1", g.Token)
				}
				return
			}
			if c.after { // the same attempt sent again finds its grant
				again, err := d.TryAcquire(within(t), r)
				if err != nil || again.Token != 1 {
					t.Errorf("sent again: got token %v, %v; want 1", again.Token, err)
				}
				return
			}
			// Undone: a tombstone takes the number, and the create that may be under way with it.
			if err := d.Release(within(t), g); err != nil && !errors.Is(err, driver.ErrLost) {
				t.Errorf("undo: got %v", err)
			}
			if got := acquire(t, d, "k"); got.Token != 2 {
				t.Errorf("token behind the undo: got %v, want 2", got.Token)
			}
		})
	}
}

// A grant whose create's reply was lost counts from that create in the driver too: behind
// its deadline nothing is renewed, whenever it was sent again.
func TestDeadlineCountsFromTheFirstCreate(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	d := s.driver(nil)
	release(t, d, acquire(t, d, "k")) // the next create is warm
	s.wrong(func(s *double) { s.answer = losesReplies })
	r := request("k")
	begun := time.Now()
	if _, err := d.TryAcquire(within(t), r); !driver.IsAmbiguous(err) {
		t.Fatalf("got %v, want an unknown outcome", err)
	}
	s.wrong(func(s *double) { s.answer = nil })
	<-time.After(ttl / 2)
	g, err := d.TryAcquire(within(t), r)
	if err != nil || !g.Sent.IsZero() {
		t.Fatalf("sent again: got %v, sent at %v, want the time of the first to count", err, g.Sent)
	}
	<-time.After(time.Until(begun.Add(ttl + 100*time.Millisecond)))
	if _, err := d.Renew(within(t), g); !errors.Is(err, driver.ErrLost) {
		t.Errorf("renewed %v after the first send, ttl %v: got %v, want ErrLost", time.Since(begun), ttl, err)
	}
}

// losesReplies applies writes and answers that it does not know.
func losesReplies(r *http.Request) (int, string, bool) {
	if r.Method == http.MethodPut {
		return 500, "InternalError", true
	}
	return 0, "", false
}

// A release whose reply was lost is sent again, and finds that it has ended its grant.
func TestReleaseSentAgain(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	d := s.driver(nil)
	g := acquire(t, d, "k")
	s.wrong(func(s *double) {
		s.answer = func(*http.Request) (int, string, bool) { return 500, "InternalError", true }
	})
	if err := d.Release(within(t), g); !driver.IsAmbiguous(err) {
		t.Fatalf("got %v, want an unknown outcome", err)
	}
	s.wrong(func(s *double) { s.answer = nil })
	other := acquire(t, s.driver(nil), "k")
	if err := d.Release(within(t), g); !errors.Is(err, driver.ErrLost) {
		t.Errorf("sent again: got %v, want ErrLost", err)
	}
	if other.Token != 2 {
		t.Errorf("the next token: got %v, want 2", other.Token)
	}
}

// A store that says nothing holds nobody up beyond the deadline. A read that was not
// answered is definite, a write is not.
func TestSilentStore(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	d := s.driver(nil)
	g := acquire(t, d, "k")
	quiet := make(chan struct{})
	t.Cleanup(func() { close(quiet) })
	s.wrong(func(s *double) {
		s.answer = func(r *http.Request) (int, string, bool) {
			select {
			case <-quiet:
			case <-r.Context().Done():
			}
			return 500, "", false
		}
	})
	for _, c := range []struct {
		what string
		call func(context.Context) error
	}{
		{"acquire", func(ctx context.Context) error { _, err := d.TryAcquire(ctx, request("other")); return err }},
		{"inspect", func(ctx context.Context) error { _, err := d.Inspect(ctx, "k"); return err }},
		{"ping", func(ctx context.Context) error { return d.Ping(ctx) }},
		{"renew", func(ctx context.Context) error { _, err := d.Renew(ctx, g); return err }},
		{"release", func(ctx context.Context) error { return d.Release(ctx, g) }},
	} {
		const patience = 200 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		begun := time.Now()
		err := c.call(ctx)
		cancel()
		if took := time.Since(begun); took > patience+slack {
			t.Errorf("%s: it took %v", c.what, took)
		}
		write := c.what == "renew" || c.what == "release"
		if err == nil || write && !driver.IsAmbiguous(err) || c.what == "acquire" && driver.IsAmbiguous(err) {
			t.Errorf("%s: got %v", c.what, err)
		}
	}
}
