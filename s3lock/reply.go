package s3lock

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"

	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/fencelock/locker/driver"
)

// methodOf returns the method of the client's own request; "": it cannot be told.
func methodOf(request any) string {
	if sent, ok := request.(*smithyhttp.Request); ok {
		return sent.Method
	}
	return ""
}

// redirected undoes that a client has followed a redirect with a request of another kind, a
// write with a read: the answer to that says nothing of the write. The redirect is what the
// write was answered.
func redirected(method string, res *smithyhttp.Response) {
	if method == "" || res.Request == nil || res.Request.Method == method {
		return
	}
	res.StatusCode = http.StatusFound
	for last := res.Request; last != nil && last.Response != nil; last = last.Response.Request {
		res.StatusCode, res.Header = last.Response.StatusCode, last.Response.Header
	}
}

// took notes what the reply's head says, and turns what no store says into an error: only 200
// is a success (a 202 is not done yet, a 203 was changed on its way, a 206 is a part), beside
// what a DELETE is answered, and the answer to a write is nothing but a head, where a page of
// whatever is between has a body.
func (b *bucket) took(a *answer, method string, res *smithyhttp.Response) {
	a.arrived, a.status, a.header = driver.Now(), res.StatusCode, res.Header
	a.sent.Store(true)
	a.unbounded = res.ContentLength < 0 && len(res.TransferEncoding) == 0 && res.ProtoMajor == 1 && !res.Uncompressed
	a.date, _ = http.ParseTime(a.header.Get("Date"))
	a.modified, _ = http.ParseTime(a.header.Get("Last-Modified"))
	b.clock.heard(a)
	if res.StatusCode < 200 || res.StatusCode >= 300 {
		return
	}
	object := !a.modified.IsZero() && a.header.Get("ETag") != "" // whatever its content looks like
	text := ""
	if method == http.MethodPut || !object {
		text = peek(res)
	}
	switch status := disguised(text); {
	case status != 0:
		a.status, res.StatusCode = status, status
	case res.StatusCode != http.StatusOK && method != http.MethodDelete, method == http.MethodPut && text != "":
		a.alien = true
		a.status, res.StatusCode = http.StatusBadGateway, http.StatusBadGateway
	}
}

// peeked is how much of a body shows whether it is an error.
const peeked = 512

// peek returns how a body begins, without the space around it.
func peek(res *smithyhttp.Response) string {
	if res.Body == nil || res.ContentLength == 0 {
		return ""
	}
	in := bufio.NewReaderSize(res.Body, peeked)
	head, _ := in.Peek(peeked)
	res.Body = struct {
		io.Reader
		io.Closer
	}{in, res.Body}
	return string(bytes.TrimSpace(head))
}

// disguised finds an error that came with status 200, because it happened after the head
// was sent, and returns the status that it means. 0: it is none.
func disguised(text string) (status int) {
	if strings.HasPrefix(text, "<?xml") {
		_, text, _ = strings.Cut(text, "?>")
	}
	switch {
	case !strings.HasPrefix(strings.TrimSpace(text), "<Error>"):
		return 0
	case strings.Contains(text, "<Code>PreconditionFailed<"):
		return http.StatusPreconditionFailed
	case strings.Contains(text, "<Code>ConditionalRequestConflict<"):
		return http.StatusConflict
	case strings.Contains(text, "<Code>SlowDown<"):
		return http.StatusServiceUnavailable
	case strings.Contains(text, "<Code>NoSuchKey<"):
		return http.StatusNotFound
	default:
		return http.StatusInternalServerError
	}
}
