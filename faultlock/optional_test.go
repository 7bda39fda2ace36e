package faultlock_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/faultlock"
	"github.com/fencelock/locker/memlock"
)

// Every operation can lose its request and its reply.
func TestEveryOperation(t *testing.T) {
	for op, call := range map[string]func(w *world, g driver.Grant, r driver.Request) error{
		"try": func(w *world, _ driver.Grant, r driver.Request) error {
			_, err := w.faulty.TryAcquire(w.ctx(), r)
			return err
		},
		"renew": func(w *world, g driver.Grant, _ driver.Request) error {
			_, err := w.faulty.Renew(w.ctx(), g)
			return err
		},
		"release": func(w *world, g driver.Grant, _ driver.Request) error { return w.faulty.Release(w.ctx(), g) },
		"listen": func(w *world, _ driver.Grant, r driver.Request) error {
			_, err := w.faulty.Listen(w.ctx(), r)
			return err
		},
		"enqueue": func(w *world, _ driver.Grant, r driver.Request) error {
			_, err := w.faulty.Enqueue(w.ctx(), r)
			return err
		},
		"poll": func(w *world, _ driver.Grant, r driver.Request) error {
			_, err := w.faulty.Poll(w.ctx(), r)
			return err
		},
		"inspect": func(w *world, g driver.Grant, _ driver.Request) error {
			_, err := w.faulty.Inspect(w.ctx(), g.Key)
			return err
		},
		"list": func(w *world, _ driver.Grant, _ driver.Request) error {
			var pairs int
			var last error
			for _, err := range w.faulty.List(w.ctx(), "") {
				pairs, last = pairs+1, err
			}
			equal(w.t, "pairs", pairs, 1)
			return last
		},
		"break": func(w *world, g driver.Grant, _ driver.Request) error {
			return w.faulty.Break(w.ctx(), g.Key, g.Token, driver.Break{Now: true})
		},
		"ping": func(w *world, _ driver.Grant, _ driver.Request) error { return w.faulty.Ping(w.ctx()) },
	} {
		t.Run(op, func(t *testing.T) {
			inBubble(t, op+"#1=before;"+op+"#2=after;"+op+"#3=hang", func(t *testing.T, w *world) {
				g := w.hold("k")
				r := request("k")
				w.unsent("before", call(w, g, r))
				equal(t, "held", w.state("k").Held, true)
				equal(t, "Waiters", w.state("k").Waiters, 0)
				w.lost("after", call(w, g, r))
				w.passed(0)
				switch op {
				case "release", "break":
					equal(t, "held", w.state("k").Held, false)
				case "enqueue":
					equal(t, "Waiters", w.state("k").Waiters, 1)
				}
				w.lost("hang", call(w, g, r))
				w.passed(timeout)
			})
		})
	}
}

func TestALostListenLeavesNoEarOpen(t *testing.T) {
	for _, fault := range []string{"after", "hangback", "delayback:1h", "dup", "dup:1s", "delay:3s"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ears := &ears{Driver: memlock.NewServer().Driver()}
				d := faultlock.New(ears, 1, parse(t, "listen="+fault))
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				if ticket, err := d.Listen(ctx, request("k")); err == nil {
					ticket.Close()
				}
				equal(t, "Close", d.Close(), nil)
				if ears.opened == 0 || ears.open != 0 {
					t.Fatalf("ears: got %d of %d open, want none of some", ears.open, ears.opened)
				}
			})
		})
	}
}

// ears counts the open tickets of the inner driver.
type ears struct {
	*memlock.Driver
	open, opened int
}

type ear struct {
	driver.Ticket
	ears *ears
}

func (e *ears) Listen(ctx context.Context, r driver.Request) (driver.Ticket, error) {
	t, err := e.Driver.Listen(ctx, r)
	e.open++
	e.opened++
	return &ear{t, e}, err
}

func (e *ear) Close() {
	e.ears.open--
	e.Ticket.Close()
}

func TestListFaults(t *testing.T) {
	inBubble(t, "list#1=delay:1s;list#2=delayback:1s;list#3=dup", func(t *testing.T, w *world) {
		w.hold("a")
		w.hold("b")
		for i := range 4 {
			var keys []string
			for st, err := range w.faulty.List(w.ctx(), "") {
				w.ok("list", err)
				keys = append(keys, st.Key)
			}
			if !reflect.DeepEqual(keys, []string{"a", "b"}) {
				t.Fatalf("keys: got %v, want a and b", keys)
			}
			w.passed(time.Duration(min(i+1, 2)) * time.Second)
		}
		for _, err := range w.faulty.List(w.ctx(), "") {
			w.ok("list", err)
			break // must not go on yielding
		}
		w.faulty.Set(parse(t, "list=dup"))
		for _, err := range w.faulty.List(w.ctx(), "") {
			w.ok("list", err)
			break // must not go on yielding
		}
	})
}

