package s3lock

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/fencelock/locker/epoch"
)

var _ epoch.Confirmer = (*store)(nil)

// errOutdated is of a listing from before a write, as a cache gives one.
var errOutdated = errors.New("the listing does not show what was just written: a cache answers, or the store lists what is outdated")

// Confirm is one LIST of one name. It shows the object's ETag, which is another for every
// write. Where that is not the known one somebody may have ended the record since, which one
// GET tells. A store that lists no ETags is believed.
func (s *store) Confirm(ctx context.Context, key string, n uint64, v epoch.Version) (uint64, error) {
	newest, etag, err := s.listed(ctx, s.folder(key), "")
	s.shown.take(s.object(key, newest)) // no read comes behind it
	known, _ := v.(version)
	if err != nil || newest != n || etag == "" || bare(etag) == bare(known.etag) {
		return newest, err
	}
	now, err := s.get(ctx, s.object(key, n), "")
	if err != nil {
		return 0, err
	}
	var r epoch.Record
	if bare(now.etag) == bare(known.etag) || bare(now.etag) != bare(etag) || json.Unmarshal(now.body, &r) != nil || r.Holder != known.holder {
		return 0, errOutdated // an ending keeps who made it: another's is no state of this record
	}
	return newest, nil
}
