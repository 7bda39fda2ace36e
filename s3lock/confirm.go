package s3lock

import (
	"context"
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
	switch now, err := s.get(ctx, s.object(key, n), ""); {
	case err != nil:
		return 0, err
	case bare(now.etag) == bare(known.etag), bare(now.etag) != bare(etag):
		return 0, errOutdated
	}
	return newest, nil
}
