package run

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// voice is what locker itself says, on stderr. A reader that is slow or gone must never
// keep a holder from stopping its command in time: nothing here waits.
type voice struct {
	key     string
	json    bool
	verbose bool
	lines   chan []byte
	done    chan struct{}
}

const (
	// unread lines are kept; more are dropped.
	unread = 256
	// lastWords is how long the end of the program waits for a slow reader.
	lastWords = time.Second
)

func newVoice(key string, asJSON, verbose bool) *voice {
	v := &voice{key: key, json: asJSON, verbose: verbose, lines: make(chan []byte, unread), done: make(chan struct{})}
	go func() {
		defer close(v.done)
		for line := range v.lines {
			if line == nil {
				return
			}
			_, _ = os.Stderr.Write(line) // there is nobody else to tell
		}
	}()
	return v
}

// say tells what a person should know.
func (v *voice) say(format string, args ...any) { v.line("warning", format, args...) }

// detail tells what only -v asks for.
func (v *voice) detail(format string, args ...any) {
	if v.verbose {
		v.line("info", format, args...)
	}
}

// message is one line of --json.
type message struct {
	Level   string `json:"level"`
	Message string `json:"message"`
	Key     string `json:"key"`
}

func (v *voice) line(level, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if v.json {
		v.encode(message{Level: level, Message: text, Key: v.key})
		return
	}
	v.put([]byte("locker: " + text + "\n"))
}

func (v *voice) encode(value any) {
	if b, err := json.Marshal(value); err == nil {
		v.put(append(b, '\n'))
	}
}

func (v *voice) put(line []byte) {
	select {
	case v.lines <- line:
	default:
	}
}

// close says what is still unsaid. Whoever speaks later (a lease that was not released)
// is not heard.
func (v *voice) close() {
	timeout := time.After(lastWords)
	select {
	case v.lines <- nil:
	case <-timeout:
		return
	}
	select {
	case <-v.done:
	case <-timeout:
	}
}
