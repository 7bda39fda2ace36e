package netfault

import (
	"fmt"
	"net/http"
	"time"
)

// Rule picks requests and says what becomes of them. The zero Rule picks all and passes
// them on. A request meets the first Rule that picks it, and where there is none the
// faults of Set.
type Rule struct {
	// Match picks requests; nil picks all. It must not read the body and is called by one
	// goroutine at a time.
	Match func(*http.Request) bool
	// Skip lets so many of the picked requests pass first, Times is how many it then
	// takes. Zero: all.
	Skip, Times int
	// Do is what happens. Status (zero: 200), Body and Header are for Answer and
	// AnswerLate; Body is XML if it begins with '<'.
	Do     Action
	Status int
	Body   string
	Header http.Header
	// Delay is before the request goes on, DelayReply before the reply does. After is when
	// Repeat sends the copy, counted from the server's reply.
	Delay, DelayReply, After time.Duration
	// Before is called before the request goes on, and Behind when the reply has come:
	// both may block, which is how a test stops a client between two of its steps. Behind
	// may change the reply's status and headers, those of a reply that the rule made, too.
	// Both may be nil.
	Before func(*http.Request)
	Behind func(*http.Response)
}

// Action is what happens to a request that a Rule picked.
type Action int

const (
	// Pass delivers request and reply.
	Pass Action = iota
	// DropRequest resets the client's connection instead of delivering the request.
	DropRequest
	// DropReply delivers the request and resets the connection instead of the reply.
	DropReply
	// Swallow loses the request in silence, up to the next change.
	Swallow
	// Silence delivers the request and loses the reply in silence.
	Silence
	// Answer answers instead of the server, which never has the request.
	Answer
	// AnswerLate delivers the request and answers something else than the server did.
	AnswerLate
	// Repeat delivers the request, and when it was answered a copy of it.
	Repeat
)

// S3Error is the Body of an S3 error.
func S3Error(code, message string) string {
	return fmt.Sprintf("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>%s</Code><Message>%s</Message><RequestId>0</RequestId></Error>", code, message)
}

// S3Verb names a request as S3's price lists do: LIST is a GET of a bucket's listing.
func S3Verb(r *http.Request) string {
	if r.Method == http.MethodGet && r.URL.Query().Has("list-type") {
		return "LIST"
	}
	return r.Method
}

// rule is a Rule with what it has done. Its numbers are guarded by HTTP.mu.
type rule struct {
	Rule
	seen int
}

// takes counts a request and reports whether the rule is for it.
func (r *rule) takes(req *http.Request) bool {
	if r.Match != nil && !r.Match(req) {
		return false
	}
	r.seen++
	return r.seen > r.Skip && (r.Times == 0 || r.seen <= r.Skip+r.Times)
}
