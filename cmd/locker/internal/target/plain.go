package target

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fencelock/locker"
)

// Plain puts an error of the library into the command's words: whoever reads it has called
// a command of the library's name, with flags and not with Go's options.
func Plain(err error) error {
	text := strings.TrimPrefix(err.Error(), "locker: ")
	if op := (*locker.Error)(nil); errors.As(err, &op) && op.Error() == text {
		text = plainText(op)
	} else if op != nil && op.Op == "new" {
		text = op.Err.Error()
	}
	return plainError{err, words.Replace(text)}
}

func plainText(e *locker.Error) string {
	switch {
	case e.Key == "":
		return e.Op + ": " + e.Err.Error()
	case errors.Is(e.Err, context.DeadlineExceeded): // "waited 2s: …" says what was done
		return fmt.Sprintf("%q: %v", e.Key, e.Err)
	case errors.Is(e.Err, locker.ErrHeld):
		return fmt.Sprintf("%q is %v", e.Key, e.Err)
	}
	return fmt.Sprintf("%s %q: %v", e.Op, e.Key, e.Err)
}

// words replaces Go's names of what has a flag.
var words = strings.NewReplacer("Options.Owner: ", "--owner: ", "WithNote: ", "--note: ")

// plainError is an error with another text.
type plainError struct {
	error
	text string
}

func (e plainError) Error() string { return e.text }
func (e plainError) Unwrap() error { return e.error }
