package redislock

import (
	"crypto/sha1" //nolint:gosec // the name that Redis gives to a script
	"embed"
	"encoding/hex"
	"strconv"
	"strings"
)

//go:embed lua/*.lua
var lua embed.FS

// script is one step of the algorithm: a program that Redis runs as one atomic command.
type script struct {
	source string
	sha    any // a string, as a command takes it
	// early are the numbers of the lines before which nothing was written that matters.
	early map[string]bool
}

// nothingYet ends those lines.
const nothingYet = "-- so far nothing\n"

// newScript reads programs from lua/ and puts them one behind the other. The flags are
// Redis's own (7.0): without them a script that would write on a replica, or beyond the
// memory limit, is refused before it has done anything, which is what makes that error
// definite.
func newScript(flags string, files ...string) script {
	source := "#!lua"
	if flags != "" {
		source += " flags=" + flags
	}
	source += "\n"
	for _, f := range files {
		b, err := lua.ReadFile("lua/" + f)
		if err != nil { // embedded: a typing error in the list below
			panic(err)
		}
		source += string(b)
	}
	early, number := map[string]bool{}, 0
	for line := range strings.Lines(source) {
		number++
		if strings.HasSuffix(line, nothingYet) {
			early[strconv.Itoa(number)] = true
		}
	}
	sum := sha1.Sum([]byte(source)) //nolint:gosec // as above
	return script{source: source, sha: hex.EncodeToString(sum[:]), early: early}
}

// What frees, keeps or looks at a lock works at the memory limit too; what would make a new
// lock or a new place does not.
var (
	tryScript     = newScript("", "try_free.lua", "lib.lua", "try.lua")
	enqueueScript = newScript("", "lib.lua", "enqueue.lua")
	pollScript    = newScript("allow-oom", "lib.lua", "poll.lua")
	renewScript   = newScript("allow-oom", "renew.lua")
	releaseScript = newScript("allow-oom", "release_alone.lua", "lib.lua", "release.lua")
	breakScript   = newScript("allow-oom", "lib.lua", "break.lua")
	inspectScript = newScript("no-writes", "inspect.lua")
)

// scripts are what a driver loads when it is opened.
var scripts = []*script{
	&tryScript, &enqueueScript, &pollScript, &renewScript, &releaseScript, &breakScript, &inspectScript,
}
