package job

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// proc is what /proc says of one process.
type proc struct {
	pid, parent, group int
	start              uint64 // in clock ticks since boot: a number given again has another one
	name               string
	stopped            bool // by a signal, not by a debugger
	dead               bool // a zombie: its parent has not reaped it yet
}

// children returns every process, by its parent. Not whole: there may be more than can be
// seen, because there is no /proc, it is another pid namespace's, it hides other users'
// processes, or descriptors or memory are short. Process 1 is always there, and nearly
// always root's: who does not see it does not see everybody.
//
// A process that lives, or is a zombie, from the beginning of this to its end is never
// missed. One that begins or ends meanwhile may be.
func children() (of map[int][]proc, whole bool) {
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return nil, false
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, false
	}
	of, whole = map[int][]proc{}, true
	sawFirst := false
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			ended := errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
			whole = whole && ended
			continue
		}
		if p, ok := parseStat(pid, string(stat)); ok {
			of[p.parent] = append(of[p.parent], p)
			sawFirst = sawFirst || pid == 1
		}
	}
	return of, whole && sawFirst
}

// below returns the given processes and every process below them.
func below(of map[int][]proc, top []proc) []proc {
	found := top[:len(top):len(top)]
	for i := 0; i < len(found); i++ {
		found = append(found, of[found[i].pid]...)
	}
	return found
}

// parseStat reads the line of proc_pid_stat(5): pid (name) state parent group … The name
// may hold spaces and parentheses. A process whose first thread alone has exited shows as
// a zombie, and is none.
func parseStat(pid int, line string) (proc, bool) {
	const ( // counted from the state, which is field 3
		state, parent, group = 0, 1, 2
		threads, start       = 17, 19
	)
	open, end := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if open < 0 || end < open {
		return proc{}, false
	}
	fields := strings.Fields(line[end+1:])
	if len(fields) <= start {
		return proc{}, false
	}
	p := proc{pid: pid, name: line[open+1 : end], stopped: fields[state] == "T"}
	var n int
	for field, to := range map[int]*int{parent: &p.parent, group: &p.group, threads: &n} {
		var err error
		if *to, err = strconv.Atoi(fields[field]); err != nil {
			return proc{}, false
		}
	}
	var err error
	p.start, err = strconv.ParseUint(fields[start], 10, 64)
	p.dead = (fields[state] == "Z" || fields[state] == "X") && n <= 1
	return p, err == nil
}
