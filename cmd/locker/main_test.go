//go:build unix

package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// binary is the command under test, built once. The tests see only what a user sees.
var binary string

func TestMain(m *testing.M) {
	// Under nohup, or in the background of a script, a child would inherit "ignored". What
	// is caught here has its default effect there.
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "locker-bin")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // other users run it too
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binary = filepath.Join(dir, "locker")
	if out, err := build(binary, raceEnabled).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

func build(to string, race bool) *exec.Cmd {
	args := []string{"build", "-o", to}
	env := append(os.Environ(), "CGO_ENABLED=0")
	if race {
		args = append(args, "-race")
		env = os.Environ()
	}
	cmd := exec.Command("go", append(args, ".")...)
	cmd.Env = env
	return cmd
}

const (
	// patience is how long anything may take on a busy machine.
	patience = 20 * time.Second
	// look is how often eventually asks.
	look = 5 * time.Millisecond
)

// eventually waits until something is so, and fails the test if it never is.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	if !within(patience, so) {
		t.Fatalf("after %v still not: %s", patience, what)
	}
}

func within(d time.Duration, so func() bool) bool {
	deadline := time.After(d)
	tick := time.NewTicker(look)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-deadline:
			return so()
		}
	}
	return true
}

// always checks for a while that something stays so.
func always(t *testing.T, d time.Duration, what string, so func() bool) {
	t.Helper()
	if within(d, func() bool { return !so() }) {
		t.Fatalf("no longer: %s", what)
	}
}

// host is a fresh machine: a user without any files or settings.
type host struct {
	t    *testing.T
	home string
	env  []string
	as   *syscall.Credential
}

func newHost(t *testing.T) *host {
	t.Helper()
	home := t.TempDir()
	return &host{t: t, home: home, env: []string{
		"HOME=" + home, "PATH=" + os.Getenv("PATH"), "LC_ALL=C",
		"GORACE=atexit_sleep_ms=0", // else every process of a race build ends a second late
	}}
}

// file is a path in the user's home.
func (h *host) file(name string) string { return filepath.Join(h.home, name) }

func (h *host) read(name string) string {
	b, err := os.ReadFile(h.file(name))
	if err != nil {
		return ""
	}
	return string(b)
}

func (h *host) exists(name string) bool {
	_, err := os.Lstat(h.file(name))
	return err == nil
}

// pid reads a process id that a command has written, once it has.
func (h *host) pid(name string) int {
	h.t.Helper()
	var pid int
	eventually(h.t, name+" holds a process id", func() bool {
		n, err := strconv.Atoi(strings.TrimSpace(h.read(name)))
		pid = n
		return err == nil && strings.HasSuffix(h.read(name), "\n")
	})
	return pid
}

// process is one started program.
type process struct {
	*exec.Cmd
	t              *testing.T
	stdout, stderr *output
	done           chan struct{}
}

// output is a buffer that can be read while it is written.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// command prepares a program in the home directory.
func (h *host) command(name string, args ...string) *process {
	p := &process{Cmd: exec.Command(name, args...), t: h.t, stdout: &output{}, stderr: &output{}, done: make(chan struct{})}
	p.Dir, p.Env = h.home, h.env
	p.Stdout, p.Stderr = p.stdout, p.stderr
	p.SysProcAttr = &syscall.SysProcAttr{Credential: h.as}
	p.WaitDelay = time.Second // what it leaves behind may keep the pipes open
	return p
}

// locker prepares a run of the binary on the default directory.
func (h *host) locker(args ...string) *process { return h.command(binary, args...) }

// locked prepares locker run with a shell script as its command.
func (h *host) locked(script string, flags ...string) *process {
	args := append([]string{"run", "--local"}, flags...)
	return h.locker(append(args, "key", "--", "sh", "-c", script)...)
}

func (p *process) start() *process {
	p.t.Helper()
	if err := p.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.Wait() // ProcessState has it
	}()
	p.t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.done
	})
	return p
}

// wait returns the exit code, or minus the signal that killed it.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("%v has not ended after %v\n%s", p.Args, patience, p.stderr)
	}
	ws, ok := p.ProcessState.Sys().(syscall.WaitStatus)
	if ok && ws.Signaled() {
		return -int(ws.Signal())
	}
	return p.ProcessState.ExitCode()
}

func (p *process) run() int {
	p.t.Helper()
	return p.start().wait()
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// want runs it and checks the exit code.
func (p *process) want(code int) *process {
	p.t.Helper()
	if got := p.run(); got != code {
		p.t.Errorf("%v: exit code %d, want %d\nstdout: %s\nstderr: %s", p.Args[1:], got, code, p.stdout, p.stderr)
	}
	return p
}

// ended waits for it and checks the exit code.
func (p *process) ended(code int) *process {
	p.t.Helper()
	if got := p.wait(); got != code {
		p.t.Errorf("%v: exit code %d, want %d\nstdout: %s\nstderr: %s", p.Args[1:], got, code, p.stdout, p.stderr)
	}
	return p
}

// silent checks that nothing was said.
func (p *process) silent() {
	p.t.Helper()
	if p.stdout.String() != "" || p.stderr.String() != "" {
		p.t.Errorf("%v: want silence\nstdout: %s\nstderr: %s", p.Args[1:], p.stdout, p.stderr)
	}
}

func contains(t *testing.T, what, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Errorf("%s: got %q, want it to contain %q", what, got, want)
	}
}

// alive reports whether a process is there, and no zombie.
func alive(pid int) bool {
	if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	return !bytes.Contains(stat, []byte(") Z "))
}

// holding starts a command that holds the key until it is told to end, and waits until it
// runs.
func (h *host) holding(flags ...string) *process {
	h.t.Helper()
	p := h.locked("echo $$ > holder; exec sleep 60", flags...).start()
	h.pid("holder")
	return p
}

// free checks that the key can be had at once.
func (h *host) free() {
	h.t.Helper()
	if p := h.locked("true", "-n"); p.run() != 0 {
		h.t.Errorf("the key is not free: %s", p.stderr)
	}
}
