package live

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// EtcdOptions is what an etcd cluster can be asked to be. The zero value is one node, and a server of the environment will
// do for it.
type EtcdOptions struct {
	Nodes int // zero: 1
	// Own: a server of the environment will not do.
	Own bool
	// Args are further arguments of each node, such as "--election-timeout=500".
	Args []string
}

// EtcdCluster is an etcd cluster.
type EtcdCluster struct {
	Nodes []*Server

	login etcdLogin
	raw   string // the URL of the environment; empty: it is ours
}

// Etcd starts an etcd cluster for a test, or skips the test.
func Etcd(tb testing.TB, o EtcdOptions) *EtcdCluster {
	tb.Helper()
	nodes := max(o.Nodes, 1)
	p := spec{
		image: image{server: "etcd", official: "gcr.io/etcd-development/etcd:v3.7.3"},
		port:  2379, data: "/data", plain: !o.Own && nodes == 1 && len(o.Args) == 0,
		url:   etcdURL,
		ready: etcdLogin{}.reads,
	}
	if nodes > 1 {
		p.ready = etcdLogin{}.answers // it cannot read before the others are there, too
		p.peers = newPeers(tb)
	}
	c := &EtcdCluster{}
	if raw, variable := endpoint("etcd"); raw != "" && p.plain {
		c, err := etcdOf(variable, raw)
		if err != nil {
			tb.Fatalf("live: %s: %v", variable, err)
		}
		await(tb, c.Nodes...)
		return c
	}
	var members []string
	for i := range nodes {
		members = append(members, fmt.Sprintf("%s=http://%[1]s:2380", etcdName(i, nodes)))
	}
	for i := range nodes {
		p.as = etcdName(i, nodes)
		p.command = append([]string{
			"/usr/local/bin/etcd", "--name=" + p.as, "--data-dir=/data/etcd", "--log-level=warn",
			"--listen-client-urls=http://0.0.0.0:2379", "--advertise-client-urls=http://" + p.as + ":2379",
			"--listen-peer-urls=http://0.0.0.0:2380", "--initial-advertise-peer-urls=http://" + p.as + ":2380",
			"--initial-cluster=" + strings.Join(members, ","),
		}, o.Args...)
		c.Nodes = append(c.Nodes, launch(tb, p))
	}
	await(tb, c.Nodes...)
	ctx, cancel := context.WithTimeout(context.Background(), answersWithin)
	defer cancel()
	if _, err := c.Leader(ctx); err != nil {
		tb.Fatal(err)
	}
	return c
}

func etcdName(i, nodes int) string {
	if nodes == 1 {
		return "etcd"
	}
	return fmt.Sprintf("etcd-%d", i+1)
}

// etcdOf is the cluster of the environment: etcd://user:password@host:port,host:port. No error shows its password.
func etcdOf(variable, raw string) (*EtcdCluster, error) {
	const form = "want etcd://host:2379,host:2379"
	rest, ok := strings.CutPrefix(raw, "etcd://")
	if !ok {
		return nil, errors.New(form)
	}
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	c := &EtcdCluster{raw: raw}
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		u, err := url.Parse("etcd://" + rest[:at] + "@host")
		if err != nil {
			return nil, errors.New("the user and the password are not escaped as in a URL")
		}
		c.login.user = u.User.Username()
		c.login.password, _ = u.User.Password()
		rest = rest[at+1:]
	}
	for host := range strings.SplitSeq(rest, ",") {
		u, err := url.Parse("etcd://" + host)
		if err != nil {
			return nil, errors.New(form)
		}
		address, err := withPort(u, "2379")
		if err != nil {
			return nil, err
		}
		c.Nodes = append(c.Nodes, &Server{name: variable, address: address, url: etcdURL, ready: c.login.reads})
	}
	return c, nil
}

func etcdURL(at string) string { return "etcd://" + at }

func (c *EtcdCluster) use(tb testing.TB) {
	for _, n := range c.Nodes {
		n.use(tb)
	}
}

// Ours reports whether there are handles.
func (c *EtcdCluster) Ours() bool { return c.Nodes[0].Ours() }

// Addrs returns the address of each node. It is another one after each Start, Restart and Crash of that node.
func (c *EtcdCluster) Addrs() []string {
	var all []string
	for _, n := range c.Nodes {
		all = append(all, n.Addr())
	}
	return all
}

// URL returns the URL of all nodes, as of now. It may hold a password.
func (c *EtcdCluster) URL() string { return cmp.Or(c.raw, etcdURL(strings.Join(c.Addrs(), ","))) }

