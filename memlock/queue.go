package memlock

import (
	"fmt"
	"slices"
	"time"

	"github.com/fencelock/locker/driver"
)

// record is all that the server knows of one key. It is never deleted.
type record struct {
	last  driver.Token // the last token given, or the base
	grant *grant       // nil: free. It may have expired: see live
	queue []*place     // in the order of arrival; places that died stay until handOn
}

// grant is a granted request. Once broken, its attempt is nobody's.
type grant struct {
	driver.Request
	token   driver.Token
	since   time.Duration // when it was granted
	expires time.Duration
	broken  bool
	// tried: made by a TryAcquire, for the whole ttl, so that the caller may count
	// from its first send.
	tried bool
}

// place is a waiter in the queue: the request that it will be granted, floor and all.
type place struct {
	driver.Request
	seen time.Duration // its last Enqueue or Poll
}

// record returns the key's record, making it on first use.
func (s *Server) record(key string) *record {
	rec := s.records[key]
	if rec == nil {
		rec = &record{last: s.base}
		s.records[key] = rec
	}
	return rec
}

// live reports whether the key is held now. A grant ends at its expiry, not after it.
func (rec *record) live(now time.Duration) bool {
	return rec.grant != nil && now < rec.grant.expires
}

// alive reports whether the place still counts: its last sign of life is younger than
// its horizon.
func (p *place) alive(now time.Duration) bool {
	return now-p.seen < driver.Horizon(p.TTL)
}

// handOn is the step that whoever looks takes first: it ends a grant that has expired,
// drops the places that died, and grants a free key to the first live waiter, for its
// claim window. The waiter is told, unless it is the caller, who gets an answer.
func (s *Server) handOn(rec *record, now time.Duration, caller driver.Attempt) {
	if !rec.live(now) {
		rec.grant = nil
	}
	rec.queue = slices.DeleteFunc(rec.queue, func(p *place) bool { return !p.alive(now) })
	for rec.grant == nil && len(rec.queue) > 0 {
		next := rec.queue[0].Request
		rec.queue = slices.Delete(rec.queue, 0, 1)
		if rec.give(next, now, driver.ClaimWindow(next.TTL)) != nil {
			continue // no token is left: its poll answers gone, its next attempt why
		}
		if next.Attempt != caller {
			s.push(*rec.grant)
		}
	}
}

// give makes the grant, for the given time from now on. The counter is raised to the
// request's floor first, and never falls.
func (rec *record) give(r driver.Request, now, lasts time.Duration) error {
	last := max(rec.last, r.Floor)
	if last >= driver.MaxToken {
		return driver.Wrap(driver.ErrTokenRegression, fmt.Errorf("no token above %v is left", last))
	}
	rec.last = last + 1
	rec.grant = &grant{Request: r, token: rec.last, since: now, expires: now + lasts}
	return nil
}

// copyGrant is the grant as it is now, for use after the server's lock was let go.
func (rec *record) copyGrant() *grant {
	g := *rec.grant
	return &g
}

// find returns where in the queue the attempt's place is, or -1.
func (rec *record) find(a driver.Attempt) int {
	return slices.IndexFunc(rec.queue, func(p *place) bool { return p.Attempt == a })
}

// refusal says who holds the key, to a waiter with that many others before it.
func (rec *record) refusal(now time.Duration, ahead int) *driver.HeldError {
	g := rec.grant
	return &driver.HeldError{
		Owner: g.Owner, Note: g.Note, Token: g.token, Attempt: g.Attempt,
		ExpiresIn: g.expires - now, Ahead: ahead,
	}
}

// state describes the record for people.
func (rec *record) state(key string, now time.Duration, base driver.Token) driver.State {
	st := driver.State{Key: key}
	if rec.last != base {
		st.Token = rec.last
	}
	for _, p := range rec.queue {
		if p.alive(now) {
			st.Waiters++
		}
	}
	if rec.live(now) {
		g := rec.grant
		st.Held, st.Broken = true, g.broken
		st.Attempt, st.Owner, st.Note = g.Attempt, g.Owner, g.Note
		st.HeldFor, st.ExpiresIn = now-g.since, g.expires-now
	}
	return st
}
