package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/memlock"
)

// The remote backend is memlock behind a socket: the smallest one that excludes other
// processes. It has no queue and no batch, its clients wait by asking again, and its
// holders count on the boot clock. So it also runs what memlock itself cannot.

// envSocket is where children find the server.
const envSocket = "LOCKER_CONFORMANCE_SOCKET"

func TestMain(m *testing.M) {
	conformance.ServeIfChild(func(context.Context) (driver.Driver, error) { return dialRemote(os.Getenv(envSocket)) })
	os.Exit(m.Run())
}

func TestRemote(t *testing.T) {
	dir, err := os.MkdirTemp("", "locker") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := rpc.NewServer()
	if err := server.Register(&Remote{d: memlock.NewServer().Driver()}); err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed
			}
			serving.Go(func() { server.ServeCodec(jsonrpc.NewServerCodec(conn)) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
		_ = os.RemoveAll(dir)
	})
	control, err := dialRemote(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = control.Close() })
	open := func(context.Context) (driver.Driver, error) { return dialRemote(socket) }
	conformance.Run(t, conformance.Harness{
		Driver:  open,
		Control: control.Ping,
		Child: func(ctx context.Context) (*exec.Cmd, error) {
			cmd, err := conformance.Self(ctx)
			if err == nil {
				cmd.Env = append(os.Environ(), envSocket+"="+socket)
			}
			return cmd, err
		},
		Faults: conformance.Faults{
			Client: func(ctx context.Context) (driver.Driver, conformance.Network, error) { return networked(open(ctx)) },
		},
	})
}

// Remote is the server's side.
type Remote struct{ d *memlock.Driver }

// Ask is a request on the wire.
type Ask struct {
	Grant driver.Grant // without State and Sent
	Key   string
	Token driver.Token
	Break driver.Break
}

// Told is an answer on the wire.
type Told struct {
	Grant  driver.Grant
	States []driver.State
	Held   *driver.HeldError
	Err    string // a sentinel's text
}

// portable are the errors that memlock answers.
var portable = []error{driver.ErrLost, driver.ErrUnavailable, driver.ErrInvalidTTL, driver.ErrClosed, driver.ErrTokenRegression}

func (t *Told) fail(err error) {
	if errors.As(err, &t.Held) || err == nil {
		return
	}
	t.Err = err.Error()
	for _, p := range portable {
		if errors.Is(err, p) {
			t.Err = p.Error()
		}
	}
}

func (t *Told) err() error {
	if t.Held != nil {
		return t.Held
	}
	for _, p := range portable {
		if t.Err == p.Error() {
			return p
		}
	}
	if t.Err != "" {
		return driver.Wrap(driver.ErrAmbiguous, errors.New(t.Err))
	}
	return nil
}

// Try, Renew, Release, Break, Inspect, List and Ping are the requests.
func (r *Remote) Try(a Ask, t *Told) (err error) {
	t.Grant, err = r.d.TryAcquire(context.Background(), a.Grant.Request)
	t.fail(err)
	return nil
}

// Renew renews.
func (r *Remote) Renew(a Ask, t *Told) (err error) {
	t.Grant, err = r.d.Renew(context.Background(), a.Grant)
	t.fail(err)
	return nil
}

// Release releases.
func (r *Remote) Release(a Ask, t *Told) error {
	t.fail(r.d.Release(context.Background(), a.Grant))
	return nil
}

// Break breaks.
func (r *Remote) Break(a Ask, t *Told) error {
	t.fail(r.d.Break(context.Background(), a.Key, a.Token, a.Break))
	return nil
}

// Inspect inspects.
func (r *Remote) Inspect(a Ask, t *Told) error {
	st, err := r.d.Inspect(context.Background(), a.Key)
	t.States = []driver.State{st}
	t.fail(err)
	return nil
}

// Ping answers.
func (r *Remote) Ping(Ask, *Told) error { return nil }

// remoteDriver is a client.
type remoteDriver struct {
	conn   *rpc.Client
	mu     sync.Mutex
	closed bool
}

func dialRemote(socket string) (*remoteDriver, error) {
	conn, err := jsonrpc.Dial("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("dial the remote backend: %w", err)
	}
	d := &remoteDriver{conn: conn}
	return d, d.Ping(context.Background())
}

func (d *remoteDriver) call(ctx context.Context, method string, a Ask) (*Told, error) {
	d.mu.Lock()
	closed := d.closed
	d.mu.Unlock()
	if closed {
		return nil, driver.ErrClosed
	}
	if ctx.Err() != nil {
		return nil, driver.Wrap(driver.ErrUnavailable, ctx.Err())
	}
	a.Grant.Sent, a.Grant.State = driver.Instant{}, nil
	t := &Told{}
	call := d.conn.Go("Remote."+method, a, t, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		if call.Error != nil {
			return nil, driver.Wrap(driver.ErrAmbiguous, call.Error)
		}
		return t, t.err()
	case <-ctx.Done():
		return nil, driver.Wrap(driver.ErrAmbiguous, ctx.Err())
	}
}

func (d *remoteDriver) Info() driver.Info {
	return driver.Info{
		Name: "remote", Waiting: driver.WaitPoll, ExpiryClock: "the server's monotonic clock", MinTTL: 100 * time.Millisecond,
		Slack: 100 * time.Millisecond,
		Features: []driver.Feature{
			driver.FeatureProcesses, driver.FeatureInspect, driver.FeatureBreak, driver.FeatureBreakNow, driver.FeaturePing, driver.FeatureFloor,
		},
	}
}

func (d *remoteDriver) TryAcquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	t, err := d.call(ctx, "Try", Ask{Grant: driver.Grant{Request: r}})
	if err != nil {
		return driver.Grant{}, err
	}
	return t.Grant, nil
}

func (d *remoteDriver) Renew(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	t, err := d.call(ctx, "Renew", Ask{Grant: g})
	if err != nil {
		return driver.Grant{}, err
	}
	return t.Grant, nil
}

func (d *remoteDriver) Release(ctx context.Context, g driver.Grant) error {
	_, err := d.call(ctx, "Release", Ask{Grant: g})
	return err
}

func (d *remoteDriver) Break(ctx context.Context, key string, token driver.Token, b driver.Break) error {
	_, err := d.call(ctx, "Break", Ask{Key: key, Token: token, Break: b})
	return err
}

func (d *remoteDriver) Inspect(ctx context.Context, key string) (driver.State, error) {
	t, err := d.call(ctx, "Inspect", Ask{Key: key})
	if err != nil {
		return driver.State{}, err
	}
	return t.States[0], nil
}

func (d *remoteDriver) List(context.Context, string) iter.Seq2[driver.State, error] {
	return func(yield func(driver.State, error) bool) { yield(driver.State{}, driver.ErrUnsupported) }
}

func (d *remoteDriver) Ping(ctx context.Context) error {
	_, err := d.call(ctx, "Ping", Ask{})
	return err
}

func (d *remoteDriver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	return d.conn.Close()
}
