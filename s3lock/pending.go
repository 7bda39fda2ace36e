package s3lock

import "sync"

// pending remembers, by an object's name, what one request has shown until the next one about
// it is answered: when a create was under way, for its check's listing to show whether the
// store's clocks agree; and the ETag that a listing has shown, for the read behind it.
type pending[T any] struct {
	mu   sync.Mutex
	kept map[string]T
}

// maxPending bounds it; beyond it any is forgotten, which costs one comparison, or one listing.
const maxPending = 1024

func (p *pending[T]) put(name string, v T) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kept == nil || len(p.kept) >= maxPending {
		p.kept = map[string]T{}
	}
	p.kept[name] = v
}

func (p *pending[T]) take(name string) (T, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v, ok := p.kept[name]
	delete(p.kept, name)
	return v, ok
}
