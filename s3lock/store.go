package s3lock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/epoch"
)

// store keeps each epoch in an object: <base><escaped key>/<9999999999−n>.json.
type store struct {
	*bucket
	base string // ends in a slash
	// created are the creates whose Last-Modified the check is about to show.
	created pending[write]
	// shown are the ETags that listings have shown of what is about to be read.
	shown pending[string]
}

// version is one state of one object.
type version struct {
	etag string
	// modified is its Last-Modified, once a reply told it: a 304 need not.
	modified time.Time
	holder   driver.Attempt // who made it, where that was read
	listed   bool           // a listing has shown this record, too
}

var _ epoch.Store = (*store)(nil)

func (s *store) folder(key string) string           { return s.base + escape(key) + "/" }
func (s *store) object(key string, n uint64) string { return s.folder(key) + recordName(n) }

// Newest is one LIST of one name: the newest sorts first.
func (s *store) Newest(ctx context.Context, key string) (uint64, error) {
	return s.first(ctx, s.folder(key), "")
}

// Below is the same behind a name.
func (s *store) Below(ctx context.Context, key string, n uint64) (uint64, error) {
	return s.first(ctx, s.folder(key), s.object(key, n))
}

func (s *store) first(ctx context.Context, folder, behind string) (uint64, error) {
	n, _, err := s.listed(ctx, folder, behind)
	return n, err
}

// listed also returns the ETag that the listing shows; "": none.
func (s *store) listed(ctx context.Context, folder, behind string) (n uint64, etag string, err error) {
	p, err := s.list(ctx, folder, behind, "", 1, false)
	for err == nil && len(p.objects) == 0 && p.next != "" { // an empty page need not be the last
		p, err = s.list(ctx, folder, behind, p.next, 1, false)
	}
	if err != nil || len(p.objects) == 0 {
		return 0, "", err
	}
	name := aws.ToString(p.objects[0].Key)
	n, ok := number(strings.TrimPrefix(name, folder))
	if dots := folder + "/"; !ok && (name == folder || strings.HasPrefix(name, folder+".")) && behind < dots {
		return s.listed(ctx, folder, dots) // the folder's mark, or a store's own file for a moment: look behind
	}
	if !ok || !strings.HasPrefix(name, folder) {
		return 0, "", fmt.Errorf("%w: object %q in bucket %q is not a lock's: remove it, or use another prefix", driver.ErrCorrupt, name, s.name)
	}
	if wrote, ok := s.created.take(name); ok {
		s.clock.fresh(wrote, aws.ToTime(p.objects[0].LastModified), p.answer)
	}
	if etag = aws.ToString(p.objects[0].ETag); etag != "" {
		s.shown.put(name, etag)
	}
	return n, etag, nil
}

// Read is one GET; with since a conditional one.
func (s *store) Read(ctx context.Context, key string, n uint64, since epoch.Version) (epoch.View, error) {
	known, _ := since.(version)
	got, err := s.get(ctx, s.object(key, n), known.etag)
	if err != nil {
		return epoch.View{}, err
	}
	v := version{etag: got.etag, modified: got.modified}
	view := epoch.View{ID: v.etag}
	if got.unchanged {
		v.modified, v.holder, v.listed = known.modified, known.holder, known.listed
		view.Unchanged, view.Version = true, v
		s.age(&view, v, got.answer)
		return view, nil
	}
	view.Version = v
	if err := json.Unmarshal(got.body, &view.Record); err != nil {
		if got.unbounded {
			return epoch.View{}, driver.Wrap(driver.ErrUnavailable, errCutOff)
		}
		err = fmt.Errorf("%w: object %q is not a record (%.60q): %w", driver.ErrCorrupt, s.object(key, n), got.body, err)
		return damaged(v, got.body), err
	}
	if err := view.Check(key, n); err != nil {
		return damaged(v, got.body), fmt.Errorf("object %q: %w", s.object(key, n), err)
	}
	v.holder = view.Holder
	shown, ok := s.shown.take(s.object(key, n))
	v.listed = known.listed && known.holder == v.holder || ok && bare(shown) == bare(v.etag)
	view.Ended = view.Ending.Kind.Ends()
	view.Broken = view.Ending.Kind != "" && !view.Ended
	if view.Ending.Kind != "" && !v.listed { // nobody is let in by a live one, but behind a write that compares
		v.listed, err = s.lists(ctx, s.object(key, n), v.etag)
		if err != nil {
			return epoch.View{}, err
		}
		if !v.listed {
			return epoch.View{}, fmt.Errorf("%w: as it was read: the reply shows another object, or it was replaced", epoch.ErrNotExist)
		}
	}
	view.Version = v
	s.age(&view, v, got.answer)
	return view, nil
}

