package s3lock

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fencelock/locker"
)

// environment gives the credentials of the double and nothing of the machine's own.
func environment(t *testing.T) {
	t.Helper()
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "topsecret", "AWS_SESSION_TOKEN": "", "AWS_PROFILE": "", "AWS_REGION": "", "AWS_DEFAULT_REGION": "",
		"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_EC2_METADATA_DISABLED": "true", "AWS_CA_BUNDLE": "",
	} {
		t.Setenv(name, value)
	}
}

func TestURL(t *testing.T) {
	environment(t)
	s := newDouble(t)
	url := "s3://" + testBucket + "/some/where/?endpoint=" + s.URL + "&path_style=true&ns=jobs&token_base=40&sse=AES256"
	a, err := locker.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Close() }()
	lease, err := a.TryAcquire(t.Context(), "k")
	if err != nil || lease.Token() != 41 {
		t.Fatalf("got token %v, %v; want 41", lease.Token(), err)
	}
	b, err := locker.Open(t.Context(), url+"&region=eu-central-1&expiry=observed", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	if _, err := b.TryAcquire(t.Context(), "k"); !errors.Is(err, locker.ErrHeld) {
		t.Errorf("through another client: got %v, want ErrHeld", err)
	}
	if !strings.Contains(b.Info().ExpiryClock, "expiry=observed") {
		t.Errorf("ExpiryClock: got %q", b.Info().ExpiryClock)
	}
	for _, n := range s.names() {
		if !strings.HasPrefix(n, "some/where/jobs/") {
			t.Errorf("%q is outside of prefix and namespace", n)
		}
	}
	encrypted := false
	for _, h := range s.lastHeads() {
		encrypted = encrypted || h.Get("X-Amz-Server-Side-Encryption") == "AES256"
	}
	if !encrypted {
		t.Error("nothing was written with sse=AES256")
	}
}

// The client that a URL makes logs nothing, whatever it would like to say: it would write to
// stderr, between the lines of a command's child.
func TestURLIsSilent(t *testing.T) {
	environment(t)
	s := newDouble(t)
	stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	was := os.Stderr
	os.Stderr = stderr
	defer func() { os.Stderr = was }()
	client, _, idle, err := fromURL(within(t), &locker.URL{Client: url.URL{
		Scheme: "s3", Host: testBucket, RawQuery: url.Values{endpointParam: {s.URL}}.Encode(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer idle()
	talk := func(o *s3.Options) {
		o.UsePathStyle = true
		o.ClientLogMode = aws.LogRequest | aws.LogResponse | aws.LogRetries | aws.LogSigning
	}
	if _, err := client.HeadBucket(within(t), &s3.HeadBucketInput{Bucket: aws.String(testBucket)}, talk); err != nil {
		t.Fatal(err)
	}
	if said, err := os.ReadFile(stderr.Name()); len(said) > 0 || err != nil {
		t.Errorf("it said %q, %v", said, err)
	}
}

func TestURLRefuses(t *testing.T) {
	environment(t)
	for url, want := range map[string]string{
		"s3://":                                              "the bucket is missing",
		"s3://b":                                             "give region=",
		"s3://b?regoin=x":                                    `did you mean "region"`,
		"s3://b?access_key=x":                                "unknown parameter",
		"s3://k:topsecret@b":                                 "secrets do not belong into the URL",
		"s3://localhost:9000/b":                              "looks like a server",
		"s3://b?endpoint=localhost":                          "want http://host:port",
		"s3://b?endpoint=ftp://h":                            "want http://host:port",
		"s3://b?path_style=yes":                              "want false or true",
		"s3://b?sse=none":                                    "want AES256, aws:kms or aws:kms:dsse",
		"s3://b?expiry=never":                                "want store or observed",
		"s3://b/a//b?region=x":                               "one slash",
		"s3://b?region=x&profile=nope":                       "nope",
		"s3://b--use1-az4--x-s3?region=us-east-1":            "directory bucket",
		"s3://b?endpoint=http://u:topsecret@h&region=x":      "secrets do not belong",
		"s3://b?endpoint=http://h&endpoint=http://topsecret": "more than once",
		"s3://b?region=x&kms_key=k":                          "only for sse=aws:kms",
		"s3://b?region=x&endpoint=http://127.0.0.1:1&path_style=true": "refused",
		"s3://b?region=x&endpoint=http://nobody.invalid:1":            "path_style=true",
	} {
		_, err := locker.Open(t.Context(), url, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want it to say %q", url, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "topsecret") {
			t.Errorf("%s: the secret is in %v", url, err)
		}
	}
}
