package locker

// Left counts what a Locker still has: keys, undos, leases, running functions, entries of
// the schedule and ttls. All are zero once it is closed and everything is over.
func (l *Locker) Left() map[string]int {
	c := l.c
	c.lock()
	defer c.unlock()
	left := map[string]int{}
	for name, n := range map[string]int{
		"keys": len(c.keys), "undos": len(c.undos), "leases": len(c.leases), "running": len(c.running),
		"scheduled": len(c.sched.entries), "ttls": len(c.sched.ttls), "calls": c.calls,
	} {
		if n != 0 {
			left[name] = n
		}
	}
	return left
}
