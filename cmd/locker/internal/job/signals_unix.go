//go:build unix

package job

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// forwarded are the signals that go to the command's group. The first ones end a process
// that does not handle them, and so a wait for the lock.
var (
	ending    = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM}
	forwarded = append(ending[:len(ending):len(ending)], syscall.SIGWINCH, syscall.SIGCONT)
)

// Catch sends the signals that concern a job to c. One that was ignored from the start
// (by nohup) stays ignored, here and in the command.
func Catch(c chan<- os.Signal) {
	for _, s := range forwarded {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
	// A closed pipe behind stderr must not end a holder.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
}

// CatchStop also sends Ctrl-Z to c: a stopped holder would lose its lease.
func CatchStop(c chan<- os.Signal) { signal.Notify(c, syscall.SIGTSTP) }

// IsStop reports whether the signal is Ctrl-Z.
func IsStop(s os.Signal) bool { return s == syscall.SIGTSTP }

// Repeat sends a signal that the terminal gave to the job alone to this process's own
// group, where a script that runs us waits for it too, and lets it end this process.
func Repeat(s syscall.Signal) {
	signal.Reset(s)
	_ = syscall.Kill(0, s)
}

// Name is a signal's name, such as SIGTSTP; its text says no more than "stopped".
func Name(s syscall.Signal) string { return unix.SignalName(s) }
