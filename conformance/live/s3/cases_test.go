package s3_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/conformance/live"
	"github.com/fencelock/locker/conformance/live/netfault"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/s3lock"
)

// S3-2 and S3-19: a contender that stops before its create until its number was used and
// collected gets no lease by it, whether it had looked or was warm; nobody else notices.
func TestNumberUsedAndCollected(t *testing.T) {
	t.Parallel()
	numberUsedAndCollected(t, newSpace)
}

// S3-11: the same where the bucket keeps every version. VersityGW, unlike S3, takes a delete
// marker for an object and refuses the create, so that the check is not what saves it here.
func TestVersionedBucket(t *testing.T) {
	t.Parallel()
	s := live.S3(t, live.S3Options{Versioned: true})
	numberUsedAndCollected(t, func(t *testing.T) space {
		t.Helper()
		return spaceOn(t, s)
	})
	versions, err := spaceOn(t, s).raw.ListObjectVersions(within(t), &s3.ListObjectVersionsInput{Bucket: &s.Bucket})
	if err != nil || len(versions.DeleteMarkers) == 0 {
		t.Errorf("got no delete marker (%v): the bucket keeps no versions", err)
	}
}

func numberUsedAndCollected(t *testing.T, newSpace func(*testing.T) space) {
	t.Helper()
	for _, warm := range []bool{false, true} {
		t.Run(fmt.Sprintf("warm=%v", warm), func(t *testing.T) {
			sp := newSpace(t)
			few := s3lock.Options{Keep: 1}
			a, b, c := sp.client(few), sp.client(few), sp.client(few)
			before := a
			if warm {
				before = b
			}
			before.release(before.acquire("k"))
			stop := b.stopAt(creates)
			done := b.beside(request("k"))
			stop.wait(t)
			a.release(a.acquire("k")) // the number that b is about to create
			seen := map[driver.Token]bool{1: true, 2: true}
			var g driver.Grant
			eventually(t, 20*time.Second, "the number is collected", func() bool {
				if g.Token != 0 {
					c.release(g)
				}
				g = c.acquire("k")
				seen[g.Token] = true
				return !slices.Contains(sp.objects("k"), fmt.Sprintf("%010d.json", 9_999_999_999-2))
			})
			stop.open()
			got := <-done
			if got.err == nil && seen[got.Token] {
				t.Errorf("b was granted token %v, which had been given", got.Token)
			}
			if !errors.Is(got.err, driver.ErrHeld) {
				t.Errorf("b: got token %v, %v; want ErrHeld", got.Token, got.err)
			}
			if _, err := c.Renew(within(t), g); err != nil {
				t.Errorf("c renews: %v", err)
			}
		})
	}
}

// S3-3: a renewal that is answered behind the old deadline counts for nothing, although it
// was applied, and its holder has lost.
func TestRenewalAnsweredLate(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	a, b := sp.client(s3lock.Options{}), sp.client(s3lock.Options{})
	g := a.acquire("k")
	a.net.Rules(netfault.Rule{Match: replaces, Times: 1, DelayReply: ttl + 100*time.Millisecond})
	if _, err := a.Renew(within(t), g); !errors.Is(err, driver.ErrLost) {
		t.Errorf("answered late: got %v, want ErrLost", err)
	}
	b.refused("k") // it was applied
	if _, err := a.Renew(within(t), g); !errors.Is(err, driver.ErrLost) {
		t.Errorf("the next renewal: got %v, want ErrLost", err)
	}
}

