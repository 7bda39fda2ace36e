package live

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/moby/moby/client"
)

// reaperVariable in the environment makes the test binary the reaper of the run that it names.
const reaperVariable = "LOCKER_LIVE_REAPER"

const (
	// reaperSettles is for how long nothing of the run may appear before the reaper ends: Docker may still be making
	// what the killed test binary has asked for.
	reaperSettles = 3 * time.Second
	// reaperGivesUp is for how long the reaper tries, also where Docker is away. What is left then is the next run's to sweep.
	reaperGivesUp = 2 * time.Minute
)

// What the run tells its reaper, one a line.
const (
	tellsDocker = "docker " // and where it is
	tellsEnd    = "end"     // an orderly one: nothing is under way
)

// reaper is another process of the test binary that removes everything of this run when the pipe to it closes: also if
// this process panics, times out or is killed, where no deferred function and no t.Cleanup runs.
type reaper struct {
	run   string
	cmd   *exec.Cmd
	pipe  io.WriteCloser
	out   *strings.Builder
	host  string   // of the Docker that things are started in; empty: in none
	claim *os.File // open for as long as this process lives; nil: there is none
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
	return &reaper{run: run, cmd: cmd, pipe: pipe, out: out}, nil
}

// begin tells in which Docker things will be started, before the first of them is.
func (r *reaper) begin(host string) error {
	dir, err := claims()
	if err == nil {
		r.claim, err = newClaim(dir, r.run, host)
	}
	if err != nil && !errors.Is(err, errors.ErrUnsupported) { // no reason to do without servers
		fmt.Fprintln(os.Stderr, "live: no other run could sweep what this one leaves:", err)
	}
	if _, err := io.WriteString(r.pipe, tellsDocker+host+"\n"); err != nil {
		return fmt.Errorf("run the tests again, their reaper has ended: %w", err)
	}
	r.host = host
	return nil
}

// finish lets the reaper remove what is left, and waits for it. That something was left is no error: a test may have
// failed in the middle.
func (r *reaper) finish() error {
	_, _ = io.WriteString(r.pipe, tellsEnd+"\n") // it may have died, as Wait says
	r.pipe.Close()
	err := r.cmd.Wait()
	if text := r.out.String(); err == nil && text != "" {
		fmt.Fprint(os.Stderr, "live: reaper: ", text)
	}
	if err == nil {
		return nil
	}
	err = fmt.Errorf("reaper: %w: %s", err, r.out)
	if r.host != "" && !r.cmd.ProcessState.Exited() { // it was killed, and could not do its work
		err = errors.Join(err, reapRun(r.host, r.run, 0))
	}
	return err
}

// reapIfReaper does the work of a reaper and ends the process, if this process is one.
func reapIfReaper() {
	run := os.Getenv(reaperVariable)
	if run == "" {
		return
	}
	signal.Ignore(syscall.SIGPIPE) // it has its work to do also where nobody is left to hear what it says
	if err := follow(run, os.Stdin, os.Stdout); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// follow listens to a run until that ends, and removes what it has left. What others have left it only mentions if it cannot.
func follow(run string, from io.Reader, out io.Writer) error {
	host, settles := "", reaperSettles
	for lines := bufio.NewScanner(from); lines.Scan(); {
		if at, ok := strings.CutPrefix(lines.Text(), tellsDocker); ok {
			host = at
			if err := sweepAt(host); err != nil {
				fmt.Fprintln(out, "what other runs have left:", err)
			}
		}
		if lines.Text() == tellsEnd {
			settles = 0
		}
	}
	if host == "" { // and so nothing was started
		return nil
	}
	return reapRun(host, run, settles)
}

// sweepAt is sweep in the Docker of a host.
func sweepAt(host string) error {
	docker, err := dial(host)
	if err != nil {
		return err
	}
	defer docker.Close()
	dir, err := claims()
	if err != nil {
		return err
	}
	return sweep(docker, dir, host)
}

// reapRun removes everything of a run, and then its claim.
func reapRun(host, run string, settles time.Duration) error {
	docker, err := dial(host)
	if err != nil {
		return err
	}
	defer docker.Close()
	ctx, cancel := context.WithTimeout(context.Background(), reaperGivesUp)
	defer cancel()
	if err := reap(ctx, docker, run, settles); err != nil {
		return err
	}
	if dir, err := claims(); err == nil {
		dropClaim(dir, run)
	}
	return nil
}

// reap removes everything of a run until nothing has been found for a while. It goes on trying where Docker is away.
func reap(ctx context.Context, docker client.APIClient, run string, settles time.Duration) error {
	empty := time.Now()
	for {
		found, err := removeAll(ctx, docker, run)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("something of run %s may be left, look for the label %s: %w", run, runLabel, errors.Join(err, ctx.Err()))
		case found > 0 || err != nil:
			empty = time.Now()
		case time.Since(empty) >= settles:
			return nil
		}
		<-time.After(100 * time.Millisecond)
	}
}

// removeAll removes what carries the label of a run, and the volumes without a name of its containers. It returns how much
// there was.
func removeAll(ctx context.Context, docker client.APIClient, run string) (int, error) {
	found := 0
	var errs []error
	ours := client.Filters{}.Add("label", runLabel+"="+run)
	containers, err := docker.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: ours})
	errs = append(errs, err)
	for _, c := range containers.Items {
		found++
		_, err := docker.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		errs = append(errs, err)
	}
	networks, err := docker.NetworkList(ctx, client.NetworkListOptions{Filters: ours})
	errs = append(errs, err)
	for _, n := range networks.Items {
		found++
		_, err := docker.NetworkRemove(ctx, n.ID, client.NetworkRemoveOptions{})
		errs = append(errs, err)
	}
	volumes, err := docker.VolumeList(ctx, client.VolumeListOptions{Filters: ours})
	errs = append(errs, err)
	for _, v := range volumes.Items {
		found++
		_, err := docker.VolumeRemove(ctx, v.Name, client.VolumeRemoveOptions{Force: true})
		errs = append(errs, err)
	}
	return found, errors.Join(errs...)
}
