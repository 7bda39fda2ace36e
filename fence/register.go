package fence

import (
	"context"
	"slices"
	"sync"

	"github.com/fencelock/locker/driver"
)

// Register is a whole protected resource: one value of type T and its fence, in memory.
// Check and write are one atomic step. It is for tests and for learning. The zero
// Register holds the zero T and has seen no token. It is safe for concurrent use, and
// must not be copied after first use.
type Register[T any] struct {
	// Name is the resource in a StaleError.
	Name string
	// KeepHistory says that the tokens of all accepted writes are kept. Set it before
	// the first write.
	KeepHistory bool

	mu      sync.Mutex
	mark    driver.Token
	value   T
	history []driver.Token
}

// Raise shows the token: from then on every smaller one is refused. A holder calls it
// before its first read. Errors: [StaleError] for a token smaller than the mark,
// ErrStale for what is no token, the context's error if it has ended before; nothing
// was changed then.
func (r *Register[T]) Raise(ctx context.Context, t driver.Token) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.admit(ctx, t); err != nil {
		return err
	}
	r.mark = t
	return nil
}

// Read returns the value. It refuses a stale token, and does not raise: a holder that
// reads without having raised can be overtaken by an older one. Errors as Raise.
func (r *Register[T]) Read(ctx context.Context, t driver.Token) (T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.admit(ctx, t); err != nil {
		var none T
		return none, err
	}
	return r.value, nil
}

// Write replaces the value and raises the mark to the token, if the token is not
// smaller than the mark. Errors as Raise.
func (r *Register[T]) Write(ctx context.Context, t driver.Token, v T) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.admit(ctx, t); err != nil {
		return err
	}
	r.mark, r.value = t, v
	if r.KeepHistory {
		r.history = append(r.history, t)
	}
	return nil
}

// admit is the fence: the whole of it is one comparison. The lock is held.
func (r *Register[T]) admit(ctx context.Context, t driver.Token) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := valid(t); err != nil {
		return err
	}
	if t < r.mark {
		return &StaleError{Resource: r.Name, Token: t, Mark: r.mark}
	}
	return nil
}

// Mark returns the greatest token that was raised or written. Zero: none.
func (r *Register[T]) Mark() driver.Token {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mark
}

// History returns the tokens of the accepted writes in their order: never falling, and
// strictly rising where each holder writes once. It is empty without KeepHistory.
func (r *Register[T]) History() []driver.Token {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.history)
}
