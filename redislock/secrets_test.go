package redislock

import (
	"crypto/tls"
	"testing"

	"github.com/redis/go-redis/v9"
)

// What a URL names beside itself reaches the client.
func TestSecretsReachTheClient(t *testing.T) {
	t.Parallel()
	s := secrets{password: "file", certificates: []tls.Certificate{{}}}
	c, err := openSentinel("rediss://sentinel:theirs@h:26379?master_name=m&username=app", s)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if o := c.(*redis.Client).Options(); o.Username != "app" || o.Password != "file" || len(o.TLSConfig.Certificates) != 1 {
		t.Errorf("by Sentinel: got user %q, password %q and %d certificates, want the server's own", o.Username, o.Password, len(o.TLSConfig.Certificates))
	}
	cl, err := openCluster("rediss://app:url@h:6379", s)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cl.Close() }()
	if o := cl.(*redis.ClusterClient).Options(); o.Username != "app" || o.Password != "file" || len(o.TLSConfig.Certificates) != 1 || !o.ContextTimeoutEnabled {
		t.Errorf("a Cluster: got user %q, password %q, %d certificates, context timeouts %v", o.Username, o.Password, len(o.TLSConfig.Certificates), o.ContextTimeoutEnabled)
	}
}
