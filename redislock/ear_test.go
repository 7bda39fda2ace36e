package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/fencelock/locker/driver"
)

func TestMain(m *testing.M) {
	redis.SetLogger(&logging.VoidLogger{}) // it would tell of every server that is not there
	m.Run()
}

// deaf is a driver whose ear hears what the test tells it, and a ticket of it.
func deaf(t *testing.T, ttl time.Duration) (*Driver, *Ticket) {
	t.Helper()
	d := &Driver{closed: make(chan struct{}), ear: newEar(nil, "")}
	d.ear.started = true
	d.ear.settle.Do(func() { close(d.ear.settled) })
	ticket, err := d.Listen(t.Context(), driver.Request{Key: "k", Attempt: driver.NewAttempt(), TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	return d, ticket.(*Ticket)
}

// Listen and calls beside Close: none starts behind it what it no longer waits for.
func TestListenBesideClose(t *testing.T) {
	t.Parallel()
	for range 50 {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, MaxRedirects: -1, DialerRetries: 1}) // nobody listens
		d := &Driver{closed: make(chan struct{}), ear: newEar(client, "c")}
		if err := d.use(client); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		start := make(chan struct{})
		for range 8 {
			all.Go(func() {
				<-start
				if ticket, err := d.Listen(t.Context(), driver.Request{Key: "k", Attempt: driver.NewAttempt(), TTL: time.Second}); err == nil {
					ticket.Close()
				}
			})
			all.Go(func() {
				<-start
				if err := d.Ping(t.Context()); err == nil {
					t.Error("Ping: got nil, want an error")
				}
			})
		}
		all.Go(func() {
			<-start
			_ = d.Close()
		})
		close(start)
		all.Wait()
		before := d.ear.started
		d.ear.begin() // as a Listen does that Close overtakes
		if d.ear.started != before {
			t.Fatal("the ear was opened behind Close")
		}
		if err := d.Ping(t.Context()); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("Ping behind Close: got %v, want %v", err, driver.ErrClosed)
		}
		_ = client.Close()
	}
}

// heard is what the ticket has to say at once. Nil: nothing.
func heard(t *testing.T, ticket *Ticket) *driver.Grant {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	g, err := ticket.Wait(ctx)
	if err != nil {
		return nil
	}
	return &g
}

func payload(ticket *Ticket, token driver.Token, expiry time.Duration) string {
	return fmt.Sprintf("%v %v %d", ticket.req.Attempt, token, expiry.Milliseconds())
}

// R13: a push is judged with an answer of the same server alone. Behind a new subscription,
// which may be with another one, neither what was pushed nor what was read before counts.
func TestNewSubscriptionForgets(t *testing.T) {
	t.Parallel()
	const ttl = 8 * time.Second // a claim window of 4 s
	d, ticket := deaf(t, ttl)
	subscription := &redis.Subscription{Kind: "subscribe"}
	old := d.ear.subscribed()
	d.ear.answered(ticket.req.Attempt, old, driver.Now(), time.Hour)
	d.ear.take(&redis.Message{Payload: payload(ticket, 7, time.Hour+4*time.Second)})
	d.ear.take(subscription)
	if g := heard(t, ticket); g == nil || g.Token != 0 {
		t.Errorf("behind a new subscription: got %+v, want to be roused, and the old push dropped", g)
	}
	// The new server's clock is a minute behind: with the old reading its pushes end too soon,
	// with one a minute ahead too late.
	d.ear.take(&redis.Message{Payload: payload(ticket, 8, time.Hour+time.Minute)})
	if g := heard(t, ticket); g != nil {
		t.Errorf("a push before the new server's first answer: got %+v, want it kept", g)
	}
	d.ear.answered(ticket.req.Attempt, old, driver.Now(), time.Hour)
	if g := heard(t, ticket); g != nil {
		t.Errorf("a push and an answer to what was asked before: got %+v, want it kept", g)
	}
	sent := driver.Now()
	d.ear.answered(ticket.req.Attempt, d.ear.subscribed(), sent, time.Hour+57*time.Second)
	if g := heard(t, ticket); g == nil || g.Token != 8 || g.Left != 3*time.Second || g.Sent != sent {
		t.Errorf("behind the new server's answer: got %+v, want token 8 and 3 s from its send", g)
	}
}

// A push never promises more than the claim window that every grant by push begins with.
func TestPushIsBounded(t *testing.T) {
	t.Parallel()
	const ttl = 8 * time.Second
	d, ticket := deaf(t, ttl)
	sent := driver.Now()
	d.ear.answered(ticket.req.Attempt, d.ear.subscribed(), sent, time.Hour)
	d.ear.take(&redis.Message{Payload: payload(ticket, 7, 2*time.Hour)})
	g := heard(t, ticket)
	if g == nil || g.Token != 7 {
		t.Fatalf("the push: got %+v, want token 7", g)
	}
	if most := driver.Now().Sub(sent) + driver.ClaimWindow(ttl); g.Left > most {
		t.Errorf("it promises %v from the send, want at most %v: a claim window from now", g.Left, most)
	}
}

// One waiter with a short ttl makes the connection watched closely, as long as it is there.
func TestPatience(t *testing.T) {
	t.Parallel()
	d, long := deaf(t, 12*time.Second)
	want := func(what string, want time.Duration, listeners int) {
		t.Helper()
		if got, n := d.ear.patience(); got != want || n != listeners {
			t.Errorf("silence %s: got %v with %d listeners, want %v with %d", what, got, n, want, listeners)
		}
	}
	want("of one", 3*time.Second, 1)
	short, err := d.Listen(t.Context(), driver.Request{Key: "k", Attempt: driver.NewAttempt(), TTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	want("beside a short one", 250*time.Millisecond, 2)
	short.Close()
	short.Close()
	want("behind the short one", 3*time.Second, 1)
	long.Close()
	want("of nobody", longestSilence, 0)
}
