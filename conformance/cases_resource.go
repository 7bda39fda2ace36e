package conformance

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"maps"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"

	"github.com/fencelock/locker"
)

// resourceCases are about what stays behind, in this process and at the server.
var resourceCases = []Case{
	{
		ID:      "resources/rounds",
		Rule:    "Any number of acquires and releases leaves no more behind than a few do.",
		Surface: OnLock,
		Load:    true,
		Push:    Size{N: 200}, Full: Size{N: 1000},
		Run: func(c *C) {
			peers, key := c.Peers(3), c.Key("k")
			round := func(i int) { peers[i%3].Try(key).GiveBack() }
			flat(c, round)
		},
	},
	{
		ID:      "resources/refusals",
		Rule:    "Any number of refused tries leaves no more behind than a few do.",
		Surface: OnLock,
		Load:    true,
		Push:    Size{N: 200}, Full: Size{N: 10_000},
		Run: func(c *C) {
			a, b, key := c.Peer("A"), c.Peer("B"), c.Key("k")
			l := a.Try(key)
			flat(c, func(int) { b.Refused(key, l) })
			l.GiveBack()
		},
	},
	{
		ID:      "resources/held-keys",
		Rule:    "A Locker that holds many keys needs no goroutine and no connection for each.",
		Surface: OnLock,
		Load:    true,
		Push:    Size{N: 300}, Full: Size{N: 10_000},
		Run: func(c *C) {
			a := c.Peer("A")
			var leases []*Lease
			flat(c, func(i int) { leases = append(leases, a.Try(c.Key(fmt.Sprint(i)), locker.WithTTL(c.Times(10)))) }, ofHolders...)
			c.Each(16, func(lane int) {
				for i := lane; i < len(leases); i += 16 {
					leases[i].GiveBack()
				}
			})
		},
	},
	{
		ID:      "resources/close",
		Rule:    "Lockers that were closed while they held and waited leave nothing behind.",
		Surface: OnLock,
		Load:    true,
		Push:    Size{N: 10}, Full: Size{N: 100},
		Run: func(c *C) {
			a, key := c.Peer("A"), c.Key("k")
			l := a.Try(key)
			flat(c, func(i int) {
				cl := c.Client(fmt.Sprint("closed ", i))
				p := cl.Peer(nil)
				p.Try(c.Key(fmt.Sprint(i)))
				ended := make(chan error, 10)
				for range cap(ended) {
					c.Go(func() {
						_, err := p.AcquireErr(c.Ctx, key)
						ended <- err
					})
				}
				c.Sleep(c.T / 50)
				if err := p.L.Close(); err != nil {
					c.fail(ByRule, soft(err), "Close: got %v, want nil", err)
				}
				for range cap(ended) {
					c.Closed(<-ended)
				}
				if err := cl.Close(); err != nil {
					c.fail(ByRule, soft(err), "close the driver: got %v, want nil", err)
				}
			}, ofHolders...)
			l.GiveBack()
		},
	},
}

// What of a footprint must be flat though keys are held and used.
var ofHolders = []string{goroutines, "connections", "sessions", "descriptors of connections"}

const goroutines = "goroutines"

// flat does something a few times, and then as often as the case says, and wants no more
// behind than after the first few, give or take a tenth. kinds, if any, are what of the
// footprint counts.
func flat(c *C, do func(i int), kinds ...string) {
	few := max(c.N()/10, 2)
	for i := range few {
		do(i)
	}
	before := c.footprint()
	for i := range c.N() {
		do(few + i)
	}
	most := max(c.N()/10, 8)
	var grown []string
	settled := c.Eventually(c.T, func() bool {
		grown = nil
		after := c.footprint()
		for _, kind := range slices.Sorted(maps.Keys(after)) {
			if len(kinds) > 0 && !slices.Contains(kinds, kind) {
				continue
			}
			if after[kind] > before[kind]+most {
				grown = append(grown, fmt.Sprintf("%d %s, before %d", after[kind], kind, before[kind]))
			}
		}
		return grown == nil
	})
	c.InTime(settled, "%d times: got %s, want at most %d more", c.N(), strings.Join(grown, "; "), most)
}

// footprint is what there is of the case: its goroutines, whoever started them, and what
// the harness counts.
func (c *C) footprint() map[string]int {
	all := map[string]int{}
	if c.h.Footprint != nil {
		counted, err := c.h.Footprint(c.Ctx)
		if err != nil {
			c.Setupf("count what there is: %v", err)
		}
		maps.Copy(all, counted)
	}
	all[goroutines] = c.goroutines()
	return all
}

// label marks the goroutines of a case: one that is started inherits it.
const label = "conformance-case"

func (c *C) labelled() context.Context {
	return pprof.WithLabels(c.Ctx, pprof.Labels(label, c.prefix))
}

// goroutines counts those of the case in the profile, which groups them:
//
//	3 @ 0x4379f6 0x44a8c5 …
//	# labels: {"conformance-case":"…"}
func (c *C) goroutines() int {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		c.Setupf("read the goroutines: %v", err)
	}
	sum, group := 0, 0
	lines := bufio.NewScanner(&profile)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if n, _, ok := strings.Cut(line, " @ "); ok {
			group, _ = strconv.Atoi(n)
		}
		if strings.HasPrefix(line, "# labels:") && strings.Contains(line, strconv.Quote(c.prefix)) {
			sum += group
		}
	}
	return sum
}
