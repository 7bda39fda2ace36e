package redislock

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
)

// ours are the parameters beyond the common ones, in every scheme.
var ours = []string{"allow_eviction", "wait_replicas", "tokens", "password_file", "ca", "cert", "key"}

// passed are those of go-redis's own parsers that make sense here. Its retries do not: a
// request is sent once.
var passed = []string{
	"client_name", "protocol", "dial_timeout", "pool_size", "pool_timeout", "min_idle_conns", "max_idle_conns", "max_active_conns",
	"conn_max_idle_time", "conn_max_lifetime",
}

func init() {
	register("redis", openStandalone, "db")
	register("redis+sentinel", openSentinel, "db", "master_name", "addr", "username")
	register("redis+cluster", openCluster, "addr", "max_redirects")
}

// register makes a scheme known, and the same with TLS.
func register(scheme string, connect func(url string, s secrets) (redis.UniversalClient, error), more ...string) {
	for _, name := range []string{scheme, strings.Replace(scheme, "redis", "rediss", 1)} {
		plain, _, _ := strings.Cut(name, "+")
		locker.Register(locker.Scheme{
			Name: name, Params: ours, Passthrough: slices.Concat(passed, more),
			Open: func(ctx context.Context, u *locker.URL) (driver.Driver, error) {
				return openURL(ctx, u, plain, connect)
			},
		})
	}
}

// openURL makes the client and the driver. The client is closed with the driver.
func openURL(ctx context.Context, u *locker.URL, scheme string, connect func(string, secrets) (redis.UniversalClient, error)) (driver.Driver, error) {
	o, err := optionsOf(u)
	if err != nil {
		return nil, err
	}
	s, err := secretsOf(u, scheme == "rediss")
	if err != nil {
		return nil, err
	}
	c := u.Client
	c.Scheme = scheme
	if c.Host == "" {
		return nil, errors.New("want a host: redis://host:6379/0")
	}
	if _, err := strconv.ParseUint(strings.TrimPrefix(c.Path, "/"), 10, 31); err != nil && strings.Trim(c.Path, "/") != "" {
		return nil, errors.New("behind the host only the number of a database can stand: redis://host:6379/0")
	}
	for _, addr := range c.Query()["addr"] { // before the client's parser shows it
		if strings.Contains(addr, "@") {
			return nil, errors.New("parameter addr: want host:port alone: the user and the password stand before the first host, or in password_file")
		}
	}
	client, err := connect(c.String(), s)
	if err != nil {
		return nil, err
	}
	d, err := NewDriver(ctx, client, o)
	if err != nil {
		var late net.Error
		if scheme == "rediss" && errors.As(err, &late) && late.Timeout() {
			err = fmt.Errorf("%w (if the server does not speak TLS at this port, use redis://)", err)
		}
		return nil, errors.Join(err, client.Close())
	}
	d.owned = client.Close
	return d, nil
}

func optionsOf(u *locker.URL) (*Options, error) {
	tokens, terr := u.Choice("tokens", "counter", "clock-floor")
	evict, eerr := u.Bool("allow_eviction", false)
	replicas, rerr := strconv.Atoi(u.Param("wait_replicas", "0"))
	if rerr != nil || replicas < 0 {
		rerr = fmt.Errorf("parameter wait_replicas: %q: want a whole number", u.Param("wait_replicas", ""))
	}
	return &Options{
		Namespace: u.Namespace, TokenBase: u.TokenBase,
		ClockFloor: tokens == "clock-floor", AllowEviction: evict, WaitReplicas: replicas,
	}, errors.Join(terr, eerr, rerr)
}

// secrets are what a URL names and does not contain.
type secrets struct {
	password     string
	roots        *x509.CertPool // nil: the system's
	certificates []tls.Certificate
}

