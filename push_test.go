package locker_test

import (
	"context"
	"testing"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
)

// handOff has a holder, and a tapped Locker that waits behind it.
type handOff struct {
	*world
	holder *locker.Lease
	waiter *locker.Locker
	tap    *tap
	got    chan *locker.Lease
}

func inHandOff(t *testing.T, change func(driver.Info) driver.Info, f func(h *handOff)) {
	t.Helper()
	inWorld(t, func(w *world) {
		tp := &tap{d: w.server.Driver(), info: change}
		h := &handOff{world: w, tap: tp, waiter: w.over(tp, tenSeconds()), got: make(chan *locker.Lease, 1)}
		h.holder = w.acquire(w.locker(tenSeconds()), "k")
		f(h)
	})
}

func sameInfo(i driver.Info) driver.Info { return i }

// start lets the waiter take its place, and release gives it the key.
func (h *handOff) start() {
	go func() { h.got <- h.acquire(h.waiter, "k") }()
	pass(time.Second)
}

func (h *handOff) release() {
	h.Helper()
	h.wants(h.holder.Release(h.ctx))
}

// deliver holds every push back for d.
func deliver(d time.Duration) handler {
	return func(ctx context.Context, _ seen, send next) (driver.Grant, error) {
		g, err := send(ctx)
		if err == nil {
			<-time.After(d)
		}
		return g, err
	}
}

func TestR13PushIsAcceptedAtOnce(t *testing.T) {
	inHandOff(t, sameInfo, func(h *handOff) {
		h.start()
		h.tap.forget()
		begun := time.Now()
		h.release()
		lease := <-h.got
		if d := time.Since(begun); d != 0 {
			t.Errorf("hand-off took %v", d)
		}
		if n := h.tap.requests(opRenew, opPoll, opTry); n != 0 {
			t.Errorf("%d requests before a pushed grant was believed, want none", n)
		}
		if lease.Token() != 2 || !lease.Valid() {
			t.Errorf("token %v (%v)", lease.Token(), lease.Err())
		}
	})
}

func TestR13StalePushIsConfirmedByOneRenewal(t *testing.T) {
	inHandOff(t, sameInfo, func(h *handOff) {
		h.tap.when(opPoll, hang)
		h.tap.when(opWait, deliver(3*time.Second)) // of a claim window of 5 s
		h.start()
		h.tap.forget()
		h.release()
		lease := <-h.got
		if n := h.tap.requests(opRenew); n != 1 {
			t.Errorf("%d renewals, want one confirmation", n)
		}
		if got := lease.Remaining(); !near(got, end) {
			t.Errorf("remaining %v, want a full ttl's %v", got, end)
		}
	})
}

func TestR13ConfirmPushesAlways(t *testing.T) {
	inHandOff(t, func(i driver.Info) driver.Info { i.ConfirmPushes = true; return i }, func(h *handOff) {
		h.start()
		h.tap.when(opRenew, first(1, unavailable)) // an unknown confirmation is repeated
		h.tap.forget()
		h.release()
		<-h.got
		if n := h.tap.requests(opRenew); n != 2 {
			t.Errorf("%d renewals, want the confirmation and its repetition", n)
		}
	})
}

func TestR13FailedConfirmationMakesAFreshAttempt(t *testing.T) {
	inHandOff(t, func(i driver.Info) driver.Info { i.ConfirmPushes = true; return i }, func(h *handOff) {
		h.start()
		h.tap.when(opRenew, first(1, func(context.Context, seen, next) (driver.Grant, error) {
			return driver.Grant{}, driver.ErrLost
		}))
		h.release()
		lease := <-h.got
		places := h.tap.saw(opEnqueue)
		if len(places) != 2 || places[0].req.Attempt == places[1].req.Attempt {
			t.Errorf("%d places, want a fresh one", len(places))
		}
		if h.tap.requests(opRelease) != 1 {
			t.Error("the old attempt was not undone")
		}
		if !lease.Valid() {
			t.Error(lease.Err())
		}
	})
}

