package conformance_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/driver"
)

// processMutants are what is wrong with real processes over a directory, and the case that
// must notice. Most run by the clock: on a machine that is slow meanwhile they say nothing.
var processMutants = []struct {
	killer, defect string
	says           string // part of what the case says
}{
	{"process/excludes", "apart", "while another process held it"},
	{"process/short-stop", "never-renews", "of a holder that was stopped for 0.3 T"},
	{"process/long-stop", "believes", "the first Err behind a stop of 1.5 T"},
	{"process/stopped-before-write", "fence-open", "a write with the old token"},
	{"process/killed-holder", "survived", "after the kill"},
	{"process/killed-leader", "survived", "after the kill"},
	{"process/killed-leader", "ahead", "token behind the killed leader's"},
	{"process/free-on-exit", "inherited", "after the kill"},
	{"process/killed-any-time", "ahead", "token behind the killed child's"},
	{"process/tokens-go-on", "anew", "token: got"},
}

// Each case about processes notices what it is there for.
func TestProcessMutants(t *testing.T) {
	for _, m := range processMutants {
		t.Run(strings.TrimPrefix(m.killer, "process/")+"/"+m.defect, func(t *testing.T) {
			t.Parallel()
			h, ok := directory(t, envDefect+"="+m.defect)
			if !ok {
				return
			}
			if m.defect == "fence-open" {
				h.Fence = func(context.Context, string) (conformance.Fence, error) { return &openFence{}, nil }
			}
			_, r := only(t, h, m.killer)
			if r.Verdict != conformance.Failed && r.Verdict != conformance.Inconclusive || r.Cause != conformance.ByRule || !strings.Contains(r.Detail, m.says) {
				t.Errorf("got %s (%s), want it failed by its rule, with %q in it\n%s", r.Verdict, r.Cause, m.says, r.Detail)
			}
		})
	}
}

// childDefects make a child's client of a directory a broken one.
var childDefects = map[string]func(d driver.Driver, dir string) driver.Driver{
	"ahead": func(d driver.Driver, _ string) driver.Driver {
		return &renumbered{Driver: d, show: func(t driver.Token) driver.Token { return t + 1000 }}
	},
	"anew": func(d driver.Driver, _ string) driver.Driver {
		n := driver.Token(0)
		return &renumbered{Driver: d, show: func(driver.Token) driver.Token { n++; return n }}
	},
	"believes":     func(d driver.Driver, _ string) driver.Driver { return believing{d} },
	"survived":     func(d driver.Driver, dir string) driver.Driver { return bequeathing{lasting{d}, dir} },
	"never-renews": func(d driver.Driver, _ string) driver.Driver { return unrenewing{d} },
	"inherited":    func(d driver.Driver, dir string) driver.Driver { return bequeathing{d, dir} },
}

// openDefective opens a directory as a child with that defect does.
func openDefective(ctx context.Context, dir, defect string) (driver.Driver, error) {
	if defect == "apart" {
		dir = filepath.Join(dir, defect)
	}
	d, err := openDirectory(ctx, dir, nil)
	if spoil := childDefects[defect]; err == nil && spoil != nil {
		d = spoil(d, dir)
	}
	return d, err
}

// renumbered shows other tokens than the directory's.
type renumbered struct {
	driver.Driver
	show func(driver.Token) driver.Token

	mu    sync.Mutex
	inner map[driver.Attempt]driver.Token
	shown map[driver.Attempt]driver.Token
}

func (d *renumbered) TryAcquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := d.Driver.TryAcquire(ctx, r)
	if err != nil {
		return g, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inner == nil {
		d.inner, d.shown = map[driver.Attempt]driver.Token{}, map[driver.Attempt]driver.Token{}
	}
	if d.inner[g.Attempt] == 0 {
		d.inner[g.Attempt], d.shown[g.Attempt] = g.Token, d.show(g.Token)
	}
	g.Token = d.shown[g.Attempt]
	return g, nil
}

func (d *renumbered) own(g driver.Grant) driver.Grant {
	d.mu.Lock()
	defer d.mu.Unlock()
	g.Token = d.inner[g.Attempt]
	return g
}

func (d *renumbered) Renew(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	renewed, err := d.Driver.Renew(ctx, d.own(g))
	renewed.Token = g.Token
	return renewed, err
}

func (d *renumbered) Release(ctx context.Context, g driver.Grant) error {
	return d.Driver.Release(ctx, d.own(g))
}

// believing promises far more than the directory keeps, and never renews.
type believing struct{ driver.Driver }

func (d believing) TryAcquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := d.Driver.TryAcquire(ctx, r)
	g.Left *= 20
	return g, err
}

func (believing) Renew(ctx context.Context, _ driver.Grant) (driver.Grant, error) {
	<-ctx.Done() // an answer would tell it the truth
	return driver.Grant{}, driver.ErrAmbiguous
}

// lasting has the directory keep a grant for longer than it says. (That of a killed process is
// free at once, unless somebody inherits its descriptor.)
type lasting struct{ driver.Driver }

func (d lasting) TryAcquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	r.TTL *= 2
	g, err := d.Driver.TryAcquire(ctx, r)
	g.TTL, g.Left = g.TTL/2, g.Left/2
	return g, err
}

func (d lasting) Renew(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	g.TTL *= 2
	g, err := d.Driver.Renew(ctx, g)
	g.TTL, g.Left = g.TTL/2, g.Left/2
	return g, err
}

// unrenewing loses every grant at its first renewal.
type unrenewing struct{ driver.Driver }

func (unrenewing) Renew(context.Context, driver.Grant) (driver.Grant, error) {
	return driver.Grant{}, driver.ErrLost
}

// bequeathing leaves a process behind that has what this one had open.
type bequeathing struct {
	driver.Driver
	dir string
}

func (d bequeathing) TryAcquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := d.Driver.TryAcquire(ctx, r)
	if err != nil {
		return g, err
	}
	heir := exec.Command("sleep", "6")
	open, _ := filepath.Glob("/proc/self/fd/*")
	for _, fd := range open {
		if to, _ := os.Readlink(fd); strings.HasPrefix(to, d.dir) {
			if n, err := strconv.Atoi(filepath.Base(fd)); err == nil {
				heir.ExtraFiles = append(heir.ExtraFiles, os.NewFile(uintptr(n), to))
			}
		}
	}
	return g, heir.Start()
}
