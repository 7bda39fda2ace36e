package netfault

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/locker/conformance"
)

// exchange is one request on its way, and its reply.
type exchange struct {
	Rule
	h      *HTTP
	w      http.ResponseWriter
	r      *http.Request
	body   []byte
	picked bool
	number uint64
	hurt   bool
	copied *spot // what asks for a copy
}

// spot is what a fault of Set means for one direction of one request.
type spot struct {
	lose, swallow bool
	delay         time.Duration
	repeat        bool
	after         time.Duration
	changed       <-chan struct{}
}

// at asks what is in force now for one direction.
func (x *exchange) at(dir int) spot {
	f, d, changed := x.h.now()
	s := spot{changed: changed}
	if x.picked { // the rule decides alone
		return x.ruled(dir, s)
	}
	before, after := dice(x.h.seed).reset(resetOneIn, 0, x.number)
	switch f {
	case conformance.LoseRequests:
		s.lose = dir == requests
	case conformance.LoseReplies:
		s.lose = dir == replies
	case conformance.BlackHole:
		s.swallow = true
	case conformance.Mute:
		s.swallow = dir == replies
	case conformance.Delays:
		what := forRequestDelay
		if dir == replies {
			what = forReplyDelay
		}
		s.delay = dice(x.h.seed).late(Harm{Jitter: d}, what, 0, x.number)
	case conformance.Resets:
		s.lose = dir == requests && before || dir == replies && after
	case conformance.Copies:
		s.repeat, s.after = dir == requests, d
	}
	return s
}

func (x *exchange) ruled(dir int, s spot) spot {
	if dir == requests {
		s.delay, s.lose, s.swallow = x.Delay, x.Do == DropRequest, x.Do == Swallow
		s.repeat, s.after = x.Do == Repeat, x.After
		return s
	}
	s.delay, s.lose, s.swallow = x.DelayReply, x.Do == DropReply, x.Do == Silence
	return s
}

func (x *exchange) run() {
	if !x.pass(requests) {
		return
	}
	if x.Before != nil {
		x.Before(x.r)
	}
	x.hurt = false // the reply is harmed apart
	got, err := x.reply()
	if err != nil { // the server is not there, or has gone
		drop(x.w)
		return
	}
	if x.Behind != nil {
		x.Behind(got.Response)
	}
	if x.pass(replies) {
		got.write(x.w)
	}
}

// reply has the request answered: by the server, or by the rule.
func (x *exchange) reply() (*reply, error) {
	if x.Do == Answer {
		x.harm()
		return x.made(), nil
	}
	got, err := x.h.forward(x.r, x.body)
	if err != nil {
		return nil, err
	}
	if x.copied != nil && x.h.join() {
		go x.again(x.copied.after)
	}
	if x.Do == AnswerLate {
		x.harm()
		return x.made(), nil
	}
	return got, nil
}

// again delivers the request a second time. The server has answered it: no copy overtakes
// its original.
func (x *exchange) again(after time.Duration) {
	defer x.h.wg.Done()
	if sleep(x.h.ctx, after) {
		_, _ = x.h.forward(x.r, x.body)
	}
}

// pass applies what is in force for one direction and reports whether it goes on.
func (x *exchange) pass(dir int) bool {
	s := x.at(dir)
	if s.lose || s.swallow || s.repeat || s.delay > 0 {
		x.harm()
	}
	if s.delay > 0 && !s.swallow && !s.lose {
		if !sleep(x.h.ctx, s.delay) {
			drop(x.w)
			return false
		}
		if later := x.at(dir); later.swallow || later.lose { // the network broke meanwhile
			s = later
			x.hurt = false // Fired has begun anew
			x.harm()
		}
	}
	switch {
	case s.lose:
		drop(x.w)
		return false
	case s.swallow:
		select {
		case <-s.changed:
		case <-x.h.ctx.Done():
		}
		drop(x.w)
		return false
	case s.repeat:
		x.copied = &s
	}
	return true
}

// harm counts a request once for each direction.
func (x *exchange) harm() {
	if !x.hurt {
		x.hurt = true
		x.h.harmed()
	}
}

// made is the reply that the rule wants.
func (x *exchange) made() *reply {
	header := x.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	if header.Get("Date") == "" {
		header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	}
	if strings.HasPrefix(x.Body, "<") {
		header.Set("Content-Type", "application/xml")
	}
	header.Set("Content-Length", strconv.Itoa(len(x.Body))) // of a HEAD's, too, which has no body
	return &reply{
		Response: &http.Response{StatusCode: x.Status, Header: header, Request: x.r, Body: io.NopCloser(strings.NewReader(""))},
		body:     []byte(x.Body),
	}
}
