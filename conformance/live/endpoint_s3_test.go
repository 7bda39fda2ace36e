package live

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestS3Endpoint(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "me")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		if got := r.Header.Get("Authorization"); r.URL.Path != "/bucket" || !strings.Contains(got, "Credential=me/") || !strings.Contains(got, "/far/s3/") {
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	t.Cleanup(s.Close)
	for _, kind := range []string{"s3", "minio"} {
		wantEndpoint(t, kind, "s3://bucket?region=far&endpoint="+s.URL)
	}
	if asked != 3 {
		t.Errorf("a server that starts, and one that has started: asked %d times, want 3", asked)
	}
	for status, want := range map[int]string{
		http.StatusForbidden: "AWS_SECRET_ACCESS_KEY", http.StatusNotFound: "correct the endpoint",
		http.StatusTeapot: "is this the right server?",
	} {
		wantRefusal(t, "s3", "s3://bucket?endpoint=http://"+answers(t, status, ""), want)
	}
	elsewhere := httptest.NewServer(http.RedirectHandler("http://"+answers(t, http.StatusOK, ""), http.StatusMovedPermanently))
	t.Cleanup(elsewhere.Close)
	wantRefusal(t, "s3", "s3://bucket?endpoint="+elsewhere.URL, "give the bucket's region")
	wantRefusal(t, "s3", "s3://bucket?endpoint=http://"+encrypted(t), "the server speaks TLS")
	wantRefusal(t, "s3", "s3://bucket?endpoint=https://"+encrypted(t), "certificate")
	wantRefusal(t, "s3", "s3://bucket?endpoint=https://"+answers(t, http.StatusOK, ""), "does not speak TLS")
}
