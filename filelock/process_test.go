//go:build linux

package filelock

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/internal/boot"
)

// The test binary is its own holder process: with LOCKER_CHILD set it obeys lines on
// its standard input.
func TestMain(m *testing.M) {
	if os.Getenv("LOCKER_CHILD") != "" {
		childMain()
		os.Exit(0)
	}
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set("16") // nearly all of them only wait for a ttl
	}
	os.Exit(m.Run())
}

// child is a process that holds keys.
type child struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// start starts a child and, in the modes that say so, waits until it is ready.
func start(t *testing.T, uid int, mode, dir, key string, env ...string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0]) // the test binary itself
	cmd.Env = append(os.Environ(), "LOCKER_CHILD="+mode, "LOCKER_DIR="+dir, "LOCKER_KEY="+key, "LOCKER_UID="+strconv.Itoa(uid))
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: cmd, in: in, out: bufio.NewReader(out)}
	t.Cleanup(c.kill)
	if mode == "loop" || mode == "steps" {
		if got := c.line(); got != "ready" {
			t.Fatalf("child: %s", got)
		}
	}
	return c
}

func (c *child) line() string {
	s, err := c.out.ReadString('\n')
	if err != nil {
		return "gone"
	}
	return strings.TrimSpace(s)
}

func (c *child) ask(what string) string {
	if _, err := fmt.Fprintln(c.in, what); err != nil {
		return "gone"
	}
	return c.line()
}

func (c *child) signal(s syscall.Signal) { _ = c.cmd.Process.Signal(s) }

func (c *child) kill() {
	c.signal(syscall.SIGKILL)
	_ = c.in.Close()
	_ = c.cmd.Wait()
}

// childMain is the child's side.
func childMain() {
	if uid, _ := strconv.Atoi(os.Getenv("LOCKER_UID")); uid > 0 {
		if err := errors.Join(syscall.Setgid(uid), syscall.Setuid(uid)); err != nil {
			fmt.Println(err)
			return
		}
	}
	h, err := thisHost()
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	sys := newDouble()
	d, err := open(ctx, os.Getenv("LOCKER_DIR"), nil, sys, h)
	if err != nil {
		fmt.Println(err)
		return
	}
	key := os.Getenv("LOCKER_KEY")
	switch os.Getenv("LOCKER_CHILD") {
	case "hammer":
		hammer(d, key)
	case "steps":
		die, _ := strconv.Atoi(os.Getenv("LOCKER_STEP"))
		var n atomic.Int64 // the collector makes calls too
		sys.set(func(string, string) error {
			if n.Add(1) == int64(die) {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
			return nil
		}, nil)
		fallthrough
	case "loop":
		fmt.Println("ready")
		obey(ctx, d, key)
	default:
		fmt.Println("ready")
	}
}

func obey(ctx context.Context, d *Driver, key string) {
	var g driver.Grant
	var err error
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		switch lines.Text() {
		case "try":
			if g, err = d.TryAcquire(call, request(key)); err == nil {
				fmt.Println("granted", g.Token)
			}
		case "renew":
			var renewed driver.Grant
			if renewed, err = d.Renew(call, g); err == nil {
				g = renewed
				fmt.Println("ok")
			}
		case "release":
			if err = d.Release(call, g); err == nil {
				fmt.Println("ok")
			}
		case "break", "now":
			token, _ := driver.ParseToken(os.Getenv("LOCKER_TOKEN"))
			if err = d.Break(call, key, token, driver.Break{Now: lines.Text() == "now"}); err == nil {
				fmt.Println("ok")
			}
		case "inherit": // a process of its own that keeps the descriptor
			var f *os.File
			if f, err = File(g); err == nil {
				sleep := exec.Command("sleep", "60")
				sleep.ExtraFiles = []*os.File{f}
				if err = sleep.Start(); err == nil {
					fmt.Println(sleep.Process.Pid)
				}
			}
		}
		if err != nil {
			fmt.Println(err)
		}
		cancel()
	}
}

