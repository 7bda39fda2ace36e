package fence

import (
	"context"
	"sync"

	"github.com/fencelock/locker/driver"
)

// Marks is a [Store] in memory: it forgets everything with the process, and grows by
// one entry per resource. The zero Marks is empty. It is safe for concurrent use, and
// must not be copied after first use.
type Marks struct {
	mu    sync.Mutex
	marks map[string]driver.Token
}

var _ Store = (*Marks)(nil)

// Raise sets the resource's mark to t, unless it is greater already, and returns it. A
// context that has ended is an error, and nothing is raised.
func (m *Marks) Raise(ctx context.Context, resource string, t driver.Token) (driver.Token, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	mark := max(m.marks[resource], t)
	if m.marks == nil {
		m.marks = map[string]driver.Token{}
	}
	m.marks[resource] = mark
	return mark, nil
}

// Mark returns the resource's mark. Zero: it was never raised.
func (m *Marks) Mark(resource string) driver.Token {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.marks[resource]
}
