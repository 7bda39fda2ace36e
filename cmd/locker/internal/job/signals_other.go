//go:build !unix

package job

import (
	"os"
	"os/signal"
	"syscall"
)

var ending = []os.Signal{os.Interrupt, syscall.SIGTERM}

// Catch sends the signals that concern a job to c.
func Catch(c chan<- os.Signal) { signal.Notify(c, ending...) }

// CatchStop does nothing: there is no Ctrl-Z here.
func CatchStop(chan<- os.Signal) {}

// IsStop reports whether the signal is Ctrl-Z.
func IsStop(os.Signal) bool { return false }

// Repeat does nothing here.
func Repeat(syscall.Signal) {}

// Name is a signal's name.
func Name(s syscall.Signal) string { return s.String() }
