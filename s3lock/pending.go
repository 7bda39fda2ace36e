package s3lock

import (
	"sync"

	"github.com/fencelock/locker/driver"
)

// pending remembers, between a create and the check behind it, when the create was sent:
// the check's listing then shows whether the store's clocks agree.
type pending struct {
	mu    sync.Mutex
	wrote map[string]driver.Instant
}

// maxPending bounds it; beyond it any is forgotten, which costs one comparison.
const maxPending = 1024

func (p *pending) put(name string, at driver.Instant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wrote == nil || len(p.wrote) >= maxPending {
		p.wrote = map[string]driver.Instant{}
	}
	p.wrote[name] = at
}

func (p *pending) take(name string) (driver.Instant, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.wrote[name]
	delete(p.wrote, name)
	return at, ok
}
