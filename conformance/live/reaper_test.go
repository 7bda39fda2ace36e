package live

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"
)

const (
	// victimVariable in the environment makes TestVictim a victim, and says how it ends.
	victimVariable = "LOCKER_LIVE_VICTIM"
	// victimImage makes it one with a container of this image that does not run, which takes less time than servers.
	victimImage = "LOCKER_LIVE_VICTIM_IMAGE"
)

// TestVictim is run by other tests, in a process of its own. It has servers of every kind of leftover, and ends badly.
func TestVictim(t *testing.T) {
	end := os.Getenv(victimVariable)
	if end == "" {
		return
	}
	fmt.Println("run", run)
	fmt.Println("reaper", mine.cmd.Process.Pid)
	if image := os.Getenv(victimImage); image != "" {
		e, err := docker()
		if err != nil {
			t.Fatal(err)
		}
		newPeers(t)
		s, err := unstarted(t.Context(), e, "locker-live-"+run+"-left", image)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("container", s.box.GetContainerID())
		badEnd(t, end)
	}
	primary := Redis(t, RedisOptions{Persistence: RedisAlways})
	Redis(t, RedisOptions{ReplicaOf: primary}) // and so a network
	fmt.Println("address", primary.Addr())
	badEnd(t, end)
}

func badEnd(t *testing.T, end string) {
	switch end {
	case "panic":
		go panic("as it was told")
	case "exit":
		os.Exit(3)
	case "fail":
		t.Fatal("as it was told")
	case "bereft":
		if err := mine.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		t.Fatal("as it was told, without a reaper")
	case "busy":
		for {
			Redis(t, RedisOptions{})
		}
	}
	// "hang", until it is killed or its time is over. A signal that whoever started the tests has turned off, as nohup does
	// with SIGHUP, would not kill it.
	killed := make(chan os.Signal, 1)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGHUP} {
		if signal.Ignored(s) {
			signal.Notify(killed, s)
		}
	}
	<-killed
	os.Exit(3)
}

// victim is a test binary that runs TestVictim.
type victim struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
	out   []string
	run   string
	late  atomic.Bool // it had to be killed, since it did not end
}

// victimPatience is for servers that start on a loaded machine.
const victimPatience = 3 * time.Minute

func startVictim(t *testing.T, end string, args ...string) *victim {
	t.Helper()
	return newVictim(t, end, args...).start(t)
}

// newVictim is a victim that has not started.
func newVictim(t *testing.T, end string, args ...string) *victim {
	t.Helper()
	if _, err := docker(); err != nil {
		missing(t, "redis", false, err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	v := &victim{cmd: exec.Command(self, append([]string{"-test.run=^TestVictim$", "-test.v"}, args...)...)}
	v.cmd.Env = append(os.Environ(), victimVariable+"="+end, "LOCKER_TEST_REDIS_URL=") // a server of the environment leaves nothing
	return v
}

func (v *victim) start(t *testing.T) *victim {
	t.Helper()
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	v.cmd.Stderr = v.cmd.Stdout
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	impatient := time.AfterFunc(victimPatience, func() {
		v.late.Store(true)
		_ = v.cmd.Process.Kill()
	})
	t.Cleanup(func() {
		impatient.Stop()
		_ = v.cmd.Process.Kill() // it has gone, if all is well
		_ = v.cmd.Wait()
	})
	v.lines = bufio.NewScanner(out)
	v.run = v.says(t, "run ")
	return v
}

// says waits for a line.
func (v *victim) says(t *testing.T, start string) string {
	t.Helper()
	for v.lines.Scan() {
		v.out = append(v.out, v.lines.Text())
		if rest, ok := strings.CutPrefix(v.lines.Text(), start); ok {
			return rest
		}
	}
	t.Fatalf("the victim does not say %q: %s", start, strings.Join(v.out, "\n"))
	return ""
}

// ends waits for the victim's end.
func (v *victim) ends(t *testing.T) {
	t.Helper()
	for v.lines.Scan() {
		v.out = append(v.out, v.lines.Text())
	}
	var exit *exec.ExitError
	if err := v.cmd.Wait(); !errors.As(err, &exit) || v.late.Load() {
		t.Errorf("the victim ends with %v, want a failure: %s", err, strings.Join(v.out, "\n"))
	}
}

// left counts what a run has left in Docker.
func leftBy(ctx context.Context, t *testing.T, run string) int {
	t.Helper()
	e, err := docker()
	if err != nil {
		t.Fatal(err)
	}
	ours := client.Filters{}.Add("label", runLabel+"="+run)
	containers, noContainers := e.docker.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: ours})
	networks, noNetworks := e.docker.NetworkList(ctx, client.NetworkListOptions{Filters: ours})
	volumes, noVolumes := e.docker.VolumeList(ctx, client.VolumeListOptions{Filters: ours})
	if err := errors.Join(noContainers, noNetworks, noVolumes); err != nil {
		t.Fatal(err)
	}
	return len(containers.Items) + len(networks.Items) + len(volumes.Items)
}

func kill(t *testing.T, v *victim) {
	t.Helper()
	if err := v.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
}

// However a test binary ends, nothing of its run is left, soon after.
func TestReaper(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, end string
		args      []string
		then      func(*testing.T, *victim)
		orderly   bool // nothing is left when the process has ended, and not only soon after
	}{
		{name: "failed", end: "fail", orderly: true},
		{name: "panicked", end: "panic"},
		{name: "exited", end: "exit"},
		{name: "timed out", end: "hang", args: []string{"-test.timeout=30s"}},
		{name: "killed", end: "hang", then: kill},
		{name: "killed while it starts a server", end: "busy", then: kill},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v := startVictim(t, c.end, c.args...)
			v.says(t, "address ")
			if got, atLeast := leftBy(t.Context(), t, v.run), 2+1+2; c.then != nil && got < atLeast {
				t.Errorf("before its end the run has %d things, want at least %d", got, atLeast)
			}
			if c.then != nil {
				c.then(t, v)
			}
			v.ends(t)
			if got := leftBy(t.Context(), t, v.run); c.orderly && got != 0 {
				t.Errorf("after an orderly end %d things are left", got)
			}
			eventually(t, func(ctx context.Context) bool { return leftBy(ctx, t, v.run) == 0 })
			if c.end == "busy" { // Docker may still have been making something, which is taken away when it is there
				<-time.After(2 * reaperSettles)
				eventually(t, func(ctx context.Context) bool { return leftBy(ctx, t, v.run) == 0 })
			}
		})
	}
}

// The end of one run takes nothing from another that goes on beside it.
func TestRunsSideBySide(t *testing.T) {
	t.Parallel()
	stays, goes := startVictim(t, "hang"), startVictim(t, "hang")
	if stays.run == goes.run {
		t.Fatalf("both runs are called %s", goes.run)
	}
	address := stays.says(t, "address ")
	goes.says(t, "address ")
	before := leftBy(t.Context(), t, stays.run)
	kill(t, goes)
	goes.ends(t)
	eventually(t, func(ctx context.Context) bool { return leftBy(ctx, t, goes.run) == 0 })

	if got := leftBy(t.Context(), t, stays.run); got != before {
		t.Errorf("the other run has %d things, want %d as before", got, before)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := dialRESP(ctx, address, redisLogin{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := c.do("PING"); err != nil || got != "PONG" {
		t.Errorf("the other run's server: got %v, %v, want PONG", got, err)
	}
	kill(t, stays)
	stays.ends(t)
	eventually(t, func(ctx context.Context) bool { return leftBy(ctx, t, stays.run) == 0 })
}
