package live

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// adopt takes a server of the environment.
func (s *RedisServer) adopt(u *url.URL, at string) (string, error) {
	q := u.Query()
	s.adopted = true
	s.login.user, s.login.database = u.User.Username(), strings.Trim(u.Path, "/")
	s.login.password, _ = u.User.Password()
	if d := s.login.database; d != "" {
		if _, err := strconv.ParseUint(d, 10, 31); err != nil {
			return "", fmt.Errorf("the database is %q, and not a number", d)
		}
	}
	if file := q.Get("password_file"); file != "" {
		password, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		s.login.password = strings.TrimRight(string(password), "\r\n")
	}
	if u.Scheme == "rediss" {
		var err error
		s.secure, err = clientTLS(u.Hostname(), q)
		return at, err
	}
	return at, nil
}

// clientTLS is what the parameters ca, cert and key of a URL say, each the name of a file.
func clientTLS(host string, q url.Values) (*tls.Config, error) {
	c := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if file := q.Get("ca"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate in PEM", file)
		}
	}
	if q.Has("cert") || q.Has("key") {
		pair, err := tls.LoadX509KeyPair(q.Get("cert"), q.Get("key"))
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

const (
	useTLS    = "the server speaks TLS at this port, use the scheme rediss"
	useNoTLS  = "the server does not speak TLS at this port, use the scheme without it"
	schemeAsk = 2 * time.Second
)

// whyNot makes a refusal of an error that waiting does not mend.
func (s *RedisServer) whyNot(ctx context.Context, at string, err error) error {
	var (
		final  refusal
		answer replyError
		dial   *net.OpError
	)
	if err := redisRefused(err); errors.As(err, &final) {
		return err
	}
	if errors.As(err, &answer) || errors.As(err, &dial) && dial.Op == "dial" {
		return err // it starts
	}
	if todo := s.otherScheme(ctx, at); todo != "" {
		return refusal{err, todo}
	}
	return err
}

// otherScheme says so if the server answers to the other scheme, which is asked without any secret: with TLS, it ends a
// connection without in silence, and without TLS, it waits for more than a client's first words.
func (s *RedisServer) otherScheme(ctx context.Context, at string) (todo string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), schemeAsk)
	defer cancel()
	if s.secure == nil {
		d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // as above
		conn, err := d.DialContext(ctx, "tcp", at)
		if err != nil {
			return ""
		}
		conn.Close()
		return useTLS
	}
	c, err := dialRESP(ctx, at, redisLogin{}, nil)
	if err != nil {
		return ""
	}
	defer c.Close()
	var answer replyError
	if _, err := c.do("PING"); err == nil || errors.As(err, &answer) {
		return useNoTLS
	}
	return ""
}

// redisRefused makes a refusal of an answer that will not change.
func redisRefused(err error) error {
	var (
		answer replyError
		other  *notRESPError
	)
	switch {
	case errors.As(err, &answer) && strings.Contains(string(answer), "DB index"):
		return refusal{err, "correct the number of the database"}
	case errors.As(err, &answer) && answer.denies():
		return refusal{err, "correct the user and the password of the URL, or the server's rights"}
	case errors.As(err, &other) && other.tls():
		return refusal{err, useTLS}
	case errors.As(err, &other):
		return refusal{err, "this is no Redis, correct the port"}
	}
	return refused(err)
}
