package memlock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/locker/driver"
)

// Ticket is where an attempt hears that it was granted while it waited. It implements
// [driver.Ticket]. The server keeps one push per ticket: a newer one replaces it.
type Ticket struct {
	driver  *Driver
	attempt driver.Attempt
	pushes  chan grant // capacity 1, so that the server never waits for a waiter

	clock    driver.ServerClock
	once     sync.Once
	answered chan struct{} // closed when clock knows its first answer
}

// Listen opens the attempt's ear.
func (d *Driver) Listen(ctx context.Context, r driver.Request) (driver.Ticket, error) {
	if err := d.enter(ctx); err != nil {
		return nil, err
	}
	t := &Ticket{
		driver:   d,
		attempt:  r.Attempt,
		pushes:   make(chan grant, 1),
		answered: make(chan struct{}),
	}
	s := d.server
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tickets[r.Attempt] = append(s.tickets[r.Attempt], t)
	return t, nil
}

// push tells the attempt's tickets of its grant. The server's lock is held, so nobody
// else fills the room that is made here.
func (s *Server) push(g grant) {
	for _, t := range s.tickets[g.Attempt] {
		select {
		case <-t.pushes: // an older one that nobody fetched
		default:
		}
		t.pushes <- g
	}
}

// answered gives the clock of an answer to this client's tickets of the attempt.
func (d *Driver) answered(a driver.Attempt, sent driver.Instant, at time.Duration) {
	d.server.mu.Lock()
	tickets := slices.Clone(d.server.tickets[a])
	d.server.mu.Unlock()
	for _, t := range tickets {
		if t.driver == d {
			t.clock.Answered(sent, reading(at))
			t.once.Do(func() { close(t.answered) })
		}
	}
}

// Wait blocks until the attempt was granted by somebody else's request. A push that
// came before this client had any answer to an Enqueue or Poll of the attempt waits
// for one: without it nobody knows what the push's expiry means here. After the
// driver's Close it answers ErrClosed.
func (t *Ticket) Wait(ctx context.Context) (driver.Grant, error) {
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, err
	}
	select {
	case <-t.answered:
	case <-ctx.Done():
		return driver.Grant{}, ctx.Err()
	case <-t.driver.closed:
		return driver.Grant{}, driver.ErrClosed
	}
	select {
	case g := <-t.pushes:
		sent, left, _ := t.clock.Left(g.expires)
		return driver.Grant{Request: g.Request, Token: g.token, Sent: sent, Left: left}, nil
	case <-ctx.Done():
		return driver.Grant{}, ctx.Err()
	case <-t.driver.closed:
		return driver.Grant{}, driver.ErrClosed
	}
}

// Close lets go of the ticket. It ends no place and no grant.
func (t *Ticket) Close() {
	s := t.driver.server
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(t.attempt, func(o *Ticket) bool { return o == t })
}

// forget drops the tickets of a client that was closed.
func (s *Server) forget(d *Driver) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a := range s.tickets {
		s.drop(a, func(t *Ticket) bool { return t.driver == d })
	}
}

// drop removes those of the attempt's tickets. The server's lock is held.
func (s *Server) drop(a driver.Attempt, those func(*Ticket) bool) {
	left := slices.DeleteFunc(s.tickets[a], those)
	if len(left) == 0 {
		delete(s.tickets, a)
	} else {
		s.tickets[a] = left
	}
}
