package job

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// proc is what /proc says of one process.
type proc struct {
	pid, parent, group int
	name               string
	stopped            bool // by a signal, not by a debugger
}

// descendants returns every process below one, from /proc, without some of its children
// and those in its own group, and what is below them. A job is always in another group;
// what is in this process's own was left to it by helpers of the script that became it. Without a /proc there are none to be seen: the group can then
// still be signalled, and its end is known by waiting.
func descendants(of int, without map[int]bool) []proc {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children := map[int][]proc{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // gone meanwhile
		}
		if p, ok := parseStat(pid, string(stat)); ok {
			children[p.parent] = append(children[p.parent], p)
		}
	}
	var found []proc
	own, _ := syscall.Getpgid(of) // 0, no group, where it cannot be read
	next := slices.DeleteFunc(children[of], func(p proc) bool { return p.group == own })
	for len(next) > 0 {
		p := next[0]
		next = next[1:]
		if !without[p.pid] {
			next = append(next, children[p.pid]...)
			found = append(found, p)
		}
	}
	return found
}

// parseStat reads the line of proc_pid_stat(5): pid (name) state parent group … The name
// may hold spaces and parentheses. A zombie is gone, unless only its first thread is.
func parseStat(pid int, line string) (proc, bool) {
	open, end := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if open < 0 || end < open {
		return proc{}, false
	}
	fields := strings.Fields(line[end+1:])
	if len(fields) < 3 || (fields[0] == "Z" || fields[0] == "X") && !otherThreads(fields) {
		return proc{}, false
	}
	parent, err1 := strconv.Atoi(fields[1])
	group, err2 := strconv.Atoi(fields[2])
	if err1 != nil || err2 != nil {
		return proc{}, false
	}
	return proc{pid: pid, parent: parent, group: group, name: line[open+1 : end], stopped: fields[0] == "T"}, true
}

// otherThreads reports whether a process whose first thread has exited has others.
func otherThreads(fields []string) bool {
	const numThreads = 17 // field 20, counted from the state
	if len(fields) <= numThreads {
		return false
	}
	n, err := strconv.Atoi(fields[numThreads])
	return err == nil && n > 1
}
