package fence

import (
	"context"
	"fmt"

	"github.com/fencelock/locker/driver"
)

// Gate compares tokens with the marks of resources. The zero Gate keeps its marks in
// memory. It is safe for concurrent use, and must not be copied after first use. Read
// in the package comment what it cannot do.
type Gate struct {
	// Store keeps the marks. Nil: this process's memory, which is right only for
	// resources that end with the process. Set it before the first call.
	Store Store

	memory Marks
}

// Store keeps one mark per resource: the greatest token seen. A mark must be as durable
// as the resource's data.
type Store interface {
	// Raise sets the resource's mark to t, unless it is greater already, and returns
	// the mark as it is then. It MUST be one atomic step, and the mark MUST be stored
	// as durably as the resource's data when it returns. A resource that was never
	// raised has the mark 0. An error leaves open whether the mark was raised; a Gate
	// then refuses. It may be called from many goroutines at once.
	Raise(ctx context.Context, resource string, t driver.Token) (mark driver.Token, err error)
}

// Raise shows the token to the resource. A holder calls it once per grant, before its
// first read: from then on every smaller token is refused. Smaller than the mark itself:
// *[StaleError]. A token that is none, zero or above [driver.MaxToken], is ErrStale as
// well. An error of the store comes wrapped, and the caller must not go on.
func (g *Gate) Raise(ctx context.Context, resource string, t driver.Token) error {
	return g.pass(ctx, "raise", resource, t)
}

// Check decides about one write. Call it with each write, in the same atomic step as
// the write. The mark itself is accepted, a greater token is accepted and becomes the
// mark, a smaller one is *[StaleError]. Its errors are those of Raise.
func (g *Gate) Check(ctx context.Context, resource string, t driver.Token) error {
	return g.pass(ctx, "check", resource, t)
}

// pass is both: whoever shows a token raises the mark. The two differ in when they must
// be called, and in what it means to leave one out.
func (g *Gate) pass(ctx context.Context, op, resource string, t driver.Token) error {
	if err := valid(t); err != nil {
		return fmt.Errorf("fence: %s %q: %w", op, resource, err)
	}
	var store Store = &g.memory
	if g.Store != nil {
		store = g.Store
	}
	mark, err := store.Raise(ctx, resource, t)
	switch {
	case err != nil:
		return fmt.Errorf("fence: %s %q: %w", op, resource, err)
	case mark > t:
		return &StaleError{Resource: resource, Token: t, Mark: mark}
	case mark < t:
		return fmt.Errorf("fence: %s %q: %w: the store was given token %v and keeps the mark %v", op, resource, driver.ErrCorrupt, t, mark)
	}
	return nil
}

// valid refuses what is no token. A mark above the greatest token would shut the
// resource for ever.
func valid(t driver.Token) error {
	if t == 0 || t > driver.MaxToken {
		return driver.Wrap(driver.ErrStale, fmt.Errorf("%d is no token: want 1 to %d", uint64(t), uint64(driver.MaxToken)))
	}
	return nil
}

// StaleError is a refusal: the resource has seen a greater token. It matches
// [driver.ErrStale]. Nothing was applied, and trying again with the same token is
// useless: the lease that it came from is over.
type StaleError struct {
	// Resource is as the caller named it; a Register's is its Name.
	Resource string
	// Token is the one that was presented, Mark the greatest one that was seen.
	Token, Mark driver.Token
}

// Error reads: fence: stale token: "db" has seen 9, and this is 7.
func (e *StaleError) Error() string {
	return fmt.Sprintf("fence: %v: %q has seen %v, and this is %v", driver.ErrStale, e.Resource, e.Mark, e.Token)
}

// Is reports that a StaleError is ErrStale.
func (e *StaleError) Is(target error) bool { return target == driver.ErrStale }