func TestR13LatePushIsIgnored(t *testing.T) {
	inHandOff(t, sameInfo, func(h *handOff) {
		h.tap.when(opPoll, first(4, hang)) // 4 times 2.5 s
		h.tap.when(opWait, func(ctx context.Context, s seen, send next) (driver.Grant, error) {
			if s.n == 1 {
				return deliver(6*time.Second)(ctx, s, send)
			}
			<-ctx.Done()
			return driver.Grant{}, ctx.Err()
		})
		h.start()
		h.release()
		lease := <-h.got
		if n := h.tap.requests(opRenew); n != 0 {
			t.Errorf("%d renewals of a grant that is over", n)
		}
		if lease.Token() <= 2 {
			t.Errorf("token %v: a grant that had ended was believed", lease.Token())
		}
	})
}

func TestR13PushBehindPollIsNotReleased(t *testing.T) {
	inHandOff(t, sameInfo, func(h *handOff) {
		h.tap.when(opWait, func(ctx context.Context, _ seen, _ next) (driver.Grant, error) { // every push is lost
			<-ctx.Done()
			return driver.Grant{}, ctx.Err()
		})
		h.start()
		h.release()
		lease := <-h.got // by polling
		pass(ttl)
		if !lease.Valid() || h.tap.requests(opRelease) != 0 {
			t.Errorf("%v; %d releases", lease.Err(), h.tap.requests(opRelease))
		}
	})
}

func TestR13StrangersPushIsIgnored(t *testing.T) {
	inHandOff(t, sameInfo, func(h *handOff) {
		h.tap.when(opWait, first(1, func(context.Context, seen, next) (driver.Grant, error) {
			return driver.Grant{Request: driver.Request{Key: "k", Attempt: driver.NewAttempt(), TTL: ttl}, Token: 99, Sent: driver.PackageNow(), Left: ttl}, nil
		}))
		h.start()
		select {
		case lease := <-h.got:
			t.Fatalf("another attempt's push gave token %v while the key is held", lease.Token())
		default:
		}
		if n := h.tap.requests(opRelease, opRenew); n != 0 {
			t.Errorf("%d requests about a stranger's grant", n)
		}
		h.release()
		<-h.got
	})
}

func TestR13GonePlaceMakesAFreshAttempt(t *testing.T) {
	inHandOff(t, sameInfo, func(h *handOff) {
		h.start()
		h.tap.when(opPoll, first(1, func(context.Context, seen, next) (driver.Grant, error) { return driver.Grant{}, driver.ErrLost }))
		pass(ttl)
		if n := h.tap.requests(opEnqueue); n != 2 {
			t.Errorf("%d places, want a fresh one behind the one that is gone", n)
		}
		h.release()
		<-h.got
	})
}

func TestR13UnansweredPollsKeepTheAttempt(t *testing.T) {
	inHandOff(t, sameInfo, func(h *handOff) {
		h.start()
		h.tap.when(opPoll, first(3, func(ctx context.Context, _ seen, send next) (driver.Grant, error) {
			_, _ = send(ctx) // it arrives
			return driver.Grant{}, driver.ErrAmbiguous
		}))
		pass(5 * ttl)
		if n := h.tap.requests(opEnqueue); n != 1 {
			t.Errorf("%d places, want the first to stay", n)
		}
		h.release()
		<-h.got
	})
}

func TestR13LostEnqueueReplyIsRepeated(t *testing.T) {
	inHandOff(t, sameInfo, func(h *handOff) {
		h.tap.when(opEnqueue, first(1, lostReply))
		h.start()
		if s, _ := h.server.Driver().Inspect(h.ctx, "k"); s.Waiters != 1 {
			t.Errorf("%d places, want one", s.Waiters)
		}
		h.release()
		if lease := <-h.got; lease.Token() != 2 {
			t.Errorf("token %v, want 2", lease.Token())
		}
		if n := h.tap.requests(opRelease); n != 0 {
			t.Errorf("%d undos of a place that stands", n)
		}
	})
}
