package live

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// RedisOptions is what a Redis or Valkey server can be asked to be. The zero value keeps everything in memory, and a
// server of the environment will do for it.
type RedisOptions struct {
	Persistence RedisPersistence
	Password    string
	// TLS: clients must come with it, and trust RedisServer.CA.
	TLS bool
	// ReplicaOf makes it a replica. The primary must have the same Password, and no TLS.
	ReplicaOf *RedisServer
	// Own: a server of the environment will not do.
	Own bool
	// Args are further arguments of the server, such as "--maxmemory-policy", "allkeys-lru".
	Args []string
}

// RedisPersistence is what a Redis server writes down.
type RedisPersistence int

// What is lost, and when.
const (
	RedisNone     RedisPersistence = iota // nothing: a restart loses all, whether it is orderly or not
	RedisSnapshot                         // RDB: an orderly stop writes all, a kill loses what came after the last snapshot
	RedisEverySec                         // AOF, synced each second
	RedisAlways                           // AOF, synced before each answer
)

func (p RedisPersistence) args() []string {
	switch p {
	case RedisSnapshot:
		return []string{"--save", "3600 1", "--appendonly", "no"}
	case RedisEverySec:
		return []string{"--save", "", "--appendonly", "yes", "--appendfsync", "everysec"}
	case RedisAlways:
		return []string{"--save", "", "--appendonly", "yes", "--appendfsync", "always"}
	}
	return []string{"--save", "", "--appendonly", "no"}
}

const (
	redisImage = "redis:8.0"
	redisPort  = 6379
)

// RedisServer is a Redis or Valkey server.
type RedisServer struct {
	*Server
	// CA is the certificate that signed the server's, in PEM. Nil: no TLS.
	CA []byte

	login   redisLogin
	secure  *tls.Config
	adopted bool // it is one of the environment
}

// Redis starts a Redis server for a test, or skips the test.
func Redis(tb testing.TB, o RedisOptions) *RedisServer {
	tb.Helper()
	return startRedis(tb, image{server: "redis", official: redisImage}, "redis-server", o)
}

// Valkey starts a Valkey server for a test, or skips the test.
func Valkey(tb testing.TB, o RedisOptions) *RedisServer {
	tb.Helper()
	return startRedis(tb, image{server: "valkey", official: "valkey/valkey:8.1"}, "valkey-server", o)
}

func startRedis(tb testing.TB, i image, program string, o RedisOptions) *RedisServer {
	tb.Helper()
	s := &RedisServer{login: redisLogin{password: o.Password}}
	p := spec{
		image: i, port: redisPort, data: "/data",
		plain:   !o.Own && o.Persistence == RedisNone && o.Password == "" && !o.TLS && o.ReplicaOf == nil && len(o.Args) == 0,
		schemes: map[string]string{"redis": "6379", "rediss": "6379"},
		url:     s.address,
		adopt:   s.adopt,
		ready:   s.ping,
	}
	p.command = append([]string{program, "--dir", "/data", "--bind", "0.0.0.0", "--protected-mode", "no",
		"--repl-diskless-sync-delay", "0"}, o.Persistence.args()...)
	if o.Password != "" {
		p.command = append(p.command, "--requirepass", o.Password, "--masterauth", o.Password)
	}
	if o.TLS {
		c := newCertificate(tb)
		s.CA, s.secure = c.ca, c.client
		p.files = c.files("/tls")
		p.command = append(p.command, "--port", "0", "--tls-port", "6379", "--tls-auth-clients", "no",
			"--tls-cert-file", "/tls/cert.pem", "--tls-key-file", "/tls/key.pem", "--tls-ca-cert-file", "/tls/ca.pem")
	}
	if o.ReplicaOf != nil {
		p.as = o.ReplicaOf.name + "-replica"
		p.peers = o.ReplicaOf.withPeers(tb)
		p.command = append(p.command, "--replicaof", o.ReplicaOf.name, "6379")
		p.ready = s.synced
	}
	p.command = append(p.command, o.Args...)
	s.Server = start(tb, p)
	return s
}

func (s *RedisServer) address(at string) string {
	u := url.URL{Scheme: "redis", Host: at, Path: "/0"}
	if s.secure != nil {
		u.Scheme = "rediss"
	}
	if s.login.password != "" {
		u.User = url.UserPassword(s.login.user, s.login.password)
	}
	return u.String()
}

// Do sends one command on a connection of its own, and returns its answer: string, int64, []any or nil.
func (s *RedisServer) Do(ctx context.Context, args ...string) (any, error) {
	v, err := s.do1(ctx, s.Addr(), args...)
	if err != nil {
		return nil, fmt.Errorf("live: %s: %s: %w", s.name, args[0], err)
	}
	return v, nil
}

func (s *RedisServer) do1(ctx context.Context, at string, args ...string) (any, error) {
	c, err := dialRESP(ctx, at, s.login, s.secure)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.do(args...)
}

func (s *RedisServer) ping(ctx context.Context, at string) error {
	_, err := s.do1(ctx, at, "PING") // a server that still loads its data answers with an error
	if err != nil && s.adopted {
		err = s.whyNot(ctx, at, err)
	}
	return err
}

// synced is the first answer of a replica: it has everything that the primary has.
func (s *RedisServer) synced(ctx context.Context, at string) error {
	v, err := s.do1(ctx, at, "INFO", "replication")
	if err != nil {
		return err
	}
	if text, _ := v.(string); !strings.Contains(text, "master_link_status:up") {
		return fmt.Errorf("the replica is not in touch with its primary: %s", text)
	}
	return nil
}

// Promote makes a replica a primary. What has not reached it is lost.
func (s *RedisServer) Promote(ctx context.Context) error {
	s.mu.Lock()
	s.ready = s.ping
	s.mu.Unlock()
	_, err := s.Do(ctx, "REPLICAOF", "NO", "ONE")
	return err
}
