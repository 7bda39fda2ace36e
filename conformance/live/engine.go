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

// docker connects once per process, and tells the reaper.
var docker = sync.OnceValues(func() (*engine, error) {
	e, err := inTime(2*dockerAnswers, newEngine)
	if err == nil && mine != nil {
		err = mine.begin(e.docker.DaemonHost())
	}
	return e, err
})

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
	// testcontainers takes any other Docker that it finds where this one is dead.
	if host := os.Getenv(client.EnvOverrideHost); host != "" {
		if err := answersAt(host); err != nil {
			return nil, fmt.Errorf("%s=%s: %w; or unset it", client.EnvOverrideHost, host, noDocker(err))
		}
	}
	p, err := testcontainers.NewDockerProvider(testcontainers.WithDefaultBridgeNetwork(testcontainers.Bridge))
	if err == nil {
		err = ping(p.Client())
	}
	if err != nil {
		return nil, noDocker(err)
	}
	e := &engine{provider: p, docker: p.Client()}
	e.host, e.bind = publish(e.docker.DaemonHost(), os.Getenv(hostVariable))
	return e, nil
}

// dial returns a client of one Docker. It connects when it is used.
func dial(host string) (*client.Client, error) {
	return client.New(client.FromEnv, client.WithHost(host))
}

func answersAt(host string) error {
	docker, err := dial(host)
	if err != nil {
		return err
	}
	defer docker.Close()
	return ping(docker)
}

func ping(docker client.APIClient) error {
	ctx, cancel := context.WithTimeout(context.Background(), dockerAnswers)
	defer cancel()
	_, err := docker.Ping(ctx, client.PingOptions{})
	return err
}

// noDocker says what to do about a Docker that cannot be used. Of an error with several lines it takes one: the others are about
// every other kind of Docker that testcontainers has looked for.
func noDocker(err error) error {
	reason, _, _ := strings.Cut(err.Error(), "\n")
	for line := range strings.Lines(err.Error()) {
		if strings.Contains(line, "permission denied") { // the client's own words, which keep no error of the system
			return fmt.Errorf("this user may not use Docker (be root, or in the group docker): %s", strings.TrimSpace(line))
		}
	}
	return fmt.Errorf("start Docker, it does not answer: %s", reason)
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
