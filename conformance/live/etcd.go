package live

import (
	"bytes"
	"context"
	"encoding/base64"
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
type EtcdCluster struct{ Nodes []*Server }

// Etcd starts an etcd cluster for a test, or skips the test.
func Etcd(tb testing.TB, o EtcdOptions) *EtcdCluster {
	tb.Helper()
	nodes := max(o.Nodes, 1)
	p := spec{
		image: image{server: "etcd", official: "gcr.io/etcd-development/etcd:v3.7.3"},
		port:  2379, data: "/data", plain: !o.Own && nodes == 1 && len(o.Args) == 0,
		url:   etcdURL,
		ready: etcdReads,
	}
	if nodes > 1 {
		p.ready = etcdAnswers // it cannot read before the others are there, too
		p.peers = newPeers(tb)
	}
	c := &EtcdCluster{}
	if raw, _ := endpoint("etcd"); raw != "" && p.plain {
		return etcdOf(tb, raw)
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

// etcdOf is the cluster of the environment: etcd://host:port,host:port.
func etcdOf(tb testing.TB, raw string) *EtcdCluster {
	tb.Helper()
	_, variable := endpoint("etcd")
	hosts, ok := strings.CutPrefix(raw, "etcd://")
	if !ok {
		tb.Fatalf("live: %s is not etcd://host:port", variable)
	}
	hosts, _, _ = strings.Cut(hosts, "?")
	c := &EtcdCluster{}
	for host := range strings.SplitSeq(hosts, ",") {
		c.Nodes = append(c.Nodes, &Server{name: variable, address: host, url: etcdURL, ready: etcdReads})
	}
	await(tb, c.Nodes...)
	return c
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

// URL returns the URL of all nodes, as of now.
func (c *EtcdCluster) URL() string { return etcdURL(strings.Join(c.Addrs(), ",")) }

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
			s, err := etcdStatus(once, n.Addr())
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
	return etcdCall(ctx, through.Addr(), "kv/put", map[string]any{"key": []byte(key), "value": []byte(value)}, nil)
}

// Get reads a key through one node, from a majority. A key that is not there reads as an empty one.
func (c *EtcdCluster) Get(ctx context.Context, through *Server, key string) (string, error) {
	var got struct {
		Pairs []struct {
			Value []byte `json:"value"`
		} `json:"kvs"`
	}
	err := etcdCall(ctx, through.Addr(), "kv/range", map[string]any{"key": []byte(key)}, &got)
	if err != nil || len(got.Pairs) == 0 {
		return "", err
	}
	return string(got.Pairs[0].Value), nil
}

// etcdReads is the first answer of a node that has a leader.
func etcdReads(ctx context.Context, at string) error {
	return etcdCall(ctx, at, "kv/range", map[string]any{"key": base64.StdEncoding.EncodeToString([]byte("live"))}, nil)
}

// etcdAnswers is the first answer of any node.
func etcdAnswers(ctx context.Context, at string) error {
	_, err := etcdStatus(ctx, at)
	return err
}

type status struct {
	Header struct {
		Member string `json:"member_id"`
	} `json:"header"`
	Leader string `json:"leader"`
}

func etcdStatus(ctx context.Context, at string) (s status, err error) {
	err = etcdCall(ctx, at, "maintenance/status", struct{}{}, &s)
	return s, err
}

// etcdCall makes one call over the JSON gateway, on a connection of its own.
func etcdCall(ctx context.Context, at, method string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	u := url.URL{Scheme: "http", Host: at, Path: "/v3/" + method}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	got, err := client.Do(r)
	if err != nil {
		return err
	}
	defer got.Body.Close()
	all, err := io.ReadAll(got.Body)
	if err == nil && got.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", method, got.Status, bytes.TrimSpace(all))
	}
	if err == nil && answer != nil {
		err = json.Unmarshal(all, answer)
	}
	return err
}
