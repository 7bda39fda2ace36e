package redislock

import (
	"crypto/tls"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Each connection verifies the host that it goes to: with one server the URL's, with several
// whichever it is.
func TestVerifiedHost(t *testing.T) {
	t.Parallel()
	for url, k := range map[string]struct {
		connect func(string, secrets) (redis.UniversalClient, error)
		want    string
	}{
		"rediss://first:6379":                                       {openStandalone, "first"},
		"rediss://first:6379?addr=second:6379":                      {openCluster, ""},
		"rediss://first:26379?master_name=m&addr=second:26379&db=0": {openSentinel, ""},
	} {
		client, err := k.connect(url, secrets{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		var c *tls.Config
		switch client := client.(type) {
		case *redis.Client:
			c = client.Options().TLSConfig
		case *redis.ClusterClient:
			c = client.Options().TLSConfig
		}
		if c == nil {
			t.Fatalf("%s: got no TLS settings", url)
		}
		if c.ServerName != k.want || c.InsecureSkipVerify {
			t.Errorf("%s: got the server name %q, skipped %v, want %q, verified", url, c.ServerName, c.InsecureSkipVerify, k.want)
		}
	}
}
