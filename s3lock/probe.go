package s3lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/epoch"
)

// Probe tries out, on objects of its own under the prefix, what locks need of a store, and
// removes them. It sends about a hundred requests. What the store cannot do is in the Report;
// the error is of a bucket that cannot be used at all. A store that checks first and
// writes later can pass by luck: a race that was lost once is proof, one that was not is
// none.
func Probe(ctx context.Context, client *s3.Client, bucketName string, o *Options) (Report, error) {
	if o == nil {
		o = &Options{}
	}
	b, base, err := open(client, bucketName, o)
	if err != nil {
		return Report{}, err
	}
	r, err := (&store{bucket: b, base: base}).probe(ctx)
	if err != nil {
		return r, definite(err)
	}
	return r, nil
}

// prober tries out one store.
type prober struct {
	*store
	folder string
	report Report

	mu    sync.Mutex
	names []string // what may exist
}

func (s *store) probe(ctx context.Context) (Report, error) {
	p := &prober{store: s, folder: s.base + probePrefix + driver.NewAttempt().String() + "/", report: Report{Bucket: s.name}}
	defer p.clean(ctx)
	for _, step := range []func(context.Context) error{p.creates, p.replaces, p.createRace, p.replaceRace, p.lists, p.clocks, p.lifecycle} {
		if err := step(ctx); err != nil {
			return p.report, err
		}
		if p.report.Err() != nil {
			break
		}
	}
	return p.report, nil
}

func (p *prober) found(requirement string, v Verdict, format string, args ...any) {
	p.report.Checks = append(p.report.Checks, Check{requirement, v, fmt.Sprintf(format, args...)})
}

// met notes a requirement that an error, or nil, shows to be met.
func (p *prober) met(requirement string, ok bool, format string, args ...any) {
	if ok {
		p.found(requirement, Met, "")
		return
	}
	p.found(requirement, Missing, format, args...)
}

func (p *prober) name(s string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.folder + s
	if !slices.Contains(p.names, n) {
		p.names = append(p.names, n)
	}
	return n
}

// clean removes what the probe has made, even if its time is over.
func (p *prober) clean(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleaning)
	defer cancel()
	for _, n := range p.names {
		_ = p.delete(ctx, n)
	}
}

// cleaning bounds that.
const cleaning = 5 * time.Second

// answered tells an answer of the store from a request without one.
func answered(err error) bool {
	return err == nil || errors.Is(err, epoch.ErrExist) || errors.Is(err, epoch.ErrChanged) || errors.Is(err, epoch.ErrNotExist) ||
		errors.Is(err, errConflict) || errors.Is(err, driver.ErrUnsupported)
}

func (p *prober) creates(ctx context.Context) error {
	name := p.name("one")
	_, err := p.create(ctx, name, []byte("1"))
	if !answered(err) {
		return err
	}
	p.met(reqCreate, err == nil, "%v", err)
	if err != nil {
		return nil
	}
	_, err = p.create(ctx, name, []byte("2"))
	if !answered(err) {
		return err
	}
	p.met(reqCreateTwice, errors.Is(err, epoch.ErrExist) || errors.Is(err, errConflict), "%s", outcome(err))
	return nil
}

// outcome says what became of a write that was to be refused for what is there.
func outcome(err error) string {
	if err != nil {
		return err.Error()
	}
	return "it wrote over the object"
}

func (p *prober) replaces(ctx context.Context) error {
	got, err := p.get(ctx, p.name("one"), "")
	if err != nil {
		return err
	}
	_, err = p.replace(ctx, p.name("one"), got.etag, []byte("3"))
	if !answered(err) {
		return err
	}
	p.met(reqReplace, err == nil, "%v", err)
	_, err = p.replace(ctx, p.name("one"), got.etag, []byte("4"))
	if !answered(err) {
		return err
	}
	p.met(reqReplaceStale, errors.Is(err, epoch.ErrChanged), "%s", outcome(err))
	_, err = p.replace(ctx, p.name("none"), got.etag, []byte("5"))
	if !answered(err) {
		return err
	}
	p.met(reqReplaceNone, err != nil, "it created the object")
	got, err = p.get(ctx, p.name("one"), "")
	if err != nil {
		return err
	}
	again, err := p.get(ctx, p.name("one"), got.etag)
	if err != nil {
		return err
	}
	if again.unchanged {
		p.found(reqNotModified, Met, "")
	} else {
		p.found(reqNotModified, Warned, "it sends the object again, which costs transfer")
	}
	return nil
}

