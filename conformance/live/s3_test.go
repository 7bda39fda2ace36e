package live

import (
	"context"
	"net/http"
	"strings"
	"testing"
)

func TestS3Server(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB, S3Options) *S3Server{"VersityGW": S3, "MinIO": MinIO} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testS3(t, start(t, S3Options{}))
		})
	}
}

func testS3(t *testing.T, s *S3Server) {
	t.Helper()
	const key = "a/b c+ü.json"
	wantS3(t, s, http.StatusOK, http.MethodPut, key, nil, "one")
	wantS3(t, s, http.StatusPreconditionFailed, http.MethodPut, key, http.Header{"If-None-Match": {"*"}}, "two")
	tag := wantS3(t, s, http.StatusOK, http.MethodPut, key, nil, "two").Header.Get("ETag")
	wantS3(t, s, http.StatusOK, http.MethodPut, key, http.Header{"If-Match": {tag}}, "three")
	wantS3(t, s, http.StatusPreconditionFailed, http.MethodPut, key, http.Header{"If-Match": {tag}}, "four")
	if got, want := string(wantS3(t, s, http.StatusOK, http.MethodGet, key, nil, "").Body), "three"; got != want {
		t.Errorf("object: got %q, want %q", got, want)
	}
	testPause(t, s.Server, func(ctx context.Context) error {
		_, err := s.Do(ctx, http.MethodGet, key, nil, nil, nil)
		return err
	})
	if !s.Ours() {
		return
	}
	for name, as := range map[string]struct {
		client *S3Server
		todo   string
	}{
		"a wrong secret": {&S3Server{Bucket: s.Bucket, AccessKey: s.AccessKey, SecretKey: "wrong"}, "AWS_SECRET_ACCESS_KEY"},
		"a wrong key":    {&S3Server{Bucket: s.Bucket, AccessKey: "wrong", SecretKey: s.SecretKey}, "AWS_ACCESS_KEY_ID"},
		"no such bucket": {&S3Server{Bucket: "none", AccessKey: s.AccessKey, SecretKey: s.SecretKey}, "make the bucket first"},
	} {
		as.client.scheme, as.client.Region, as.client.exists = s.scheme, s.Region, true
		wantFinal(t, name, as.client.answer(t.Context(), s.Addr()), as.todo)
	}
	if err := s.Crash(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := string(wantS3(t, s, http.StatusOK, http.MethodGet, key, nil, "").Body), "three"; got != want {
		t.Errorf("object after a kill: got %q, want %q", got, want)
	}
	if want := "endpoint=http%3A%2F%2F" + strings.Replace(s.Addr(), ":", "%3A", 1); !strings.Contains(s.URL(), want) {
		t.Errorf("URL: got %s, want it to have %s", s.URL(), want)
	}
}

// Two gateways serve one store, and each outlives the other.
func TestS3Gateways(t *testing.T) {
	t.Parallel()
	first := S3(t, S3Options{Own: true})
	second := S3(t, S3Options{Store: first})
	wantS3(t, first, http.StatusOK, http.MethodPut, "k", nil, "one")
	wantS3(t, second, http.StatusPreconditionFailed, http.MethodPut, "k", http.Header{"If-None-Match": {"*"}}, "two")
	if err := first.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := string(wantS3(t, second, http.StatusOK, http.MethodGet, "k", nil, "").Body), "one"; got != want {
		t.Errorf("object: got %q, want %q", got, want)
	}
}

func wantS3(t *testing.T, s *S3Server, want int, method, key string, header http.Header, body string) S3Response {
	t.Helper()
	r, err := s.Do(t.Context(), method, key, nil, header, []byte(body))
	if err != nil || r.StatusCode != want {
		t.Fatalf("%s: %s %s: got %s %s, %v, want %d", s.Name(), method, key, r.Status, r.Body, err, want)
	}
	return r
}
