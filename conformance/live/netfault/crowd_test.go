package netfault_test

import (
	"bufio"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/locker/conformance/live/netfault"
)

// crowd is clients that send lines one after the other, on new connections where theirs are reset, until they are told to end.
func crowd(t *testing.T, p *netfault.Proxy, clients int) (end func()) {
	t.Helper()
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for {
				c, err := net.Dial("tcp", p.Addr())
				if err != nil {
					t.Error(err)
					return
				}
				in := bufio.NewReader(c)
				for err == nil {
					select {
					case <-done:
						_ = c.Close()
						return
					default:
					}
					_ = c.SetDeadline(time.Now().Add(30 * time.Second))
					if _, err = c.Write([]byte("line\n")); err == nil {
						_, err = in.ReadString('\n')
					}
				}
				_ = c.Close()
			}
		})
	}
	return func() {
		close(done)
		wg.Wait()
	}
}

// Times is exact, however many clients send at once and while the change is made.
func TestTimesBesideACrowd(t *testing.T) {
	const clients, rounds, times = 32, 300, 1
	s := serve(t)
	p := proxy(t, s.target(), nil)
	defer crowd(t, p, clients)()
	for range rounds {
		p.Apply(netfault.Faults{})
		before := p.Counts().HarmedRequests
		p.Apply(netfault.Faults{Requests: netfault.Harm{Delay: time.Nanosecond}, Times: times})
		eventually(t, "turns are late", func() bool { return p.Fired() >= times })
		p.Apply(netfault.Faults{})
		if got := p.Counts().HarmedRequests - before; got != times {
			t.Fatalf("requests that were late: got %d, want %d", got, times)
		}
	}
}
