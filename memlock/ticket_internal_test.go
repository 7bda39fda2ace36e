package memlock

import (
	"testing"
	"time"

	"github.com/fencelock/locker/driver"
)

func TestNothingIsKeptOfClosedTickets(t *testing.T) {
	t.Parallel()
	s := NewServer()
	a, b := s.Driver(), s.Driver()
	r := driver.Request{Key: "k", Attempt: driver.NewAttempt(), TTL: time.Second}
	var tickets []driver.Ticket
	for _, d := range []*Driver{a, a, b} {
		ticket, err := d.Listen(t.Context(), r)
		if err != nil {
			t.Fatalf("Listen: got %v, want a ticket", err)
		}
		tickets = append(tickets, ticket)
	}
	kept := func(want int) {
		t.Helper()
		if got := len(s.tickets[r.Attempt]); got != want {
			t.Fatalf("tickets: got %d, want %d", got, want)
		}
	}
	kept(3)
	tickets[0].Close()
	kept(2)
	if err := b.Close(); err != nil {
		t.Fatalf("Close: got %v, want nil", err)
	}
	kept(1)
	tickets[1].Close()
	tickets[2].Close()
	if got := len(s.tickets); got != 0 {
		t.Fatalf("attempts with tickets: got %d, want 0", got)
	}
}
