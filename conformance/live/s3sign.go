package live

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// s3Keys sign requests to an S3 server.
type s3Keys struct{ region, access, secret string }

// sign signs a request by AWS Signature Version 4, with the headers that every request has. The URL must have no fragment, and
// its RawPath and RawQuery be as s3Escape makes them: the server computes the signature from what it gets.
func (k s3Keys) sign(r *http.Request, body []byte, at time.Time) {
	stamp := at.UTC().Format("20060102T150405Z")
	sum := sha256.Sum256(body)
	r.Header.Set("X-Amz-Date", stamp)
	r.Header.Set("X-Amz-Content-Sha256", hex.EncodeToString(sum[:]))

	const signed = "host;x-amz-content-sha256;x-amz-date"
	canonical := strings.Join([]string{
		r.Method, r.URL.EscapedPath(), r.URL.RawQuery,
		"host:" + r.URL.Host, "x-amz-content-sha256:" + hex.EncodeToString(sum[:]), "x-amz-date:" + stamp, "",
		signed, hex.EncodeToString(sum[:]),
	}, "\n")
	scope := strings.Join([]string{stamp[:8], k.region, "s3", "aws4_request"}, "/")
	hash := sha256.Sum256([]byte(canonical))
	text := strings.Join([]string{"AWS4-HMAC-SHA256", stamp, scope, hex.EncodeToString(hash[:])}, "\n")

	key := []byte("AWS4" + k.secret)
	for part := range strings.SplitSeq(scope, "/") {
		key = hmacSHA256(key, part)
	}
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+k.access+"/"+scope+
		", SignedHeaders="+signed+", Signature="+hex.EncodeToString(hmacSHA256(key, text)))
}

func hmacSHA256(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// s3Escape escapes as the signature wants it: everything but the unreserved characters, and slashes too in a query.
func s3Escape(s string, slash bool) string {
	s = strings.ReplaceAll(url.QueryEscape(s), "+", "%20")
	if !slash {
		s = strings.ReplaceAll(s, "%2F", "/")
	}
	return s
}

// s3Query is a query in the order of the signature.
func s3Query(q map[string]string) string {
	var parts []string
	for name, value := range q {
		parts = append(parts, s3Escape(name, true)+"="+s3Escape(value, true))
	}
	slices.Sort(parts)
	return strings.Join(parts, "&")
}
