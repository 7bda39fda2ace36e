package run

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/fencelock/locker/cmd/locker/internal/target"
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

func (v *voice) line(level, format string, args ...any) {
	for i, a := range args {
		if err, ok := a.(error); ok {
			args[i] = target.Plain(err)
		}
	}
	v.put(Message{level, fmt.Sprintf(format, args...), v.key}.Line(v.json))
}

func (v *voice) encode(value any) { v.put(jsonLine(value)) }

// Message is what any of locker's commands says on stderr.
type Message struct {
	Level   string `json:"level"` // warning or info
	Message string `json:"message"`
	Key     string `json:"key"`
}

// Line is the message for people, or as a JSON object.
func (m Message) Line(asJSON bool) []byte {
	if asJSON {
		return jsonLine(m)
	}
	return []byte("locker: " + m.Message + "\n")
}

func jsonLine(value any) []byte {
	b, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	return append(b, '\n')
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
