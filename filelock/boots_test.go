//go:build linux

package filelock

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/locker/driver"
)

// FS4: records of other boots and other machines.
func TestFS4OtherBoots(t *testing.T) {
	t.Parallel()
	mid, other := strings.Repeat("ab", 16), strings.Repeat("cd", 16)
	for name, c := range map[string]struct {
		holder, contender host
		lives             bool // the holder's process is still there
		atOnce            bool
	}{
		"rebooted":                    {host{boot: "1", machine: mid}, host{boot: "2", machine: mid}, false, true},
		"rebooted, alive after all":   {host{boot: "1", machine: mid}, host{boot: "2", machine: mid}, true, false},
		"another machine":             {host{boot: "1", machine: mid}, host{boot: "2", machine: other}, false, false},
		"no machine id":               {host{boot: "1"}, host{boot: "2"}, false, false},
		"no machine id there":         {host{boot: "1"}, host{boot: "2", machine: mid}, false, false},
		"same boot, another machine":  {host{boot: "1", machine: mid}, host{boot: "1", machine: other}, false, true},
		"same boot, alive":            {host{boot: "1"}, host{boot: "1"}, true, false},
		"another time namespace":      {host{boot: "1"}, host{boot: "1", offset: time.Hour}, true, false},
		"another time namespace back": {host{boot: "1", offset: -time.Hour}, host{boot: "1"}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := directory(t)
			inside := func(h host) *double {
				d := newDouble()
				d.skew = h.offset // what such a process reads
				return d
			}
			a, b := on(t, dir, inside(c.holder), c.holder, nil), on(t, dir, inside(c.contender), c.contender, nil)
			g := acquire(t, a, "k")
			if !c.lives {
				dies(t, a, g)
			}
			began := driver.Now()
			err := tryErr(b, "k", t)
			if c.atOnce {
				if err != nil {
					t.Fatalf("got %v, want the key at once", err)
				}
				return
			}
			if !errors.Is(err, driver.ErrHeld) {
				t.Fatalf("got %v, want a refusal", err)
			}
			eventually(t, 3*ttl, "taken over", func() bool { return tryErr(b, "k", t) == nil })
			if took := driver.Now().Sub(began); c.holder.boot != c.contender.boot && took < ttl+ttl/clockError {
				t.Errorf("taken over after %v of observation: the other clock may be slower", took)
			}
			if took := driver.Now().Sub(g.Sent); took < ttl {
				t.Errorf("taken over %v after the grant", took)
			}
		})
	}
}

// FS4: one-shot processes of one boot continue each other's observation.
func TestFS4ObservationIsWrittenDown(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	a := on(t, dir, kernel{}, host{boot: "1"}, nil)
	g := acquire(t, a, "k")
	dies(t, a, g)
	began := driver.Now()
	eventually(t, 3*ttl, "a fresh process takes over", func() bool {
		b, err := open(within(t), dir, nil, kernel{}, host{boot: "2"})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = b.Close() }()
		return tryErr(b, "k", t) == nil
	})
	if took := driver.Now().Sub(began); took < ttl+ttl/clockError {
		t.Errorf("taken over after %v: the other clock may be slower", took)
	}
}

// FS10: two boot ids, one machine id, both alive: held, and as long as it is renewed.
func TestFS10TwoContainersOfOneMachine(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	mid := strings.Repeat("ab", 16)
	a, b := on(t, dir, kernel{}, host{boot: "1", machine: mid}, nil), on(t, dir, kernel{}, host{boot: "2", machine: mid}, nil)
	g := acquire(t, a, "k")
	from := driver.Now()
	for driver.Now().Sub(from) < 2*ttl {
		pass(t, ttl/4)
		var err error
		if g, err = a.Renew(within(t), g); err != nil {
			t.Fatal(err)
		}
		refusedBy(t, b, "k")
	}
}

// FS10: a renewal whose system call returns late: the next one waits for it, so the
// beat never goes back.
func TestFS10LateRenewal(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	sys := newDouble()
	d := on(t, dir, sys, here(t), nil)
	g := acquire(t, d, "k")
	resume, hung := make(chan struct{}), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(resume) })
	t.Cleanup(goOn) // or closing would wait for the call
	var touches atomic.Int32
	sys.set(func(call, _ string) error {
		if call == "touch" && touches.Add(1) == 1 {
			close(hung)
			<-resume
		}
		return nil
	}, nil)
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	if _, err := d.Renew(short(), g); !driver.IsAmbiguous(err) {
		t.Fatalf("a renewal that hangs: got %v, want ambiguous", err)
	}
	<-hung
	began := driver.Now()
	if _, err := d.Renew(short(), g); !driver.IsAmbiguous(err) {
		t.Fatalf("a renewal behind one that hangs: got %v, want ambiguous", err)
	}
	if took := driver.Now().Sub(began); took > 100*time.Millisecond+d.Info().Slack {
		t.Errorf("it took %v", took)
	}
	if n := touches.Load(); n != 1 {
		t.Errorf("%d renewals set the beat while one of them hung", n)
	}
	goOn()
	path := filepath.Join(dir, "locker", "k", "lock-1")
	var last time.Duration
	for range 20 {
		renewed, err := d.Renew(within(t), g)
		if err != nil {
			t.Fatal(err)
		}
		g = renewed
		st, err := kernel{}.lstat(path)
		if err != nil || st.mtime < last {
			t.Fatalf("the beat went from %v to %v, %v", last, st.mtime, err)
		}
		last = st.mtime
	}
}
