package s3_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fencelock/locker/conformance/live/netfault"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/s3lock"
)

func (c client) sent(what string, want map[string]int) {
	c.t.Helper()
	if got := c.net.Counts(); !maps.Equal(got, want) {
		c.t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// The requests that are promised, counted between the client and a real server.
func TestRequestsPerOperation(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	keep := s3lock.Options{Keep: 1000} // collection is counted elsewhere
	a, b := sp.client(keep), sp.opened(keep)
	b.sent("open", map[string]int{"GET": 1})
	g := a.acquire("k")
	a.sent("acquire, never used", map[string]int{"LIST": 2, "PUT": 1})
	b.refused("k")
	b.sent("refused, cold", map[string]int{"LIST": 1, "GET": 1})
	b.polls("k", true)
	g, err := a.Renew(within(t), g)
	if err != nil {
		t.Fatal(err)
	}
	a.sent("renew", map[string]int{"PUT": 1})
	b.polls("k", false)
	b.polls("k", true)
	a.release(g)
	a.sent("release", map[string]int{"PUT": 1})
	a.release(a.acquire("k"))
	a.sent("acquire, warm, and release", map[string]int{"LIST": 1, "PUT": 2})
	c := sp.client(keep)
	g = c.acquire("k")
	c.sent("acquire, cold", map[string]int{"LIST": 2, "GET": 1, "PUT": 1})

	// Its holder is heard of no more.
	eventually(t, 20*time.Second, "the grant lapses", func() bool {
		st, err := a.Inspect(within(t), "k")
		return err == nil && !st.Held
	})
	next := sp.client(keep)
	if got := next.acquire("k"); got.Token != g.Token+1 {
		t.Errorf("token: got %v, want %v", got.Token, g.Token+1)
	}
	next.sent("acquire, cold, lapsed", map[string]int{"LIST": 2, "GET": 1, "PUT": 2})
}

// polls asks for a key that is held, where the number is known: with one GET that has a
// condition, and is answered 304 if nothing was written since.
func (c client) polls(key string, unchanged bool) {
	c.t.Helper()
	condition, status := "", 0
	c.net.Counts()
	c.net.Rules(netfault.Rule{
		Before: func(r *http.Request) { condition = r.Header.Get("If-None-Match") },
		Behind: func(r *http.Response) { status = r.StatusCode },
	})
	c.refused(key)
	c.net.Rules()
	c.sent("poll", map[string]int{"GET": 1})
	want := http.StatusOK
	if unchanged {
		want = http.StatusNotModified
	}
	if condition == "" || status != want {
		c.t.Errorf("poll, unchanged %v: got status %d to If-None-Match %q, want %d", unchanged, status, condition, want)
	}
}

// Collection costs nine requests for eight grants: each deletes one object, and each eighth
// lists what others left.
func TestRequestsOfCollection(t *testing.T) {
	t.Parallel()
	const grants, keep = 24, 8
	sp := newSpace(t)
	a := sp.client(s3lock.Options{})
	for range grants {
		a.release(a.acquire("k"))
	}
	eventually(t, 20*time.Second, "all is collected", func() bool { return len(sp.objects("k")) == keep })
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	a.sent("the grants and their releases", map[string]int{
		"PUT":    2 * grants,
		"LIST":   1 + grants + grants/keep - 1, // a look, the checks, the sweeps
		"DELETE": grants - keep,
	})
}

// S3-1: the newest of many epochs is found with one LIST, and with none by who knows it. Once
// collection is on, what has piled up goes, but for K numbers and one for each contender.
func TestManyEpochs(t *testing.T) {
	t.Parallel()
	epochs := 2500
	if full() {
		epochs = 100_000
	}
	sp := newSpace(t)
	a := sp.client(s3lock.Options{Keep: 2 * epochs})
	a.release(a.acquire("k"))
	begun := time.Now()
	sp.fill("k", epochs)
	t.Logf("%d epochs written in %v", epochs, time.Since(begun))
	b := sp.client(s3lock.Options{Keep: 2 * epochs})
	begun = time.Now()
	if st, err := b.Inspect(within(t), "k"); err != nil || st.Token != driver.Token(epochs) {
		t.Errorf("the newest: got %v, %v, want %d", st.Token, err, epochs)
	}
	t.Logf("the newest found in %v", time.Since(begun))
	b.sent("find the newest, cold", map[string]int{"LIST": 1, "GET": 1})
	g := b.acquire("k")
	if g.Token != driver.Token(epochs)+1 {
		t.Errorf("token: got %v, want %d", g.Token, epochs+1)
	}
	b.sent("acquire, cold", map[string]int{"LIST": 2, "GET": 1, "PUT": 1})
	c := sp.client(s3lock.Options{})
	c.refused("k")
	c.net.Counts()
	c.refused("k")
	c.sent("refused with the hint", map[string]int{"GET": 1})
	b.release(g)

	const keep, contenders = 8, 3
	all := []client{c, sp.client(s3lock.Options{}), sp.client(s3lock.Options{})}
	begun = time.Now()
	round := 0
	eventually(t, 10*time.Minute, "what has piled up is collected", func() bool {
		for range keep {
			who := all[round%contenders]
			who.release(who.acquire("k"))
			round++
		}
		return len(sp.objects("k")) <= keep+contenders
	})
	requests := map[string]int{}
	for _, c := range all {
		for verb, n := range c.net.Counts() {
			requests[verb] += n
		}
	}
	t.Logf("collected within %v and %d grants: %d objects left, %v", time.Since(begun), round, len(sp.objects("k")), requests)
}

// fill writes the records of so many grants of a key, all ended, behind the first.
func (sp space) fill(key string, epochs int) {
	sp.t.Helper()
	first := sp.name + "/" + key + "/" + sp.objects(key)[0]
	got, err := sp.raw.GetObject(within(sp.t), &s3.GetObjectInput{Bucket: &sp.s.Bucket, Key: &first})
	if err != nil {
		sp.t.Fatal(err)
	}
	body := make([]byte, 4096)
	n, _ := got.Body.Read(body)
	_ = got.Body.Close()
	var wg sync.WaitGroup
	numbers := make(chan int)
	for range 16 {
		wg.Go(func() {
			for i := range numbers {
				record := strings.Replace(string(body[:n]), `"epoch": 1,`, fmt.Sprintf(`"epoch": %d,`, i), 1)
				name := fmt.Sprintf("%s/%s/%010d.json", sp.name, key, 9_999_999_999-i)
				if _, err := sp.raw.PutObject(sp.t.Context(), &s3.PutObjectInput{Bucket: &sp.s.Bucket, Key: &name, Body: strings.NewReader(record)}); err != nil {
					sp.t.Errorf("epoch %d: %v", i, err)
				}
			}
		})
	}
	for i := 2; i <= epochs; i++ {
		numbers <- i
	}
	close(numbers)
	wg.Wait()
}