// hammer takes the key again and again until its standard input ends, and says when it
// believed.
func hammer(d *Driver, key string) {
	stop := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stop)
	}()
	pause := func(d time.Duration) bool {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return true
		case <-stop:
			return false
		}
	}
	fmt.Println("ready")
	for back := time.Millisecond; ; {
		r := request(key)
		sent, _ := boot.Now()
		ctx, cancel := context.WithTimeout(context.Background(), ttl/4)
		g, err := d.TryAcquire(ctx, r)
		cancel()
		now, _ := boot.Now()
		end := sent + ttl - ttl/100
		switch {
		case err == nil && now < end:
			fmt.Printf("+ %d %d\n", g.Token, now)
			on := pause(time.Duration(rand.IntN(2000)) * time.Microsecond)
			now, _ = boot.Now()
			fmt.Printf("- %d %d\n", g.Token, min(now, end))
			ctx, cancel := context.WithTimeout(context.Background(), ttl/4)
			err := d.Release(ctx, g)
			cancel()
			if err != nil && !errors.Is(err, driver.ErrLost) {
				fmt.Println("! release:", err)
			}
			if !on {
				return
			}
			back = time.Millisecond
		case err == nil || driver.IsAmbiguous(err):
			_ = d.Release(context.Background(), driver.Grant{Request: r, State: g.State})
		case errors.Is(err, driver.ErrHeld), errors.Is(err, context.DeadlineExceeded): // a loaded machine
		default:
			fmt.Println("! acquire:", err)
		}
		if !pause(back + time.Duration(rand.Int64N(int64(back)))) {
			return
		}
		back = min(2*back, 50*time.Millisecond)
	}
}

// history is what the children of one test believed.
type history struct {
	mu    sync.Mutex
	holds map[driver.Token]*belief
	bad   []string
}

type belief struct{ from, to time.Duration }

func (h *history) listen(c *child, done *sync.WaitGroup) {
	defer done.Done()
	for {
		line := c.line()
		if line == "gone" {
			return
		}
		h.mu.Lock()
		f := strings.Fields(line)
		switch {
		case len(f) == 3 && (f[0] == "+" || f[0] == "-"):
			token, err := driver.ParseToken(f[1])
			at, err2 := strconv.ParseInt(f[2], 10, 64)
			b := h.holds[token]
			switch {
			case err != nil || err2 != nil:
				h.bad = append(h.bad, line)
			case f[0] == "+" && b != nil:
				h.bad = append(h.bad, fmt.Sprintf("token %v given twice", token))
			case f[0] == "+":
				h.holds[token] = &belief{from: time.Duration(at), to: time.Duration(at)}
			case b == nil:
				h.bad = append(h.bad, line)
			default:
				b.to = max(b.from, time.Duration(at))
			}
		case line != "ready":
			h.bad = append(h.bad, line)
		}
		h.mu.Unlock()
	}
}

// check: tokens rise with time, and no two beliefs overlap.
func (h *history) check(t *testing.T, least int) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range h.bad[:min(len(h.bad), 10)] {
		t.Error(b)
	}
	tokens := make([]driver.Token, 0, len(h.holds))
	for token := range h.holds {
		tokens = append(tokens, token)
	}
	slices.SortFunc(tokens, func(a, b driver.Token) int { return cmp.Compare(h.holds[a].from, h.holds[b].from) })
	for i := 1; i < len(tokens); i++ {
		a, b := tokens[i-1], tokens[i]
		if b <= a {
			t.Errorf("token %v was given after token %v", b, a)
		}
		if h.holds[b].from < h.holds[a].to {
			t.Errorf("token %v believed from %v while %v believed until %v", b, h.holds[b].from, a, h.holds[a].to)
		}
	}
	t.Logf("%d grants", len(tokens))
	if len(tokens) < least {
		t.Errorf("only %d grants", len(tokens))
	}
}

func size(push, full time.Duration) time.Duration {
	if os.Getenv("LOCKER_TEST_SIZE") != "" {
		return full
	}
	return push
}

// 64 processes hammer one key: the history is legal, nothing torn is read, little
// stays behind.
func TestManyProcessesOneKey(t *testing.T) {
	dir := directory(t)
	opened(t, dir)
	h := &history{holds: map[driver.Token]*belief{}}
	var done sync.WaitGroup
	var cs []*child
	const processes = 64
	for range processes {
		c := start(t, 0, "hammer", dir, "k")
		cs = append(cs, c)
		done.Add(1)
		go h.listen(c, &done)
	}
	pass(t, size(5*time.Second, time.Minute))
	for _, c := range cs {
		_ = c.in.Close()
	}
	done.Wait()
	h.check(t, 50)
	if left := names(t, filepath.Join(dir, "locker", "k")); len(left) > 2*8+2*processes {
		t.Errorf("%d files left", len(left))
	}
}

