package live

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// endpoint returns the server that the environment names, and the variable in which it does.
func endpoint(server string) (url, variable string) {
	variable = "LOCKER_TEST_" + strings.ToUpper(server) + "_URL"
	return os.Getenv(variable), variable
}

// fromEnvironment returns the server that the environment names, if it suits.
func fromEnvironment(tb testing.TB, p spec) *Server {
	tb.Helper()
	raw, variable := endpoint(p.server)
	if raw == "" || !p.plain {
		return nil
	}
	s := &Server{name: variable, url: func(string) string { return raw }, ready: p.ready}
	u, err := url.Parse(raw)
	if err != nil {
		tb.Fatalf("live: %s is not a URL", variable) // the error would show its password
	}
	port, known := p.schemes[u.Scheme]
	if !known {
		tb.Fatalf("live: %s: the scheme %q is not one that tests can use, which are: %s",
			variable, u.Scheme, strings.Join(slices.Sorted(maps.Keys(p.schemes)), ", "))
	}
	if port != "" {
		s.address, err = withPort(u, port)
	}
	if err == nil && p.adopt != nil {
		s.address, err = p.adopt(u, s.address)
	}
	if err != nil {
		tb.Fatalf("live: %s: %v", variable, err)
	}
	return s
}

// withPort returns the host and port of a URL. What the URL leaves out is what clients take for it.
func withPort(u *url.URL, port string) (string, error) {
	if u.Hostname() == "" {
		return "", fmt.Errorf("the host is missing: write %s://host:%s", u.Scheme, port)
	}
	port = cmp.Or(u.Port(), port)
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("the port is %s, and not one from 1 to 65535", port)
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}

// refusal is an error that waiting does not mend, and what to do about it.
type refusal struct {
	err  error
	todo string
}

func (r refusal) Error() string { return r.err.Error() + ": " + r.todo }
func (r refusal) Unwrap() error { return r.err }

// refused makes a refusal of what means one in any protocol; all else may be a server that is still starting.
func refused(err error) error {
	var (
		known       refusal
		unknown     *net.DNSError
		plain       tls.RecordHeaderError
		certificate *tls.CertificateVerificationError
		remote      *net.OpError
	)
	switch {
	case err == nil, errors.As(err, &known):
		return err
	case errors.As(err, &unknown) && unknown.IsNotFound:
		return refusal{err, "correct the name of the host"}
	case errors.As(err, &plain), errors.Is(err, http.ErrSchemeMismatch):
		return refusal{err, useNoTLS}
	case errors.As(err, &certificate):
		return refusal{err, "give the certificate's authority, or use the name that is in it"}
	case errors.As(err, &remote) && remote.Op == "remote error": // an alert of TLS
		return refusal{err, "give the client's certificate that the server asks for"}
	}
	return err
}

// refusedHTTP makes an error of an answer's status: a refusal, unless the server may answer another time.
func refusedHTTP(status int, err error, todo map[int]string) error {
	switch {
	case strings.Contains(err.Error(), "HTTP request to an HTTPS server"): // as servers written in Go answer
		return refusal{err, "the server speaks TLS at this port, and the URL does not"}
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooManyRequests:
		return err
	}
	return refusal{err, cmp.Or(todo[status], "is this the right server?")}
}
