package memlock

import (
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/locker/driver"
)

// NewServer returns an empty server. It needs no Close: it is memory.
func NewServer() *Server {
	return &Server{
		began:   time.Now(),
		records: map[string]*record{},
		tickets: map[driver.Attempt][]*Ticket{},
	}
}

// named holds the servers of this process by name. It is what the URL mem://name
// means, and as process-wide as that.
var named struct {
	mu      sync.Mutex
	servers map[string]*Server
}

// Named returns the server of this process that has the name, and makes it on first
// use. It is never forgotten. Do not use it inside a synctest bubble: the server may
// have been made outside.
func Named(name string) *Server {
	named.mu.Lock()
	defer named.mu.Unlock()
	s := named.servers[name]
	if s == nil {
		if named.servers == nil {
			named.servers = map[string]*Server{}
		}
		s = NewServer()
		named.servers[name] = s
	}
	return s
}

// Options are what all clients of one server must agree on.
type Options struct {
	// TokenBase is the number that the first token of every key exceeds by one. A
	// base above another backend's last token lets a resource that stored a fence
	// accept this one. Zero: tokens begin with 1.
	TokenBase driver.Token
}

// Driver returns a new client that takes the server as it finds it.
func (s *Server) Driver() *Driver {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settled = true
	return newDriver(s)
}

// Open returns a new client that insists on its options; nil means none but the zero
// ones. The server's first client fixes them; a later one that wants others gets
// [driver.ErrLayout], and nothing is changed.
func (s *Server) Open(o *Options) (*Driver, error) {
	if o == nil {
		o = &Options{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.settled {
		s.base, s.settled = o.TokenBase, true
	}
	if s.base != o.TokenBase {
		return nil, fmt.Errorf("memlock: open: %w: token_base is %v there and %v here", driver.ErrLayout, s.base, o.TokenBase)
	}
	return newDriver(s), nil
}