// PR5, PR6, FS3: processes are stopped, continued and killed at random instants.
func TestProcessesStoppedAndKilled(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	opened(t, dir)
	h := &history{holds: map[driver.Token]*belief{}}
	var done sync.WaitGroup
	run := func() *child {
		c := start(t, 0, "hammer", dir, "k")
		done.Add(1)
		go h.listen(c, &done)
		return c
	}
	cs := make([]*child, 6)
	for i := range cs {
		cs[i] = run()
	}
	seed := uint64(os.Getpid())
	rnd := rand.New(rand.NewPCG(seed, 1)) // which process to hit
	t.Logf("seed %d", seed)
	from := driver.Now()
	for driver.Now().Sub(from) < size(6*time.Second, time.Minute) {
		pass(t, time.Duration(rnd.IntN(60))*time.Millisecond)
		i := rnd.IntN(len(cs))
		switch rnd.IntN(4) {
		case 0:
			cs[i].kill()
			cs[i] = run()
		case 1:
			cs[i].signal(syscall.SIGSTOP)
		default:
			cs[i].signal(syscall.SIGCONT)
		}
	}
	for _, c := range cs {
		c.signal(syscall.SIGCONT)
		_ = c.in.Close()
	}
	done.Wait()
	h.check(t, 10)
	d := opened(t, dir)
	eventually(t, 2*ttl, "the key is usable", func() bool { return tryErr(d, "k", t) == nil })
}

// A holder that is killed at each of its system calls leaves a key that is free at
// once, and no token is given twice.
func TestKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	d := opened(t, dir)
	var last driver.Token
	for step := 1; ; step++ {
		c := start(t, 0, "steps", dir, "k", "LOCKER_STEP="+strconv.Itoa(step))
		for _, what := range []string{"try", "renew", "release", "try", "release"} {
			got := c.ask(what)
			if s, ok := strings.CutPrefix(got, "granted "); ok {
				token, err := driver.ParseToken(s)
				if err != nil || token <= last {
					t.Fatalf("step %d: token %v after %v, %v", step, s, last, err)
				}
				last = token
			}
			if got == "gone" {
				break
			}
		}
		gone := c.ask("renew") == "gone"
		c.kill()
		var g driver.Grant
		eventually(t, time.Second, fmt.Sprintf("the key is free after a kill at step %d", step), func() bool {
			var err error
			g, err = d.TryAcquire(within(t), request("k"))
			return err == nil
		})
		if g.Token <= last {
			t.Fatalf("step %d: token %v after %v", step, g.Token, last)
		}
		last = g.Token
		if err := d.Release(within(t), g); err != nil {
			t.Fatal(err)
		}
		if !gone {
			t.Logf("%d steps", step-1)
			return
		}
	}
}

// FS8: a contender that is killed at any of its system calls while it seals the record of
// a dead holder and takes the next number leaves a key that is free at once.
func TestSealerKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	killedAtEveryStep(t, 25, func(t *testing.T, d *Driver, dir string, step int) bool {
		g := acquire(t, d, "k")
		dies(t, d, g)
		c := start(t, 0, "steps", dir, "k", "LOCKER_STEP="+strconv.Itoa(step))
		got := c.ask("try")
		c.kill()
		next := d.mustBeFree(t, g.Token)
		if s, ok := strings.CutPrefix(got, "granted "); ok && fmt.Sprint(next.Token-1) != s {
			t.Errorf("step %d: token %v behind one %s", step, next.Token, got)
		}
		return got == "gone"
	})
}