// lists asks whether a listing shows an object as a read did: a cache or a balancer may have
// mixed up two buckets that both have a key of that name.
func (s *store) lists(ctx context.Context, name, etag string) (bool, error) {
	p, err := s.list(ctx, name, "", "", 1, false)
	if err != nil || len(p.objects) == 0 || aws.ToString(p.objects[0].Key) != name {
		return false, err
	}
	listed := aws.ToString(p.objects[0].ETag)
	return listed == "" || bare(listed) == bare(etag), nil
}

// errCutOff is of a body that only the end of its connection ends, and so does a failure.
var errCutOff = errors.New("the reply does not say how long the object is: its end may be cut off")

// damaged is what there is of a record that cannot be read.
func damaged(v version, body []byte) epoch.View {
	return epoch.View{Version: v, ID: v.etag, Record: epoch.Record{Shift: epoch.ShiftOf(body)}}
}

// age says how long ago the record was written, by the store's own clock. One that is not
// trusted says nothing, however old a record looks: it may be off by any time.
func (s *store) age(view *epoch.View, v version, a *answer) {
	if a.date.IsZero() || v.modified.IsZero() || !s.clock.trusted() {
		return
	}
	view.Known, view.Idle, view.Margin = true, max(a.date.Sub(v.modified), 0), margin
}

// Create is one PUT, only if there is no object of the name.
func (s *store) Create(ctx context.Context, key string, n uint64, r epoch.Record) (epoch.Version, error) {
	if n >= maxNumber {
		return nil, driver.Wrap(driver.ErrTokenRegression, fmt.Errorf("key %q has used up its %d numbers", key, int64(maxNumber)))
	}
	body, err := epoch.Encode(r)
	if err != nil {
		return nil, driver.Wrap(driver.ErrInvalidKey, err)
	}
	name := s.object(key, n)
	var etag string
	err = s.settled(ctx, name, func() (err error) {
		begun := driver.Now()
		if etag, err = s.create(ctx, name, body); err == nil {
			s.created.put(name, write{begun, driver.Now()})
		}
		return err
	}, func(have string) error {
		if have != "" {
			return epoch.ErrExist
		}
		return nil
	})
	return version{etag: etag, holder: r.Holder}, err
}

// Beat is one PUT, only if the object has not changed.
func (s *store) Beat(ctx context.Context, key string, n uint64, v epoch.Version, r epoch.Record) (epoch.Version, error) {
	return s.rewrite(ctx, key, n, v, r)
}

// End is one PUT, only if the object has not changed.
func (s *store) End(ctx context.Context, key string, n uint64, v epoch.Version, r epoch.Record) error {
	_, err := s.rewrite(ctx, key, n, v, r)
	return err
}

func (s *store) rewrite(ctx context.Context, key string, n uint64, v epoch.Version, r epoch.Record) (epoch.Version, error) {
	at, ok := v.(version)
	if !ok {
		return nil, epoch.ErrChanged
	}
	body, err := epoch.Encode(r)
	if err != nil {
		return nil, driver.Wrap(driver.ErrInvalidKey, err)
	}
	name := s.object(key, n)
	var etag string
	err = s.settled(ctx, name, func() (err error) {
		etag, err = s.replace(ctx, name, at.etag, body)
		return err
	}, func(have string) error {
		if have != "" && bare(have) != bare(at.etag) {
			return epoch.ErrChanged
		}
		return nil // if it is gone the next write says so
	})
	return version{etag: etag, holder: at.holder}, err
}

