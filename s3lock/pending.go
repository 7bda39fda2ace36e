package s3lock

import "sync"

// pending remembers, between a create and the check behind it, when the create was under way:
// the check's listing then shows whether the store's clocks agree.
type pending struct {
	mu    sync.Mutex
	wrote map[string]write
}

// maxPending bounds it; beyond it any is forgotten, which costs one comparison.
const maxPending = 1024

func (p *pending) put(name string, w write) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wrote == nil || len(p.wrote) >= maxPending {
		p.wrote = map[string]write{}
	}
	p.wrote[name] = w
}

func (p *pending) take(name string) (write, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w, ok := p.wrote[name]
	delete(p.wrote, name)
	return w, ok
}
