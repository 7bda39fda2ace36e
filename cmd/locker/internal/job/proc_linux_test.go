package job

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParseStat(t *testing.T) {
	t.Parallel()
	// From the fields behind the group: to the number of threads, and to the start.
	const more = " 5 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 "
	for line, want := range map[string]proc{
		"7 (sh) S 1 5" + more + "1 0 99":              {pid: 7, parent: 1, group: 5, start: 99, name: "sh"},
		"7 (a (b) c) d) R 12 34" + more + "1 0 99 1":  {pid: 7, parent: 12, group: 34, start: 99, name: "a (b) c) d"},
		"7 () S 1 5" + more + "1 0 99":                {pid: 7, parent: 1, group: 5, start: 99},
		"7 (stopped) T 1 5" + more + "1 0 99":         {pid: 7, parent: 1, group: 5, start: 99, name: "stopped", stopped: true},
		"7 (traced) t 1 5" + more + "1 0 99":          {pid: 7, parent: 1, group: 5, start: 99, name: "traced"},
		"7 (dead) Z 1 5" + more + "1 0 99":            {pid: 7, parent: 1, group: 5, start: 99, name: "dead", dead: true},
		"7 (dead) X 1 5" + more + "0 0 99":            {pid: 7, parent: 1, group: 5, start: 99, name: "dead", dead: true},
		"7 (leader) Z 1 5" + more + "2 0 99":          {pid: 7, parent: 1, group: 5, start: 99, name: "leader"},
		"7 (line\nbreak) S 1 5" + more + "1 0 99 4 5": {pid: 7, parent: 1, group: 5, start: 99, name: "line\nbreak"},
		"7 (sh) S one 5" + more + "1 0 99":            {},
		"7 (sh) S 1 5" + more + "1 0 -9":              {},
		"7 (sh) S 1 5" + more + "1 0":                 {},
		"7 (sh) S":                                    {},
		"7 sh S 1 5" + more + "1 0 99":                {},
		"":                                            {},
		"7 )( S 1 5" + more + "1 0 99":                {},
	} {
		got, ok := parseStat(7, line)
		if want == (proc{}) && ok {
			t.Errorf("%q: got %+v, want nothing", line, got)
		} else if want != (proc{}) && (got != want || !ok) {
			t.Errorf("%q: got %+v, %v, want %+v", line, got, ok, want)
		}
	}
}

// child starts a child of this process, in a group of its own if it shall be one of a job.
func child(t *testing.T, own bool) *exec.Cmd {
	t.Helper()
	c := exec.Command("sleep", "60")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: own}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	return c
}

// One look is right about who is left. The subtests share this process's children.
func TestRest(t *testing.T) { //nolint:paralleltest // children are the whole process's
	j := &Job{others: map[int]uint64{}, shared: true}
	has := func(c *exec.Cmd) bool {
		left, gone := j.look()
		found := slices.ContainsFunc(left, func(p proc) bool { return p.pid == c.Process.Pid })
		if found && gone {
			t.Error("gone, but something is left")
		}
		return found
	}
	gone := func() bool { _, gone := j.look(); return gone }
	if !gone() {
		t.Fatal("not gone, and nothing has begun")
	}
	if has(child(t, false)) || !gone() {
		t.Error("what is in this process's own group is taken for a part of the job")
	}
	one := child(t, true)
	if !has(one) {
		t.Error("a child in a group of its own is no part of the job")
	}
	// Who has died during a look may have left something that the look has missed.
	if err := one.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Waitid(unix.P_PID, one.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if has(one) || gone() {
		t.Errorf("a zombie: listed %v, gone %v, want neither", has(one), gone())
	}
	_ = one.Wait() // killed
	if !gone() {
		t.Error("reaped, and not gone")
	}
	two := child(t, true)
	of, _ := children()
	for _, p := range of[os.Getpid()] {
		if p.pid == two.Process.Pid {
			j.others[p.pid] = p.start + 1
		}
	}
	if !has(two) {
		t.Error("a number that was given again is taken for who had it before")
	}
	j.others = others()
	if has(two) || !gone() {
		t.Error("what was there before is taken for a part of the job")
	}
}

// What is below one of the others is one of them, also when its parent has ended.
func TestOthersAreFollowed(t *testing.T) { //nolint:paralleltest // children are the whole process's
	adoptOrphans()
	helper := exec.Command("sh", "-c", "read line; setsid sleep 60 & echo $!; read line")
	helper.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := helper.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := helper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	j := &Job{others: others(), shared: true}
	say := func() {
		if _, err := in.Write([]byte("go on\n")); err != nil {
			t.Fatal(err)
		}
	}
	say()
	b := make([]byte, 20)
	n, err := out.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	orphan, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil {
		t.Fatal(err)
	}
	if _, gone := j.look(); !gone {
		t.Error("what one of the others has started is taken for a part of the job")
	}
	say()
	_ = out.Close()
	if _, err := helper.Process.Wait(); err != nil {
		t.Fatal(err)
	}
	left, gone := j.look()
	if len(left) > 0 || !gone {
		t.Errorf("what one of the others has left is taken for a part of the job: %+v", left)
	}
	if err := syscall.Kill(orphan, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := syscall.Wait4(orphan, nil, 0, nil); err != nil {
		t.Errorf("it was not left to this process: %v", err)
	}
}