func secretsOf(u *locker.URL, encrypted bool) (s secrets, err error) {
	for _, p := range []string{"ca", "cert", "key"} {
		if u.Param(p, "") != "" && !encrypted {
			return s, fmt.Errorf("parameter %s needs TLS: use the scheme rediss", p)
		}
	}
	if file := u.Param("password_file", ""); file != "" {
		b, err := os.ReadFile(file)
		if err != nil {
			return s, fmt.Errorf("parameter password_file: %w", err)
		}
		s.password = strings.TrimRight(string(b), "\r\n")
		if s.password == "" {
			return s, fmt.Errorf("parameter password_file: %s is empty", file)
		}
	}
	if file := u.Param("ca", ""); file != "" {
		b, err := os.ReadFile(file)
		if err != nil {
			return s, fmt.Errorf("parameter ca: %w", err)
		}
		s.roots = x509.NewCertPool()
		if !s.roots.AppendCertsFromPEM(b) {
			return s, fmt.Errorf("parameter ca: %s has no certificate in PEM", file)
		}
	}
	cert, key := u.Param("cert", ""), u.Param("key", "")
	if cert == "" && key == "" {
		return s, nil
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return s, fmt.Errorf("parameters cert and key: %w", err)
	}
	s.certificates = []tls.Certificate{pair}
	return s, nil
}

// encrypt adds what a URL names to the client's own TLS settings. Nil: without TLS.
func (s secrets) encrypt(c *tls.Config) *tls.Config {
	if c != nil {
		c.MinVersion = tls.VersionTLS12
		c.RootCAs, c.Certificates = s.roots, s.certificates
	}
	return c
}

// eachHost is encrypt where more hosts than the URL's first are dialled: every connection
// verifies its own, and not the one that go-redis puts there.
func (s secrets) eachHost(c *tls.Config) *tls.Config {
	if c != nil {
		c.ServerName = ""
	}
	return s.encrypt(c)
}

// or returns the file's password, or the URL's if there is no file.
func (s secrets) or(password string) string {
	if s.password != "" {
		return s.password
	}
	return password
}

// quiet turns off a handshake that only Redis's own cloud answers: it costs each connection
// a round trip.
func quiet() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// dialOnce and dialTimeout make a server that cannot be reached known soon: whoever waits
// tries again, at his own pace.
const (
	dialOnce    = 1
	dialTimeout = 2 * time.Second
)

// onePool keeps go-redis from a second pool for pipelines, whose connections would be made
// in the middle of the first renewal.
const onePool = -1

func openStandalone(url string, s secrets) (redis.UniversalClient, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	o.Password, o.TLSConfig = s.or(o.Password), s.encrypt(o.TLSConfig)
	o.MaintNotificationsConfig, o.DisableIdentity, o.PipelinePoolSize = quiet(), true, onePool
	o.DialerRetries, o.DialTimeout = dialOnce, cmp.Or(o.DialTimeout, dialTimeout)
	return redis.NewClient(o), nil
}

// openSentinel: the user and password of the URL are the Sentinels', username and
// password_file the server's.
func openSentinel(url string, s secrets) (redis.UniversalClient, error) {
	o, err := redis.ParseFailoverURL(url)
	if err != nil {
		return nil, err
	}
	if o.MasterName == "" {
		return nil, errors.New("want ?master_name=…, as the Sentinels call the server")
	}
	o.Password, o.TLSConfig = s.or(o.Password), s.eachHost(o.TLSConfig)
	o.DisableIdentity, o.PipelinePoolSize = true, onePool
	o.DialerRetries, o.DialTimeout = dialOnce, cmp.Or(o.DialTimeout, dialTimeout)
	return redis.NewFailoverClient(o), nil
}

func openCluster(url string, s secrets) (redis.UniversalClient, error) {
	o, err := redis.ParseClusterURL(url)
	if err != nil {
		return nil, err
	}
	o.Password, o.TLSConfig = s.or(o.Password), s.eachHost(o.TLSConfig)
	o.MaintNotificationsConfig, o.DisableIdentity, o.PipelinePoolSize = quiet(), true, onePool
	o.DialerRetries, o.DialTimeout = dialOnce, cmp.Or(o.DialTimeout, dialTimeout)
	o.ContextTimeoutEnabled = true
	o.ReadTimeout, o.WriteTimeout = callLimit, callLimit
	return redis.NewClusterClient(o), nil
}
