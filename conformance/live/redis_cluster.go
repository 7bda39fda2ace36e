package live

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// RedisCluster is a Redis Cluster of three masters without replicas. Its nodes know each other, and send clients to each
// other, by names that only Dial can resolve.
type RedisCluster struct{ Nodes []*RedisServer }

const redisMasters = 3

// NewRedisCluster starts a cluster for a test, or skips the test. Nothing in it is persistent but the cluster itself.
func NewRedisCluster(tb testing.TB) *RedisCluster {
	tb.Helper()
	c := &RedisCluster{}
	peers := newPeers(tb)
	for i := range redisMasters {
		s := &RedisServer{}
		name := fmt.Sprintf("redis-%d", i+1)
		s.Server = start(tb, spec{
			image: image{server: "redis", official: redisImage}, as: name, port: redisPort, data: "/data", peers: peers,
			command: append([]string{
				"redis-server", "--dir", "/data", "--bind", "0.0.0.0", "--protected-mode", "no",
				"--cluster-enabled", "yes", "--cluster-node-timeout", "2000",
				"--cluster-announce-hostname", name, "--cluster-preferred-endpoint-type", "hostname",
			}, RedisNone.args()...),
			url: s.address, ready: s.ping,
		})
		c.Nodes = append(c.Nodes, s)
	}
	ctx, cancel := context.WithTimeout(context.Background(), answersWithin)
	defer cancel()
	if err := c.form(ctx); err != nil {
		tb.Fatal(err)
	}
	return c
}

// form makes one cluster of the nodes, and waits until every one of them says so.
func (c *RedisCluster) form(ctx context.Context) error {
	const slots = 16384
	for i, n := range c.Nodes {
		from, to := i*slots/len(c.Nodes), (i+1)*slots/len(c.Nodes)-1
		if _, err := n.Do(ctx, "CLUSTER", "ADDSLOTSRANGE", fmt.Sprint(from), fmt.Sprint(to)); err != nil {
			return err
		}
		ip, err := n.peerIP(ctx)
		if err != nil {
			return err
		}
		if _, err := c.Nodes[0].Do(ctx, "CLUSTER", "MEET", ip, fmt.Sprint(redisPort)); err != nil {
			return err
		}
	}
	return c.Agrees(ctx)
}

// Agrees waits until every node serves, and knows every other node: after a node came back, too.
func (c *RedisCluster) Agrees(ctx context.Context) error {
	for {
		agreed := 0
		for _, n := range c.Nodes {
			v, err := n.Do(ctx, "CLUSTER", "INFO")
			if text, _ := v.(string); err == nil && strings.Contains(text, "cluster_state:ok") &&
				strings.Contains(text, fmt.Sprintf("cluster_known_nodes:%d\r\n", len(c.Nodes))) {
				agreed++
			}
		}
		if agreed == len(c.Nodes) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("live: %d of %d Redis nodes agree: %w", agreed, len(c.Nodes), ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c *RedisCluster) use(tb testing.TB) {
	for _, n := range c.Nodes {
		n.use(tb)
	}
}

// URL returns the URL of the first node. A client needs Dial to reach the others.
func (c *RedisCluster) URL() string {
	return strings.Replace(c.Nodes[0].URL(), "redis://", "redis+cluster://", 1)
}

// Dial connects to a node by the name that the cluster calls it: it takes the place of net.Dialer.DialContext in a client.
func (c *RedisCluster) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	for _, n := range c.Nodes {
		if n.Name() == host {
			address = n.Addr()
		}
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// peerIP returns the server's address among its peers.
func (s *Server) peerIP(ctx context.Context) (string, error) {
	i, err := s.box.Inspect(ctx)
	if err != nil {
		return "", fmt.Errorf("live: inspect %s: %w", s.name, err)
	}
	for _, n := range i.NetworkSettings.Networks {
		if n.NetworkID == s.peers.id {
			return n.IPAddress.String(), nil
		}
	}
	return "", errors.New("live: " + s.name + " has no address among its peers")
}
