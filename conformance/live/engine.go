package live

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
)

// dockerAnswers is how long Docker may take to say that it is there.
const dockerAnswers = 10 * time.Second

// engine is the connection to Docker.
type engine struct {
	provider *testcontainers.DockerProvider
	docker   client.APIClient
	host     string     // where published ports are reached
	bind     netip.Addr // where they are published
}

// docker connects once per process.
var docker = sync.OnceValues(func() (*engine, error) { return inTime(2*dockerAnswers, newEngine) })

// inTime bounds a connect that has no bound of its own: a Docker that accepts and never answers would keep every test.
func inTime(most time.Duration, connect func() (*engine, error)) (*engine, error) {
	type answer struct {
		e   *engine
		err error
	}
	done := make(chan answer, 1)
	go func() {
		e, err := connect()
		done <- answer{e, err}
	}()
	select {
	case a := <-done:
		return a.e, a.err
	case <-time.After(most):
		return nil, fmt.Errorf("restart Docker: it accepts connections and does not answer within %v", most)
	}
}

func newEngine() (*engine, error) {
	// Our own reaper does its work, without an image that must be pulled first.
	if _, set := os.LookupEnv(ryukVariable); !set {
		os.Setenv(ryukVariable, "true")
	}
	log.SetDefault(log.NewNoopLogger()) // it tells at length which Docker it found
	p, err := testcontainers.NewDockerProvider(testcontainers.WithDefaultBridgeNetwork(testcontainers.Bridge))
	if err != nil {
		reason, _, _ := strings.Cut(err.Error(), "\n") // the rest is about every other kind of Docker that it looked for
		return nil, fmt.Errorf("start Docker, it does not answer: %s", reason)
	}
	ctx, cancel := context.WithTimeout(context.Background(), dockerAnswers)
	defer cancel()
	if _, err := p.Client().Ping(ctx, client.PingOptions{}); err != nil {
		return nil, fmt.Errorf("start Docker, it does not answer: %w", err)
	}
	e := &engine{provider: p, docker: p.Client()}
	e.host, e.bind = publish(e.docker.DaemonHost(), os.Getenv(hostVariable))
	return e, nil
}

const (
	ryukVariable = "TESTCONTAINERS_RYUK_DISABLED"
	hostVariable = "TESTCONTAINERS_HOST_OVERRIDE"
)

// publish returns where the ports of containers are reached, and the address to publish them on: the loopback interface,
// unless Docker is elsewhere. testcontainers guesses the host by whether this is a container; that is wrong where Docker
// itself runs in the same container, and costs a minute there.
func publish(daemon, override string) (host string, bind netip.Addr) {
	loopback, all := netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv4Unspecified()
	host = override
	if u, err := url.Parse(daemon); host == "" && err == nil && (u.Scheme == "tcp" || u.Scheme == "http" || u.Scheme == "https") {
		host = u.Hostname()
	}
	switch host {
	case "", "localhost", loopback.String():
		return loopback.String(), loopback
	}
	return host, all
}