const (
	racers    = 8
	rounds    = 3
	maxRounds = 6 // while nobody has won
)

// race starts several writes at once, round by round, and counts who won: never two, and
// over all rounds somebody. In one round nobody may, where all are told of a conflict.
func (p *prober) race(ctx context.Context, requirement string, ready func(round int) (write func(i int) error, err error)) error {
	winners := 0
	var last error
	for round := 0; round < rounds || winners == 0 && round < maxRounds; round++ {
		write, err := ready(round)
		if err != nil {
			return err
		}
		errs := make([]error, racers)
		var wg sync.WaitGroup
		for i := range racers {
			wg.Go(func() { errs[i] = write(i) })
		}
		wg.Wait()
		won := 0
		for _, err := range errs {
			switch {
			case err == nil:
				won++
			case !answered(err) && !errors.Is(err, driver.ErrUnavailable):
				return err
			case !answered(err):
				last = err
			}
		}
		if won > 1 {
			p.found(requirement, Missing, "%d of %d won: the store checks first and writes later", won, racers)
			return nil
		}
		winners += won
		if winners == 0 && !rest(ctx, maxPause) {
			break
		}
	}
	if winners == 0 && last != nil { // too busy to be judged
		return last
	}
	p.met(requirement, winners > 0, "nobody won")
	return nil
}

func (p *prober) createRace(ctx context.Context) error {
	return p.race(ctx, reqCreateRace, func(round int) (func(int) error, error) {
		name := p.name(fmt.Sprintf("create-%d", round))
		return func(i int) error {
			_, err := p.create(ctx, name, fmt.Appendf(nil, "%d", i))
			return err
		}, nil
	})
}

func (p *prober) replaceRace(ctx context.Context) error {
	return p.race(ctx, reqReplaceRace, func(round int) (func(int) error, error) {
		name := p.name(fmt.Sprintf("replace-%d", round))
		etag, err := p.create(ctx, name, []byte("0"))
		return func(i int) error {
			_, err := p.replace(ctx, name, etag, fmt.Appendf(nil, "by %d", i))
			return err
		}, err
	})
}

// lists writes names in an order that is not theirs and expects them, at once, in theirs.
func (p *prober) lists(ctx context.Context) error {
	for _, n := range []uint64{2, 10, 1, 9} {
		wrote, err := p.create(ctx, p.name("list/"+recordName(n)), fmt.Appendf(nil, "{%d}", n))
		if err != nil {
			return err
		}
		got, err := p.list(ctx, p.folder+"list/", "", "", 1, false)
		if err != nil {
			return err
		}
		want := p.folder + "list/" + recordName(max(n, 2))
		if n == 9 || n == 1 {
			want = p.folder + "list/" + recordName(10)
		}
		if len(got.objects) != 1 || aws.ToString(got.objects[0].Key) != want {
			p.found(reqList, Missing, "the first of the listing is not the newest")
			return nil
		}
		etag := aws.ToString(got.objects[0].ETag)
		if want == p.folder+"list/"+recordName(n) && etag != "" && bare(etag) != bare(wrote) {
			p.found(reqList, Missing, "the listing shows another ETag than the write was answered")
			return nil
		}
	}
	p.found(reqList, Met, "")
	return nil
}

// clocks reads fresh objects over several connections at once.
func (p *prober) clocks(ctx context.Context) error {
	why := make([]string, racers)
	errs := make([]error, racers)
	var wg sync.WaitGroup
	for i := range racers {
		wg.Go(func() { why[i], errs[i] = p.age(ctx, i) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, w := range append(why, p.clock.why()) {
		if w != "" {
			p.found(reqClocks, Warned, "%s: a contender waits until it has seen a holder silent for its whole validity", w)
			return nil
		}
	}
	p.found(reqClocks, Met, "")
	return nil
}

// age writes and reads one object, and again while that is too slow to tell anything.
func (p *prober) age(ctx context.Context, i int) (why string, err error) {
	for round := range rounds {
		name := p.name(fmt.Sprintf("clock-%d-%d", i, round))
		w := write{sent: driver.Now()}
		if _, err := p.create(ctx, name, []byte("0")); err != nil {
			return "", err
		}
		w.answered = driver.Now()
		got, err := p.get(ctx, name, "")
		if err != nil {
			return "", err
		}
		var sure bool
		if why, sure = unfit(w, got.modified, got.answer); sure {
			break
		}
	}
	return why, nil
}
