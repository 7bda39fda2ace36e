package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/moby/moby/client"
)

// reaperVariable in the environment makes the test binary the reaper of the run that it names.
const reaperVariable = "LOCKER_LIVE_REAPER"

const (
	// reaperSettles is for how long nothing of the run may appear before the reaper ends: Docker may still be making
	// what the killed test binary has asked for.
	reaperSettles = 3 * time.Second
	reaperGivesUp = 2 * time.Minute
)

// reaper is another process of the test binary that removes everything of this run when the pipe to it closes: also if
// this process panics, times out or is killed, where no deferred function and no t.Cleanup runs.
type reaper struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
	out  *strings.Builder
}

func startReaper(run string) (*reaper, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), reaperVariable+"="+run)
	cmd.SysProcAttr = detached() // an interrupt at the terminal must not reach it
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// Not our own stdout or stderr: `go test` waits until nobody holds these any more.
	out := &strings.Builder{}
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &reaper{cmd: cmd, pipe: pipe, out: out}, nil
}

// finish lets the reaper remove what is left, and waits for it. That something was left is no error: a test may have
// failed in the middle.
func (r *reaper) finish() error {
	_, _ = io.WriteString(r.pipe, "end\n") // it may have died, as Wait says
	r.pipe.Close()
	if err := r.cmd.Wait(); err != nil {
		return fmt.Errorf("reaper: %w: %s", err, r.out)
	}
	return nil
}

// reapIfReaper does the work of a reaper and ends the process, if this process is one.
func reapIfReaper() {
	run := os.Getenv(reaperVariable)
	if run == "" {
		return
	}
	word, _ := io.ReadAll(os.Stdin)
	settles := reaperSettles
	if len(word) > 0 { // an orderly end: nothing is under way
		settles = 0
	}
	if err := reap(run, settles); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// reap removes everything of a run until nothing has been found for a while.
func reap(run string, settles time.Duration) error {
	e, err := docker()
	if err != nil {
		return nil // and so nothing was started
	}
	ctx, cancel := context.WithTimeout(context.Background(), reaperGivesUp)
	defer cancel()
	empty := time.Now()
	for {
		found, err := e.removeAll(ctx, run)
		if ctx.Err() != nil {
			return fmt.Errorf("something of run %s is left: %w", run, errors.Join(err, ctx.Err()))
		}
		if found > 0 || err != nil {
			empty = time.Now()
		} else if time.Since(empty) >= settles {
			return nil
		}
		<-time.After(100 * time.Millisecond)
	}
}

// removeAll removes what carries the label of a run, and returns how much there was.
func (e *engine) removeAll(ctx context.Context, run string) (int, error) {
	found := 0
	var errs []error
	ours := client.Filters{}.Add("label", runLabel+"="+run)
	containers, err := e.docker.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: ours})
	errs = append(errs, err)
	for _, c := range containers.Items {
		found++
		_, err := e.docker.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		errs = append(errs, err)
	}
	networks, err := e.docker.NetworkList(ctx, client.NetworkListOptions{Filters: ours})
	errs = append(errs, err)
	for _, n := range networks.Items {
		found++
		_, err := e.docker.NetworkRemove(ctx, n.ID, client.NetworkRemoveOptions{})
		errs = append(errs, err)
	}
	volumes, err := e.docker.VolumeList(ctx, client.VolumeListOptions{Filters: ours})
	errs = append(errs, err)
	for _, v := range volumes.Items {
		found++
		_, err := e.docker.VolumeRemove(ctx, v.Name, client.VolumeRemoveOptions{Force: true})
		errs = append(errs, err)
	}
	return found, errors.Join(errs...)
}