// S3-4: a renewal that arrives between a contender's look and its seal keeps the key, and
// the contender is told so.
func TestRenewalBetweenLookAndSeal(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	a, b := sp.client(s3lock.Options{}), sp.client(s3lock.Options{})
	g := a.acquire("k")
	late := a.stopAt(replaces)
	renewed := make(chan error, 1)
	go func() {
		_, err := a.Renew(within(t), g)
		renewed <- err
	}()
	late.wait(t)
	seal := b.stopAt(replaces)
	var got outcome
	done := make(chan struct{})
	go func() { // b polls until the record looks lapsed
		defer close(done)
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); <-time.After(50 * time.Millisecond) {
			if got.Grant, got.err = b.try(request("k")); !errors.Is(got.err, driver.ErrHeld) {
				return
			}
			select {
			case <-seal.reached:
				return
			default:
			}
		}
	}()
	seal.wait(t)
	late.open()
	if err := <-renewed; !errors.Is(err, driver.ErrLost) { // behind the old deadline
		t.Errorf("a: got %v, want ErrLost", err)
	}
	seal.open()
	<-done
	if !errors.Is(got.err, driver.ErrHeld) {
		t.Errorf("b: got token %v, %v; want ErrHeld", got.Token, got.err)
	}
}

// S3-5: who dies between its seal and its create stands in nobody's way.
func TestDiesBetweenSealAndCreate(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	a, b, c := sp.client(s3lock.Options{}), sp.client(s3lock.Options{}), sp.client(s3lock.Options{})
	a.acquire("k")
	b.net.Rules(netfault.Rule{Match: creates, Do: netfault.DropRequest})
	eventually(t, 20*time.Second, "b seals and dies", func() bool {
		_, err := b.try(request("k"))
		return !errors.Is(err, driver.ErrHeld)
	})
	if g := c.acquire("k"); g.Token != 2 {
		t.Errorf("token: got %v, want 2", g.Token)
	}
}

// S3-7: a 409 on create, renewal, release and seal is tried again, and makes one epoch.
func TestConflicts(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	a, b := sp.client(s3lock.Options{}), sp.client(s3lock.Options{})
	conflict := netfault.Rule{Times: 1, Do: netfault.Answer, Status: 409, Body: netfault.S3Error("ConditionalRequestConflict", "try again")}
	arm := func(c client, r netfault.Rule) { c.net.Rules(r) }
	fired := func(c client, what string) {
		t.Helper()
		if c.net.Fired() != 1 {
			t.Errorf("%s: %d answers were 409, want 1", what, c.net.Fired())
		}
	}
	onCreate, onReplace := conflict, conflict
	onCreate.Match, onReplace.Match = creates, replaces
	arm(a, onCreate)
	g := a.acquire("k")
	fired(a, "create")
	arm(a, onReplace)
	g, err := a.Renew(within(t), g)
	if err != nil {
		t.Fatal(err)
	}
	fired(a, "renew")
	arm(a, onReplace)
	a.release(g)
	fired(a, "release")
	a.acquire("k")
	arm(b, onReplace)
	var sealed driver.Grant
	eventually(t, 20*time.Second, "b seals", func() bool {
		sealed, err = b.try(request("k"))
		return err == nil
	})
	fired(b, "seal")
	if names := sp.objects("k"); sealed.Token != 3 || len(names) != 3 {
		t.Errorf("token %v, objects %v; want 3 and 3", sealed.Token, names)
	}
}