// The pauses behind a 409, where nobody has won yet.
const (
	firstPause = 20 * time.Millisecond
	maxPause   = 500 * time.Millisecond
)

// settled repeats a write as long as S3 answers 409: another write of the same object was
// under way, and nothing was applied. In between it asks who has won. The repetition
// carries the same attempt and counts from the first send, which is what the contract
// wants.
func (s *store) settled(ctx context.Context, name string, write func() error, won func(etag string) error) error {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := write()
		switch {
		case errors.Is(err, errConflict):
		case pause > firstPause && !answered(err): // the one before may have been delivered twice, too
			return driver.Wrap(driver.ErrAmbiguous, err)
		default:
			return err
		}
		if have, herr := s.head(ctx, name); herr == nil {
			if lost := won(have); lost != nil {
				return lost
			}
		}
		if !rest(ctx, pause) { // unknown: something between may have delivered it before, too
			return driver.Wrap(driver.ErrAmbiguous, err)
		}
	}
}

// rest sleeps, unless ctx would end before.
func rest(ctx context.Context, d time.Duration) bool {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= d {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// bare is an ETag without what some stores put around it and others do not.
func bare(etag string) string { return strings.Trim(strings.TrimPrefix(etag, "W/"), `"`) }

// Delete is one DELETE.
func (s *store) Delete(ctx context.Context, key string, n uint64) error {
	return s.delete(ctx, s.object(key, n))
}

// Sweep lists what is at most n, which is what comes behind n+1, and deletes it.
func (s *store) Sweep(ctx context.Context, key string, n uint64) error {
	folder := s.folder(key)
	for more := ""; ; {
		p, err := s.list(ctx, folder, folder+recordName(n+1), more, maxPage, false)
		if err != nil {
			return err
		}
		var names []string
		for _, o := range p.objects {
			name := aws.ToString(o.Key)
			if old, ok := number(strings.TrimPrefix(name, folder)); ok && old <= n {
				names = append(names, name)
			}
		}
		if err := s.deleteAll(ctx, names); err != nil {
			return err
		}
		if more = p.next; more == "" {
			return nil
		}
	}
}

// maxPage is the most that S3 lists, and deletes, in one request.
const maxPage = 1000

// Keys lists the folders, page by page. The name of a long key does not tell it: one of
// its records does.
func (s *store) Keys(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for more := ""; ; {
			p, err := s.list(ctx, s.base+namePrefix(prefix), "", more, maxPage, true)
			if err != nil {
				yield("", err)
				return
			}
			for _, f := range p.folders {
				key, ok, err := s.keyOf(ctx, strings.TrimSuffix(strings.TrimPrefix(f, s.base), "/"))
				if err != nil {
					yield("", err)
					return
				}
				if ok && strings.HasPrefix(key, prefix) && !yield(key, nil) {
					return
				}
			}
			if more = p.next; more == "" {
				return
			}
		}
	}
}

// keyOf returns the key behind a folder's name. False: the folder is not a key's.
func (s *store) keyOf(ctx context.Context, name string) (key string, ok bool, err error) {
	if !hashed(name) {
		key, ok = unescape(name)
		return key, ok, nil
	}
	folder := s.base + name + "/"
	n, err := s.first(ctx, folder, "")
	if errors.Is(err, driver.ErrCorrupt) || n == 0 && err == nil {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	got, err := s.get(ctx, folder+recordName(n), "")
	if errors.Is(err, epoch.ErrNotExist) { // collected meanwhile
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	var r epoch.Record
	if json.Unmarshal(got.body, &r) != nil || escape(r.Key) != name {
		return "", false, nil
	}
	return r.Key, true, nil
}

// Drop has nothing to let go of: an object store holds nothing open.
func (s *store) Drop(epoch.Version) {}

// Ping asks for the bucket.
func (s *store) Ping(ctx context.Context) error { return s.ping(ctx) }
