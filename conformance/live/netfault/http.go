package netfault

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/fencelock/locker/conformance"
)

// HTTPOptions are what an HTTP proxy can be told. The zero value is fine.
type HTTPOptions struct {
	// Seed makes chance repeatable. Zero: drawn.
	Seed uint64
	// Verb names requests for Counts. Nil: the method.
	Verb func(*http.Request) string
}

// HTTP passes whole HTTP/1 requests and replies on, over plain TCP. Whatever the client
// signed stays as it was sent: method, path, query, headers, the Host among them, and
// body, all of which is kept in memory. Nothing is ever sent twice unless it is asked for. It is safe for concurrent use.
type HTTP struct {
	seed      uint64
	verb      func(*http.Request) string
	listener  net.Listener
	server    *http.Server
	transport *http.Transport
	ctx       context.Context
	cancel    context.CancelFunc
	wg        sync.WaitGroup

	mu      sync.Mutex
	fault   conformance.NetworkFault
	late    time.Duration
	changed chan struct{} // closed by the next change
	rules   []*rule
	fired   int
	number  uint64
	counts  map[string]int
	closed  bool
}

var _ conformance.Network = (*HTTP)(nil)

// ListenHTTP makes a sound network in front of an HTTP server, on a free port of the
// loopback interface. It does not connect. Close ends it.
func ListenHTTP(t Target, o *HTTPOptions) (*HTTP, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("netfault: %w", err)
	}
	return listenHTTP(l, t.dial, o), nil
}

func listenHTTP(l net.Listener, d dialer, o *HTTPOptions) *HTTP {
	if o == nil {
		o = &HTTPOptions{}
	}
	h := &HTTP{seed: seeded(o.Seed), verb: o.Verb, listener: l, changed: make(chan struct{}), counts: map[string]int{}}
	if h.verb == nil {
		h.verb = func(r *http.Request) string { return r.Method }
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.transport = &http.Transport{
		DisableCompression: true,
		// A connection that is kept leads to where the target was, and a request on one that the
		// server has just closed would be sent again without being asked for.
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return d(ctx) },
	}
	h.server = &http.Server{Handler: h, ReadHeaderTimeout: time.Minute, DisableGeneralOptionsHandler: true}
	h.wg.Go(func() { _ = h.server.Serve(l) })
	return h
}

// Addr returns the address for the client. It never changes.
func (h *HTTP) Addr() string { return h.listener.Addr().String() }

// URL returns http:// and the address.
func (h *HTTP) URL() string { return "http://" + h.Addr() }

// String names the seed and the fault in force.
func (h *HTTP) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return fmt.Sprintf("netfault seed %#x: %v %v, %d rules", h.seed, h.fault, h.late, len(h.rules))
}

// Set makes the network fail, for every request that no Rule picks. It is in force when it
// returns, also for requests that a delay holds, and for the replies to those that the
// server has; one that had passed a moment before is under way, and arrives. A request that
// was swallowed, and one whose reply was, ends with a reset at the next change.
func (h *HTTP) Set(f conformance.NetworkFault, d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fault, h.late, h.fired = f, d, 0
	h.change()
}

// Rules replaces the rules and starts Fired anew. Requests that a rule has picked already
// stay its own. It panics if a rule's Status is none that a reply can have.
func (h *HTTP) Rules(rs ...Rule) {
	all := make([]*rule, len(rs))
	for i, r := range rs {
		if r.Status == 0 {
			r.Status = http.StatusOK
		}
		if r.Status < 200 || r.Status > 999 {
			panic(fmt.Sprintf("netfault: rule %d: status %d, want 200 to 999", i, r.Status))
		}
		all[i] = &rule{Rule: r}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rules, h.fired = all, 0
	h.change()
}

func (h *HTTP) change() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// Fired is how many requests and replies were harmed since the last Set or Rules.
func (h *HTTP) Fired() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fired
}

// Counts returns how many requests of each verb the client sent since the last call, which
// starts them anew.
func (h *HTTP) Counts() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := maps.Clone(h.counts)
	clear(h.counts)
	return n
}

// Close ends the proxy, its connections and its goroutines. Copies that are still to come
// never do.
func (h *HTTP) Close() error {
	h.mu.Lock()
	closed := h.closed
	h.closed = true
	h.mu.Unlock()
	if closed {
		return nil
	}
	h.cancel()
	err := h.server.Close()
	h.wg.Wait()
	h.transport.CloseIdleConnections()
	return err
}

// join adds a goroutine that Close waits for.
func (h *HTTP) join() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.wg.Add(1)
	}
	return !h.closed
}

// ServeHTTP takes one request of the client.
func (h *HTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.join() {
		drop(w)
		return
	}
	defer h.wg.Done()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		drop(w)
		return
	}
	x := &exchange{h: h, w: w, r: r, body: body}
	x.Rule, x.picked, x.number = h.pick(r)
	x.run()
}

// pick counts a request and finds the rule for it.
func (h *HTTP) pick(r *http.Request) (Rule, bool, uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.number++
	h.counts[h.verb(r)]++
	for _, rule := range h.rules {
		if rule.takes(r) {
			return rule.Rule, true, h.number
		}
	}
	return Rule{}, false, h.number
}

// now returns the fault in force and what the next change closes.
func (h *HTTP) now() (conformance.NetworkFault, time.Duration, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fault, h.late, h.changed
}

func (h *HTTP) harmed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fired++
}

// forward sends a request to the server and reads the whole reply. The client may be gone
// by then: what it sent is under way.
func (h *HTTP) forward(r *http.Request, body []byte) (*reply, error) {
	out := r.Clone(h.ctx)
	out.RequestURI = ""
	out.URL.Scheme, out.URL.Host = "http", h.listener.Addr().String() // the transport dials the target
	out.Host = r.Host
	out.Close = false
	out.Body, out.GetBody = io.NopCloser(bytes.NewReader(body)), nil
	if r.ContentLength >= 0 {
		out.ContentLength = int64(len(body))
	}
	if len(body) == 0 && r.ContentLength >= 0 {
		out.Body = http.NoBody
	}
	if _, named := out.Header["User-Agent"]; !named {
		out.Header["User-Agent"] = nil // the transport would give its own
	}
	res, err := h.transport.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	return &reply{Response: res, body: got}, nil
}

// reply is a whole one.
type reply struct {
	*http.Response
	body []byte
}

func (a *reply) write(w http.ResponseWriter) {
	header := w.Header()
	for _, name := range []string{"Date", "Content-Type"} { // net/http would add its own
		header[name] = nil
	}
	maps.Copy(header, a.Header)
	w.WriteHeader(a.StatusCode)
	_, _ = w.Write(a.body)
}

// drop resets the client's connection.
func drop(w http.ResponseWriter) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // net/http closes it then
	}
	abort(c)
}