// FS8: whoever breaks a lock may be killed at any of its system calls: the break is made
// or not, the holder keeps its right to renew or loses it, another break with Now and the
// holder's release work on, and the key goes on.
func TestBreakerKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"break", "now"} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			killedAtEveryStep(t, 12, func(t *testing.T, d *Driver, dir string, step int) bool {
				g := acquire(t, d, "k")
				c := start(t, 0, "steps", dir, "k", "LOCKER_STEP="+strconv.Itoa(step), "LOCKER_TOKEN="+g.Token.String())
				got := c.ask(op)
				c.kill()
				if _, err := d.Renew(within(t), g); err != nil && !errors.Is(err, driver.ErrLost) {
					t.Errorf("step %d: renew: %v", step, err)
				} else if err == nil && got == "ok" {
					t.Errorf("step %d: a broken grant was renewed", step)
				}
				if step%2 == 0 {
					if err := opened(t, dir).Break(within(t), "k", g.Token, driver.Break{Now: true}); err != nil && !errors.Is(err, driver.ErrLost) {
						t.Errorf("step %d: break with Now: %v", step, err)
					}
				} else if err := d.Release(within(t), g); err != nil && !errors.Is(err, driver.ErrLost) {
					t.Errorf("step %d: release: %v", step, err)
				}
				d.mustBeFree(t, g.Token)
				return got == "gone"
			})
		})
	}
}

// killedAtEveryStep runs f with 1, 2, … until it says that the child was not killed, which
// must not be too soon.
func killedAtEveryStep(t *testing.T, least int, f func(t *testing.T, d *Driver, dir string, step int) bool) {
	t.Helper()
	dir := directory(t)
	d := opened(t, dir)
	for step := 1; ; step++ {
		if f(t, d, dir, step) {
			continue
		}
		if t.Logf("%d steps", step-1); step <= least {
			t.Errorf("only %d steps, want at least %d", step-1, least)
		}
		return
	}
}

// mustBeFree acquires the key k and releases it again.
func (d *Driver) mustBeFree(t *testing.T, last driver.Token) (g driver.Grant) {
	t.Helper()
	eventually(t, time.Second, "the key is free", func() bool {
		var err error
		g, err = d.TryAcquire(within(t), request("k"))
		return err == nil
	})
	if g.Token <= last {
		t.Fatalf("token %v after %v", g.Token, last)
	}
	if err := d.Release(within(t), g); err != nil {
		t.Fatal(err)
	}
	return g
}

// PR2, EX1: a stopped holder's key is free after its ttl, and it learns so.
func TestStoppedHolder(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	d := opened(t, dir)
	c := start(t, 0, "loop", dir, "k")
	from := driver.Now()
	if got := c.ask("try"); got != "granted 1" {
		t.Fatal(got)
	}
	c.signal(syscall.SIGSTOP)
	eventually(t, 2*ttl, "the key is free", func() bool {
		_, err := d.TryAcquire(within(t), request("k"))
		return err == nil
	})
	if took := driver.Now().Sub(from); took < ttl {
		t.Errorf("free after %v", took)
	}
	c.signal(syscall.SIGCONT)
	if got := c.ask("renew"); got != "lost" {
		t.Errorf("renew after waking: %s", got)
	}
	if got := c.ask("release"); got != "lost" {
		t.Errorf("release after waking: %s", got)
	}
	refusedBy(t, d, "k")
}

// CO16 and free-on-exit: held by another process, free at once when that is killed.
func TestKilledHolder(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	d := opened(t, dir)
	c := start(t, 0, "loop", dir, "k")
	if got := c.ask("try"); got != "granted 1" {
		t.Fatal(got)
	}
	refusedBy(t, d, "k")
	c.kill()
	if g := acquire(t, d, "k"); g.Token != 2 {
		t.Errorf("got token %v", g.Token)
	}
}

// FS7: a child of the holder keeps the key as long as it lives, at most for the ttl.
func TestFS7InheritedDescriptor(t *testing.T) {
	t.Parallel()
	for _, ends := range []bool{true, false} {
		t.Run(fmt.Sprint("child ends ", ends), func(t *testing.T) {
			t.Parallel()
			dir := directory(t)
			d := opened(t, dir)
			c := start(t, 0, "loop", dir, "k")
			from := driver.Now()
			if got := c.ask("try"); got != "granted 1" {
				t.Fatal(got)
			}
			pid, err := strconv.Atoi(c.ask("inherit"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
			c.signal(syscall.SIGKILL)
			_ = c.cmd.Wait()
			refusedBy(t, d, "k")
			if ends {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			eventually(t, 2*ttl, "the key is free", func() bool {
				_, err := d.TryAcquire(within(t), request("k"))
				return err == nil
			})
			if took := driver.Now().Sub(from); took < ttl != ends {
				t.Errorf("free after %v", took)
			}
		})
	}
}
