package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/internal/boot"
)

// childVariable in the environment makes ServeIfChild serve.
const childVariable = "LOCKER_CONFORMANCE_CHILD"

// command is one line to a child. Each is answered by a reply with its number, in no
// order; what a child does by itself it tells in replies with number 0.
type command struct {
	N    int           `json:"n"`
	Do   string        `json:"do"` // open, acquire, err, renew, release, check-then-write, loop, lead
	Key  string        `json:"key,omitempty"`
	Name string        `json:"name,omitempty"`
	TTL  time.Duration `json:"ttl,omitempty"`
	Wait time.Duration `json:"wait,omitempty"`
}

// reply is one line from a child. Times are readings of the boot clock, which the
// processes of a machine share: the child stamps its events itself.
type reply struct {
	N      int           `json:"n"`
	Event  string        `json:"event,omitempty"` // done, sure, checked, write, granted
	Key    string        `json:"key,omitempty"`
	Token  driver.Token  `json:"token,omitempty"`
	Before time.Duration `json:"before,omitempty"`
	After  time.Duration `json:"after,omitempty"`
	Err    string        `json:"err,omitempty"`  // its text; empty: none
	Kind   string        `json:"kind,omitempty"` // the sentinel's text
}

// sentinels are the errors that a child can name.
var sentinels = []error{
	driver.ErrHeld, driver.ErrLost, driver.ErrReleased, driver.ErrMaxHold, driver.ErrClosed, driver.ErrAmbiguous,
	driver.ErrUnavailable, driver.ErrTokenRegression, driver.ErrUnsupported, driver.ErrInvalidTTL, driver.ErrInvalidKey,
}

func (r *reply) fail(err error) {
	if err == nil {
		return
	}
	r.Err = err.Error()
	for _, s := range sentinels {
		if errors.Is(err, s) {
			r.Kind = s.Error()
			return
		}
	}
}

// err is the error as the parent sees it: errors.Is finds its sentinel.
func (r *reply) err() error {
	if r.Err == "" {
		return nil
	}
	for _, s := range sentinels {
		if s.Error() == r.Kind {
			return driver.Wrap(s, errors.New(r.Err))
		}
	}
	return errors.New(r.Err)
}

// ServeIfChild must be the first line of TestMain, or of main: in a process that the suite
// has started as a child (see Harness.Child) it does what the suite tells it over stdin
// and stdout, and ends the process. In any other process it returns at once. open makes a
// client of the namespace under test.
func ServeIfChild(open func(context.Context) (driver.Driver, error)) {
	if os.Getenv(childVariable) == "" {
		return
	}
	s := &childServer{open: open, out: json.NewEncoder(os.Stdout), leases: map[string]*locker.Lease{}}
	s.serve(os.Stdin)
	os.Exit(0)
}

// childServer is the child's side.
type childServer struct {
	open   func(context.Context) (driver.Driver, error)
	locker *locker.Locker
	ttl    time.Duration
	name   string

	mu     sync.Mutex
	out    *json.Encoder
	leases map[string]*locker.Lease
}

func (s *childServer) tell(r reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.out.Encode(r) // the parent has gone, and its end of stdin says so too
}

// serve ends when the parent closes stdin, or dies.
func (s *childServer) serve(in io.Reader) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var cmd command
		if err := json.Unmarshal(lines.Bytes(), &cmd); err != nil {
			s.tell(reply{Err: err.Error()})
			continue
		}
		if cmd.Do == "open" {
			s.do(cmd)
			continue
		}
		go s.do(cmd) // the process ends under it
	}
}

func now() time.Duration {
	t, _ := boot.Now()
	return t
}

func (s *childServer) lease(key string) *locker.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases[key]
}

// do carries out one command.
func (s *childServer) do(cmd command) {
	ctx := context.Background()
	r := reply{N: cmd.N, Key: cmd.Key, Before: now()}
	l := s.lease(cmd.Key)
	if l == nil && (cmd.Do == "err" || cmd.Do == "renew" || cmd.Do == "release" || cmd.Do == "check-then-write") {
		r.fail(fmt.Errorf("no lease of %q here", cmd.Key))
		s.tell(r)
		return
	}
	switch cmd.Do {
	case "open":
		r.fail(s.start(ctx, cmd))
	case "acquire":
		r.fail(s.acquire(ctx, cmd, &r))
	case "err":
		r.fail(l.Err())
		r.Token = l.Token()
	case "renew":
		r.fail(l.Renew(ctx))
	case "release":
		r.fail(l.Release(ctx))
	case "check-then-write":
		// The two steps that no lock can make one.
		s.tell(reply{Event: "checked", Key: cmd.Key, Token: l.Token(), Before: r.Before, After: now(), Err: errText(l.Err())})
		<-time.After(cmd.Wait)
		s.tell(reply{Event: "write", Key: cmd.Key, Token: l.Token(), Before: now(), After: now()})
	case "loop":
		s.loop(ctx, cmd)
	case "lead":
		r.fail(s.lead(ctx, cmd))
	default:
		r.fail(fmt.Errorf("unknown command %q", cmd.Do))
	}
	r.After = now()
	s.tell(r)
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (s *childServer) start(ctx context.Context, cmd command) error {
	d, err := s.open(ctx)
	if err != nil {
		return err
	}
	s.ttl, s.name = cmd.TTL, cmd.Name
	s.locker, err = locker.New(d, &locker.Options{TTL: cmd.TTL, Owner: cmd.Name})
	return err
}

func (s *childServer) acquire(ctx context.Context, cmd command, r *reply) error {
	l, err := s.locker.Acquire(ctx, cmd.Key, locker.WithWait(cmd.Wait))
	if err != nil {
		return err
	}
	r.Token = l.Token()
	s.mu.Lock()
	s.leases[cmd.Key] = l
	s.mu.Unlock()
	go func() {
		<-l.Done()
		s.tell(reply{Event: "done", Key: cmd.Key, Token: l.Token(), Before: now(), After: now()})
	}()
	return nil
}

// lead leads until the process is killed.
func (s *childServer) lead(ctx context.Context, cmd command) error {
	return s.locker.Lead(ctx, cmd.Key, func(ctx context.Context, l *locker.Lease) error {
		at := now()
		s.tell(reply{Event: "granted", Key: cmd.Key, Token: l.Token(), Before: at, After: at})
		<-ctx.Done()
		return ctx.Err()
	})
}

// loop acquires, holds for a moment and releases, until the process is killed.
func (s *childServer) loop(ctx context.Context, cmd command) {
	for {
		begun := now()
		l, err := s.locker.Acquire(ctx, cmd.Key)
		if err != nil {
			<-time.After(s.ttl / 100)
			continue
		}
		s.tell(reply{Event: "granted", Key: cmd.Key, Token: l.Token(), Before: begun, After: now()})
		for until := now() + cmd.Wait; now() < until; <-time.After(s.ttl / 400) {
			at := now()
			if l.Valid() {
				s.tell(reply{Event: "sure", Key: cmd.Key, Token: l.Token(), Before: at, After: at})
			}
		}
		_ = l.Release(ctx) // a failure is nobody's: the next round shows what came of it
	}
}