// All does one thing to all nodes at once: c.All(ctx, (*Server).Pause). After a Crash or Restart there is a leader again.
func (c *EtcdCluster) All(ctx context.Context, do func(*Server, context.Context) error) error {
	errs := make([]error, len(c.Nodes))
	var wait sync.WaitGroup
	for i, n := range c.Nodes {
		wait.Go(func() { errs[i] = do(n, ctx) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

// Leader returns the node that leads, once most nodes say so of the same one.
func (c *EtcdCluster) Leader(ctx context.Context) (*Server, error) {
	for {
		votes, ids := map[string]int{}, map[string]*Server{}
		for _, n := range c.Nodes {
			once, cancel := context.WithTimeout(ctx, time.Second)
			s, err := c.login.status(once, n.Addr())
			cancel()
			if err == nil {
				votes[s.Leader]++
				ids[s.Header.Member] = n
			}
		}
		for id, count := range votes {
			if ids[id] != nil && count > len(c.Nodes)/2 {
				return ids[id], nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("live: no leader among %s: %w", strings.Join(c.Addrs(), ", "), ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Put writes a key through one node.
func (c *EtcdCluster) Put(ctx context.Context, through *Server, key, value string) error {
	return c.login.call(ctx, through.Addr(), "kv/put", map[string]any{"key": []byte(key), "value": []byte(value)}, nil)
}

// Get reads a key through one node, from a majority. A key that is not there reads as an empty one.
func (c *EtcdCluster) Get(ctx context.Context, through *Server, key string) (string, error) {
	var got struct {
		Pairs []struct {
			Value []byte `json:"value"`
		} `json:"kvs"`
	}
	err := c.login.call(ctx, through.Addr(), "kv/range", map[string]any{"key": []byte(key)}, &got)
	if err != nil || len(got.Pairs) == 0 {
		return "", err
	}
	return string(got.Pairs[0].Value), nil
}

// etcdLogin is who a client is. Empty: nobody, as the servers that are ours want it.
type etcdLogin struct{ user, password string }

// reads is the first answer of a node that has a leader.
func (l etcdLogin) reads(ctx context.Context, at string) error {
	var got status
	err := l.call(ctx, at, "kv/range", map[string]any{"key": []byte("live")}, &got)
	if err == nil && got.Header.Member == "" {
		err = refusal{errors.New("an answer without a header"), etcdRefusals[http.StatusNotFound]}
	}
	return err
}

// answers is the first answer of any node.
func (l etcdLogin) answers(ctx context.Context, at string) error {
	_, err := l.status(ctx, at)
	return err
}

type status struct {
	Header struct {
		Member string `json:"member_id"`
	} `json:"header"`
	Leader string `json:"leader"`
}

func (l etcdLogin) status(ctx context.Context, at string) (s status, err error) {
	err = l.call(ctx, at, "maintenance/status", struct{}{}, &s)
	return s, err
}

// call makes one call, and logs in before it if need be.
func (l etcdLogin) call(ctx context.Context, at, method string, request, answer any) error {
	if l.user == "" {
		return etcdCall(ctx, at, method, "", request, answer)
	}
	var got struct {
		Token string `json:"token"`
	}
	if err := etcdCall(ctx, at, "auth/authenticate", "", map[string]string{"name": l.user, "password": l.password}, &got); err != nil {
		return err
	}
	return etcdCall(ctx, at, method, got.Token, request, answer)
}

// etcdRefusals are what to do about an answer that will not change. A wrong password is a bad request to etcd.
var etcdRefusals = map[int]string{
	http.StatusBadRequest:   "correct the user and the password of the URL",
	http.StatusUnauthorized: "correct the user and the password of the URL",
	http.StatusForbidden:    "give the user the role root, tests need every key",
	http.StatusNotFound:     "this is no etcd, or one without its JSON gateway (--enable-grpc-gateway)",
}

// etcdCall makes one call over the JSON gateway, on a connection of its own. An empty token means nobody.
func etcdCall(ctx context.Context, at, method, token string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	u := url.URL{Scheme: "http", Host: at, Path: "/v3/" + method}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	if token != "" {
		r.Header.Set("Authorization", token)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	got, err := client.Do(r)
	if err != nil {
		return refused(err)
	}
	defer got.Body.Close()
	all, err := io.ReadAll(got.Body)
	if err == nil && got.StatusCode != http.StatusOK {
		err = refusedHTTP(got.StatusCode, fmt.Errorf("%s: %s: %.200s", method, got.Status, bytes.TrimSpace(all)), etcdRefusals)
	}
	if err == nil && answer != nil {
		err = json.Unmarshal(all, answer)
	}
	return err
}
