package memlock

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/locker/driver"
)

// Server is the shared state that Drivers are clients of. It is one namespace. Make
// one with [NewServer] or [Named]. It is safe for concurrent use.
//
// Every method below is one atomic step, as a script or a transaction is on a real
// server, and reads the server's clock once.
type Server struct {
	began time.Time // the clock's origin; never shown to a client

	mu      sync.Mutex
	records map[string]*record
	tickets map[driver.Attempt][]*Ticket
	base    driver.Token
	settled bool // base is fixed
}

// now is the server's clock: the time since the server began.
func (s *Server) now() time.Duration { return time.Since(s.began) }

// reading is what an answer carries of a moment on the server's clock. It is rounded
// up, as on a server that counts in milliseconds: a reading that is late makes a
// grant seem shorter, one that is early would make it seem longer.
func reading(now time.Duration) time.Duration {
	return (now + tick - 1).Truncate(tick)
}

// tick is the resolution of what the server says about its clock.
const tick = time.Millisecond

// answer is what the server replies to an attempt: the grant that the attempt has, or
// who holds the key, and when this was so.
type answer struct {
	grant *grant            // nil: not granted
	held  *driver.HeldError // nil: granted, or neither granted nor queued
	at    time.Duration     // the moment of the answer on the server's clock
}

// tryAcquire grants the key if it is free and nobody live waits.
func (s *Server) tryAcquire(r driver.Request) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	rec := s.record(r.Key)
	s.handOn(rec, now, r.Attempt)
	if rec.grant == nil {
		// Nobody live waits: handOn would have granted to the first of them.
		if err := rec.give(r, now, r.TTL); err != nil {
			return answer{at: now}, err
		}
		rec.grant.tried = true
	}
	if rec.grant.Attempt == r.Attempt {
		return answer{grant: rec.copyGrant(), at: now}, nil
	}
	return answer{held: rec.refusal(now, 0), at: now}, nil
}

// enqueue grants the key as tryAcquire does, or takes a place at the end of the queue.
// Sent again, it finds the grant or the place that it made, and keeps the place alive.
func (s *Server) enqueue(r driver.Request) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	rec := s.record(r.Key)
	s.handOn(rec, now, r.Attempt)
	if rec.grant == nil {
		if err := rec.give(r, now, r.TTL); err != nil {
			return answer{at: now}, err
		}
	}
	if rec.grant.Attempt == r.Attempt {
		return answer{grant: rec.copyGrant(), at: now}, nil
	}
	i := rec.find(r.Attempt)
	if i < 0 {
		i = len(rec.queue)
		rec.queue = append(rec.queue, &place{Request: r})
	}
	rec.queue[i].seen = now
	return answer{held: rec.refusal(now, i), at: now}, nil
}

// poll asks after a place and keeps it alive. A place that was silent for its horizon
// is gone, and no poll brings it back.
func (s *Server) poll(r driver.Request) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	rec := s.records[r.Key]
	if rec == nil {
		return answer{at: now}, driver.ErrLost
	}
	s.handOn(rec, now, r.Attempt)
	if rec.grant != nil && rec.grant.Attempt == r.Attempt {
		return answer{grant: rec.copyGrant(), at: now}, nil
	}
	i := rec.find(r.Attempt)
	if i < 0 {
		return answer{at: now}, driver.ErrLost
	}
	rec.queue[i].seen = now
	return answer{held: rec.refusal(now, i), at: now}, nil
}

// renew makes the grant last its ttl again from now on. A renewal that is lost changes
// nothing, not even a key that it finds expired.
func (s *Server) renew(g driver.Grant) (driver.Request, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	rec := s.records[g.Key]
	if rec == nil || !rec.live(now) || rec.grant.Attempt != g.Attempt || rec.grant.token != g.Token {
		return driver.Request{}, driver.ErrLost
	}
	rec.grant.expires = now + rec.grant.TTL
	return rec.grant.Request, nil
}

// release ends what the attempt has, its grant or its place, and grants the key to
// the next live waiter. The token is not compared: an attempt that was sent once more
// by the network may have a grant that its caller never heard of.
func (s *Server) release(r driver.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	rec := s.records[r.Key]
	if rec == nil {
		return driver.ErrLost
	}
	s.handOn(rec, now, r.Attempt)
	if rec.grant != nil && rec.grant.Attempt == r.Attempt {
		rec.grant = nil
		s.handOn(rec, now, r.Attempt)
		return nil
	}
	if i := rec.find(r.Attempt); i >= 0 {
		rec.queue = slices.Delete(rec.queue, i, i+1)
		return nil
	}
	return driver.ErrLost
}

// breakGrant replaces the attempt of the grant, so that no renewal and no release
// finds it, and leaves token, owner and expiry as they are. With b.Now it ends the
// grant and gives the key to the next live waiter.
func (s *Server) breakGrant(key string, t driver.Token, b driver.Break) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	rec := s.records[key]
	if rec == nil || !rec.live(now) {
		return driver.ErrLost
	}
	if rec.grant.token != t {
		return rec.refusal(now, 0)
	}
	if b.Now {
		rec.grant = nil
		s.handOn(rec, now, driver.Attempt{})
		return nil
	}
	if !rec.grant.broken {
		rec.grant.broken = true
		rec.grant.Attempt = driver.NewAttempt()
		rec.grant.Note = brokenNote(rec.grant.Note, b)
	}
	return nil
}

// brokenNote is the holder's note with what is known about the break.
func brokenNote(note string, b driver.Break) string {
	s := "broken"
	if b.By != "" {
		s += " by " + b.By
	}
	if b.Reason != "" {
		s += ": " + b.Reason
	}
	if note != "" {
		s = note + "; " + s
	}
	return s
}

// inspect describes keys in their order. It changes nothing: a grant that it finds
// expired stays for somebody who wants the key.
func (s *Server) inspect(keys ...string) []driver.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	states := make([]driver.State, len(keys))
	for i, key := range keys {
		states[i] = driver.State{Key: key}
		if rec := s.records[key]; rec != nil {
			states[i] = rec.state(key, now, s.base)
		}
	}
	return states
}

// names returns every key with the prefix that was ever granted, in order.
func (s *Server) names(prefix string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name := range s.records {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
