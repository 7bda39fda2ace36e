package s3lock

import (
	"context"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// lifecycle looks for rules that would remove records, and with them tokens.
func (p *prober) lifecycle(ctx context.Context) error {
	a, once := p.begin()
	out, err := p.client.GetBucketLifecycleConfiguration(ctx, &s3.GetBucketLifecycleConfigurationInput{Bucket: &p.bucket.name}, once)
	switch {
	case err != nil && a.status == 0:
		return p.refused(opLifecycle, a, err)
	case codeOf(err) == "NoSuchLifecycleConfiguration":
		p.found(reqLifecycle, Met, "")
		return nil
	case err != nil:
		p.found(reqLifecycle, Unchecked, "%s: %s", codeOf(err), actions[opLifecycle]+" is not allowed, or not implemented")
		return nil
	}
	for _, r := range out.Rules {
		switch {
		case r.Status != types.ExpirationStatusEnabled || !touches(r, p.base):
			continue
		case expires(r):
			p.found(reqLifecycle, Warned, "rule %q expires objects: a key that was not used for that long starts its tokens again, and so does one that is held longer", aws.ToString(r.ID))
			return nil
		case archives(r):
			p.found(reqLifecycle, Warned, "rule %q archives objects: a key that was not used for that long cannot be read, nor taken", aws.ToString(r.ID))
			return nil
		}
	}
	p.found(reqLifecycle, Met, "")
	return nil
}

// expires reports whether a rule removes current objects: it may also be about left-over
// delete markers only.
func expires(r types.LifecycleRule) bool {
	return r.Expiration != nil && (r.Expiration.Days != nil || r.Expiration.Date != nil)
}

// archives reports whether a rule moves current objects where a read is refused until somebody
// has asked for them back.
func archives(r types.LifecycleRule) bool {
	return slices.ContainsFunc(r.Transitions, func(t types.Transition) bool {
		return t.StorageClass == types.TransitionStorageClassGlacier || t.StorageClass == types.TransitionStorageClassDeepArchive
	})
}

// touches reports whether a rule may apply to names that begin with base.
func touches(r types.LifecycleRule, base string) bool {
	prefix := aws.ToString(r.Prefix) //nolint:staticcheck // rules of the old kind still exist
	if r.Filter != nil {
		switch {
		case r.Filter.Prefix != nil:
			prefix = *r.Filter.Prefix
		case r.Filter.And != nil:
			prefix = aws.ToString(r.Filter.And.Prefix)
		}
	}
	return strings.HasPrefix(base, prefix) || strings.HasPrefix(prefix, base)
}