// One stuck key must not hold back its neighbours.
func TestABatchFailsPerGrant(t *testing.T) {
	inBubble(t, "renew[before]=before;renew[after]=after;renew[delay]=delay:1s;renew[late]=delay:3s;"+
		"renew[delayback]=delayback:1s;renew[hang]=hang;renew[hangback]=hangback;renew[dup]=dup:1s;renew[second]#2=before",
		func(t *testing.T, w *world) {
			var gs []driver.Grant
			for _, key := range []string{"sound", "before", "after", "delay", "late", "delayback", "hang", "hangback", "dup", "second"} {
				gs = append(gs, w.hold(key))
			}
			after(time.Second)
			w.start = time.Now()
			type answer struct {
				at  time.Duration
				err error
			}
			got := map[string]answer{}
			err := w.faulty.RenewBatch(w.ctx(), gs, func(i int, g driver.Grant, err error) {
				if _, twice := got[gs[i].Key]; twice {
					t.Errorf("%s: got a second answer, want one", gs[i].Key)
				}
				if err == nil {
					equal(t, "key", g.Key, gs[i].Key)
				}
				got[gs[i].Key] = answer{time.Since(w.start), err}
			})
			w.ok("RenewBatch", err)
			w.passed(timeout) // hang ends with the context
			for key, want := range map[string]answer{
				"sound":     {0, nil},
				"before":    {0, driver.ErrUnavailable},
				"after":     {0, driver.ErrAmbiguous},
				"delay":     {time.Second, nil},
				"late":      {timeout, driver.ErrAmbiguous},
				"delayback": {time.Second, nil},
				"hang":      {timeout, driver.ErrAmbiguous},
				"hangback":  {timeout, driver.ErrAmbiguous},
				"dup":       {0, nil},
				"second":    {0, nil},
			} {
				equal(t, key+" answered at", got[key].at, want.at)
				if !errors.Is(got[key].err, want.err) {
					t.Fatalf("%s: got %v, want %v", key, got[key].err, want.err)
				}
			}
			after(2 * time.Second) // 4 s after the renewals, 5 s after the grants
			synctest.Wait()
			for key, want := range map[string]time.Duration{
				"sound":     ttl - 4*time.Second,
				"before":    ttl - 5*time.Second,
				"after":     ttl - 4*time.Second,
				"delay":     ttl - 3*time.Second,
				"late":      ttl - 1*time.Second,
				"delayback": ttl - 4*time.Second,
				"hang":      ttl - 5*time.Second,
				"hangback":  ttl - 4*time.Second,
				"dup":       ttl - 3*time.Second,
			} {
				equal(t, key+" expires in", w.state(key).ExpiresIn, want)
			}
			// Ordinals are per key, so a batch of another make-up meets the same faults.
			_ = w.faulty.RenewBatch(w.ctx(), gs[9:], func(_ int, _ driver.Grant, err error) { w.unsent("second", err) })
		})
}

// bare has no optional interface.
type bare struct{ driver.Driver }

func TestWhatTheInnerDriverLacksIsUnsupported(t *testing.T) {
	inner := memlock.NewServer().Driver()
	twice := faultlock.New(bare{inner}, 1, nil)
	for name, d := range map[string]*faultlock.Driver{
		"lacking":      faultlock.New(bare{inner}, 1, parse(t, "*=after")),
		"answering so": faultlock.New(twice, 1, parse(t, "*=after")),
		"sound":        twice,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, g, r := t.Context(), driver.Grant{Request: request("k")}, request("k")
			errs := map[string]error{}
			_, errs["Listen"] = d.Listen(ctx, r)
			_, errs["Enqueue"] = d.Enqueue(ctx, r)
			_, errs["Poll"] = d.Poll(ctx, r)
			errs["RenewBatch"] = d.RenewBatch(ctx, []driver.Grant{g}, func(int, driver.Grant, error) {
				t.Error("RenewBatch: got an answer, want none")
			})
			_, errs["Inspect"] = d.Inspect(ctx, "k")
			errs["Break"] = d.Break(ctx, "k", 1, driver.Break{})
			errs["Ping"] = d.Ping(ctx)
			var pairs int
			for st, err := range d.List(ctx, "") {
				equal(t, "state", st, driver.State{})
				errs["List"] = err
				pairs++
			}
			equal(t, "pairs of List", pairs, 1)
			for op, err := range errs {
				if !errors.Is(err, driver.ErrUnsupported) {
					t.Errorf("%s: got %v, want %v", op, err, driver.ErrUnsupported)
				}
			}
			if got, want := d.Info(), inner.Info(); !reflect.DeepEqual(got, want) {
				t.Errorf("Info: got %v, want %v", got, want)
			}
		})
	}
}

func TestClosed(t *testing.T) {
	d := faultlock.New(memlock.NewServer().Driver(), 1, parse(t, "*=after"))
	ctx, g := t.Context(), driver.Grant{Request: request("k")}
	ticket, err := faultlock.New(d, 1, nil).Listen(ctx, request("k"))
	if !errors.Is(err, driver.ErrAmbiguous) {
		t.Fatalf("Listen: got %v, %v, want %v", ticket, err, driver.ErrAmbiguous)
	}
	d.Enable(false)
	ticket, err = d.Listen(ctx, request("k"))
	equal(t, "Listen", err, nil)
	equal(t, "Close", d.Close(), nil)
	equal(t, "second Close", d.Close(), nil)
	errs := map[string]error{}
	_, errs["Renew"] = d.Renew(ctx, g)
	_ = d.RenewBatch(ctx, []driver.Grant{g}, func(_ int, _ driver.Grant, err error) { errs["RenewBatch"] = err })
	for _, err := range d.List(ctx, "") {
		errs["List"] = err
	}
	_, errs["Wait"] = ticket.Wait(ctx)
	for _, op := range []string{"Renew", "RenewBatch", "List", "Wait"} {
		if !errors.Is(errs[op], driver.ErrClosed) {
			t.Errorf("%s: got %v, want %v", op, errs[op], driver.ErrClosed)
		}
	}
}
