// Command locker runs a command under a lock, and shows, watches and breaks locks.
//
//	locker run nightly -- ./job.sh
//
// See docs/command.md, or locker --help.
package main

import (
	"os"

	"github.com/fencelock/locker/cmd/locker/internal/cli"
	"github.com/fencelock/locker/cmd/locker/internal/run"
)

func main() {
	if run.Keep() {
		return
	}
	os.Exit(cli.Main(os.Args[1:]))
}