// S3-9: while the store says SlowDown calls fail in time and say so, a lease outlives a
// storm that is shorter than it, and nothing is sent without pause.
func TestSlowDown(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	a := sp.client(s3lock.Options{})
	l, err := locker.New(a, &locker.Options{TTL: 2 * ttl})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := l.Acquire(within(t), "k")
	if err != nil {
		t.Fatal(err)
	}
	a.net.Counts()
	a.net.Rules(netfault.Rule{Do: netfault.Answer, Status: 503, Body: netfault.S3Error("SlowDown", "reduce your request rate")})
	begun := time.Now()
	if _, err := l.TryAcquire(within(t), "other"); !errors.Is(err, driver.ErrUnavailable) || time.Since(begun) > ttl {
		t.Errorf("in the storm: got %v after %v, want ErrUnavailable", err, time.Since(begun))
	}
	eventually(t, 2*ttl, "a renewal was refused", func() bool { return a.net.Fired() >= 3 })
	a.net.Rules()
	if n := a.net.Counts()["PUT"]; n > 10 {
		t.Errorf("%d renewals were sent in the storm, want few", n)
	}
	if end := time.Now().Add(2 * ttl); true {
		eventually(t, 3*ttl, "a ttl has passed", func() bool { return time.Now().After(end) })
	}
	if err := lease.Err(); err != nil {
		t.Errorf("the lease behind the storm: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// S3-13: an object that is removed by hand takes the holder's lease and the counter with
// it; who saw the greater token notices, and can go on above it.
func TestNewestRemovedByHand(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	a := sp.client(s3lock.Options{})
	l, err := locker.New(a, &locker.Options{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	lease, err := l.Acquire(within(t), "k")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range sp.objects("k") {
		if _, err := sp.raw.DeleteObject(within(t), &s3.DeleteObjectInput{Bucket: &sp.s.Bucket, Key: aws.String(sp.name + "/k/" + n)}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 2*ttl, "the holder notices", func() bool { return lease.Err() != nil })
	if err := lease.Err(); !errors.Is(err, driver.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
	if _, err := l.Acquire(within(t), "k"); !errors.Is(err, driver.ErrTokenRegression) {
		t.Errorf("the next grant: got %v, want ErrTokenRegression", err)
	}
	l.AcceptTokenReset("k")
	next, err := l.Acquire(within(t), "k")
	if err != nil || next.Token() <= lease.Token() {
		t.Errorf("behind AcceptTokenReset: got token %v, %v; want more than %v", next.Token(), err, lease.Token())
	}
}

// S3-18: a break inside an unanswered create leaves no lease on the broken epoch.
func TestBreakInsideAnUnansweredCreate(t *testing.T) {
	t.Parallel()
	for _, now := range []bool{false, true} {
		sp := newSpace(t)
		a, b := sp.client(s3lock.Options{}), sp.client(s3lock.Options{})
		r := request("k")
		a.net.Rules(netfault.Rule{Match: creates, Times: 1, Do: netfault.DropReply})
		if _, err := a.try(r); !driver.IsAmbiguous(err) {
			t.Fatalf("a reply was lost: got %v", err)
		}
		if err := b.Break(within(t), "k", 1, driver.Break{Now: now, By: "test"}); err != nil {
			t.Fatal(err)
		}
		g, err := a.try(r)
		if err == nil && g.Token <= 1 {
			t.Errorf("now=%v: sent again: got token %v, which was broken", now, g.Token)
		}
		if err != nil && !errors.Is(err, driver.ErrHeld) && !errors.Is(err, driver.ErrLost) {
			t.Errorf("now=%v: sent again: %v", now, err)
		}
	}
}

// S3-20: contenders that poll and lose one create race read the winner once, and list
// nothing.
func TestLostCreateRace(t *testing.T) {
	t.Parallel()
	const contenders = 12
	sp := newSpace(t)
	a := sp.client(s3lock.Options{})
	g := a.acquire("k")
	cs, gates, done := make([]client, contenders), make([]gate, contenders), make([]<-chan outcome, contenders)
	for i := range cs {
		cs[i] = sp.client(s3lock.Options{})
		cs[i].refused("k")
	}
	a.release(g)
	for i, c := range cs {
		gates[i] = c.stopAt(creates)
		c.net.Counts()
		done[i] = c.beside(request("k"))
	}
	for _, g := range gates {
		g.wait(t)
	}
	for _, g := range gates {
		g.open()
	}
	won := 0
	for i, c := range cs {
		got := <-done[i]
		switch {
		case got.err == nil:
			won++
			c.sent("the winner", map[string]int{"GET": 1, "PUT": 1, "LIST": 1})
		case errors.Is(got.err, driver.ErrHeld):
			c.sent("a loser", map[string]int{"GET": 2, "PUT": 1})
		default:
			t.Errorf("contender %d: %v", i, got.err)
		}
	}
	if won != 1 {
		t.Errorf("%d won, want 1", won)
	}
}
