package live

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/client"
)

// image is what a server's containers are made of. Both kinds hold the same programs, and are started by the same
// command line.
type image struct {
	server   string // as images/build calls it
	official string // from its makers, with its version; empty: there is none
}

const (
	// registryAnswers is how long a registry may take to say that it has an image.
	registryAnswers = 5 * time.Second
	// pulled is how long a pull may take.
	pulled = 3 * time.Minute
)

// verdict is where an image comes from, decided once per process.
type verdict struct {
	once sync.Once
	name string
	err  error
}

var verdicts struct {
	mu sync.Mutex
	of map[image]*verdict
}

// find returns the image to use, and gets it if need be. What Docker has already comes first, and the official image
// before the local one; then the registry is asked, and last the local image is built.
func (e *engine) find(i image, patience time.Duration) (string, error) {
	verdicts.mu.Lock()
	if verdicts.of == nil {
		verdicts.of = map[image]*verdict{}
	}
	v := verdicts.of[i]
	if v == nil {
		v = &verdict{}
		verdicts.of[i] = v
	}
	verdicts.mu.Unlock()
	v.once.Do(func() { v.name, v.err = e.get(i, patience) })
	return v.name, v.err
}

func (e *engine) get(i image, patience time.Duration) (string, error) {
	ctx := context.Background()
	if i.official != "" && e.has(ctx, i.official) {
		return i.official, nil
	}
	local, noName := recipe(ctx, i.server)
	if noName == nil && e.has(ctx, local) {
		return local, nil
	}
	noPull := e.pull(ctx, i.official)
	if noPull == nil {
		return i.official, nil
	}
	noBuild := noName
	if noBuild == nil {
		noBuild = build(ctx, i.server, patience)
	}
	if noBuild != nil {
		return "", fmt.Errorf("%w, and no image of our own: %w", noPull, noBuild)
	}
	return local, nil
}

func (e *engine) has(ctx context.Context, name string) bool {
	_, err := e.docker.ImageInspect(ctx, name)
	return err == nil
}

// pull gets an image, if its registry answers at once.
func (e *engine) pull(ctx context.Context, name string) error {
	if name == "" {
		return errors.New("there is no official image")
	}
	asked, cancel := context.WithTimeout(ctx, registryAnswers)
	defer cancel()
	if _, err := e.docker.DistributionInspect(asked, name, client.DistributionInspectOptions{}); err != nil {
		return fmt.Errorf("cannot pull %s: %w", name, err)
	}
	ctx, cancel = context.WithTimeout(ctx, pulled)
	defer cancel()
	r, err := e.docker.ImagePull(ctx, name, client.ImagePullOptions{})
	if err == nil {
		err = r.Wait(ctx)
	}
	if err != nil {
		return fmt.Errorf("cannot pull %s: %w", name, err)
	}
	return nil
}

// builder is the script that makes images. It stands beside this file; with -trimpath nobody knows where that is.
func builder() (string, error) {
	_, file, _, _ := runtime.Caller(0)
	script := filepath.Join(filepath.Dir(file), "images", "build")
	if _, err := os.Stat(script); err != nil {
		return "", fmt.Errorf("images/build is not at hand: %w", err)
	}
	return script, nil
}

// recipe returns the name of the image that images/build makes for a server.
func recipe(ctx context.Context, server string) (string, error) {
	script, err := builder()
	if err != nil {
		return "", err
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, script, "-n", server)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s -n %s: %w: %s", script, server, err, bytes.TrimSpace(said.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

// build makes an image.
func build(ctx context.Context, server string, patience time.Duration) error {
	script, err := builder()
	if err != nil {
		return err
	}
	return runBuild(ctx, script, server, patience)
}

// runBuild runs the script. It goes on if this process cannot wait, or ends: the next run finds what it has made. Several that
// run at once do the work once.
func runBuild(ctx context.Context, script, server string, patience time.Duration) error {
	log, err := os.CreateTemp("", "locker-live-build-")
	if err != nil {
		return err
	}
	defer log.Close()
	os.Remove(log.Name()) // the open file is enough for both, and nothing is left behind

	cmd := exec.Command(script, server)
	cmd.Stdout, cmd.Stderr = log, log // not our own: `go test` would wait for the script to let go of them
	cmd.SysProcAttr = detached()
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case err = <-ended:
		if err == nil {
			return nil
		}
		return fmt.Errorf("images/build %s: %w\n%s", server, err, tail(log))
	case <-ctx.Done():
		return fmt.Errorf("it is still being built after %v: run this again later, or watch with %s %s", patience, script, server)
	}
}

// tail returns the end of a file.
func tail(f *os.File) string {
	const most = 4096
	size, err := f.Seek(0, 2)
	if err != nil {
		return err.Error()
	}
	b := make([]byte, min(size, most))
	if _, err := f.ReadAt(b, size-int64(len(b))); err != nil {
		return err.Error()
	}
	return string(b)
}
