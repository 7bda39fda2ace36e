package run

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/cmd/locker/internal/job"
)

// holder watches over a command that runs under a lease.
type holder struct {
	*runner
	lease *locker.Lease
	guard guard
	job   *job.Job

	end        ending
	killed     time.Time // first SIGKILL
	lossSaid   bool
	stopSaid   bool
	stops      int // in a row for the terminal
	resume     <-chan time.Time
	leftSaidAt <-chan time.Time
	search     <-chan time.Time
	wasStopped bool // a process of the job, when it was last looked at
}

// ending is how it came out.
type ending struct {
	command  *job.Status // nil: it was never seen to end
	cause    Outcome     // why it was stopped; empty: it was not
	gone     bool        // nothing of it is left
	terminal bool        // it had the terminal to itself
}

const (
	// checkShare of the ttl is how often the lease is looked at when nothing happens.
	checkShare = 10
	// giveUpAfter SIGKILL, a process that is still there hangs in the kernel or belongs
	// to another user.
	giveUpAfter = 5 * time.Second
	// leftAfter is when a command that has ended and left something running is
	// mentioned: the key stays taken, which may surprise.
	leftAfter = 5 * time.Second
	// stopsEvery is how often a job that has the terminal is searched for a process that
	// Ctrl-Z has stopped, two of which make it certain.
	stopsEvery = 500 * time.Millisecond
	// slowestResume bounds the pause before a command that wants a terminal it cannot
	// have is continued once more.
	slowestResume = time.Second
)

// hold returns when nothing of the job is left, or when that cannot be achieved.
func (h *holder) hold(j *job.Job) ending {
	h.job = j
	done := h.lease.Done()
	for {
		left := h.act()
		now := time.Now()
		if !h.killed.IsZero() && now.Sub(h.killed) > giveUpAfter {
			break
		}
		if h.search == nil && j.HasTerminal() {
			h.search = time.Tick(stopsEvery)
		}
		t := time.NewTimer(h.guard.next(now, left, h.lease.TTL()/checkShare).Sub(now))
		select {
		case <-j.Gone():
			h.drain()
			h.end.gone = true
		case e := <-j.Events():
			h.event(e)
		case s := <-h.signals:
			h.signal(s)
		case <-h.resume:
			h.resume = nil
			j.Continue()
		case <-h.leftSaidAt:
			h.leftSaidAt = nil
			h.sayLeft()
		case <-h.search:
			h.searchStopped()
		case <-done:
			done = nil
		case <-t.C:
		}
		t.Stop()
		if h.end.gone {
			break
		}
	}
	h.end.terminal = j.Reclaim() || h.end.terminal
	h.end.cause = h.guard.cause
	return h.end
}

// act does what the guard says is due, and returns how long the lease has left.
func (h *holder) act() time.Duration {
	left := h.lease.Remaining()
	if left == 0 && h.OnLoss == Ignore && !h.lossSaid {
		h.lossSaid = true
		h.voice.say("%v; the command runs on without the lock", h.lease.Err())
	}
	for {
		switch h.guard.look(time.Now(), left) {
		case nothing:
			return left
		case terminate:
			h.sayStopping(left)
			h.complain(h.job.Stop())
		case kill:
			if h.killed.IsZero() {
				h.killed = time.Now()
				h.sayStopping(left)
				h.voice.detail("killing the command")
			}
			h.complain(h.job.Kill())
			return left
		}
	}
}

// complain tells what could not be signalled; that it is still there shows later.
func (h *holder) complain(err error) {
	if err != nil {
		h.voice.detail("signalling the command: %v", err)
	}
}

func (h *holder) sayStopping(left time.Duration) {
	if h.stopSaid {
		return
	}
	h.stopSaid = true
	switch err := h.lease.Err(); {
	case h.guard.cause == MaxHold:
		h.voice.say("the command has had the key for %v (--max-hold): stopping it", h.MaxHold)
	case err != nil:
		h.voice.say("%v: stopping the command", err)
	default:
		h.voice.say("the lease on %q is not renewed and ends in %v: stopping the command", h.Key, left.Round(time.Millisecond))
	}
}

func (h *holder) signal(s os.Signal) {
	if job.IsStop(s) {
		h.voice.say("not stopped: a stopped holder would lose its lease")
		return
	}
	h.complain(h.job.Signal(s))
}

func (h *holder) event(e job.Event) {
	if e.Stopped == 0 {
		h.end.command = &e.Status
		h.resume = nil
		// Ctrl-C is for us again: what is left may not be in the group that had it.
		h.end.terminal = h.job.Reclaim()
		h.leftSaidAt = time.After(leftAfter)
		return
	}
	if !e.Terminal {
		h.voice.say("the command was stopped (%s) and is continued: a stopped holder would lose its lease", job.Name(e.Stopped))
		h.job.Continue()
		return
	}
	// Some other job has the terminal. Continued, the command asks again at once.
	if h.stops == 0 {
		h.voice.say("the command wants the terminal, which it cannot have in the background (%s)", job.Name(e.Stopped))
	}
	h.resume = time.After(min(killEvery<<min(h.stops, 10), slowestResume))
	h.stops++
}

// searchStopped continues what Ctrl-Z has stopped without the command itself showing it.
func (h *holder) searchStopped() {
	if h.end.command != nil || !h.job.HasTerminal() || !h.job.HasStopped() {
		h.wasStopped = false
		return
	}
	if h.wasStopped {
		h.voice.say("something of the command was stopped and is continued: a stopped holder would lose its lease")
		h.job.Continue()
	}
	h.wasStopped = !h.wasStopped
}

// drain takes the command's end from the events, in case Gone was seen first.
func (h *holder) drain() {
	for {
		select {
		case e := <-h.job.Events():
			if e.Stopped == 0 {
				h.event(e)
			}
		default:
			return
		}
	}
}

// sayLeft names what a command has left behind.
func (h *holder) sayLeft() {
	const most = 3
	var names []string
	left := h.job.Left()
	for i, p := range left {
		if i == most {
			names = append(names, fmt.Sprintf("and %d more", len(left)-most))
			break
		}
		names = append(names, fmt.Sprintf("%s (%d)", p.Name, p.PID))
	}
	which := ""
	if len(names) > 0 { // else they cannot be seen
		which = ": " + strings.Join(names, ", ")
	}
	h.voice.say("the command has ended but has left something running; the key stays held until that ends too%s", which)
}
