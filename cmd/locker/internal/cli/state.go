package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/locker"
)

// stateJSON is a key as --json shows it. What the backend does not know is null.
type stateJSON struct {
	Key         string       `json:"key"`
	Held        bool         `json:"held"`
	Broken      bool         `json:"broken"`
	Token       locker.Token `json:"token"`
	Owner       string       `json:"owner"`
	Note        string       `json:"note"`
	HeldForMS   *int64       `json:"held_for_ms"`
	ExpiresInMS *int64       `json:"expires_in_ms"`
	Waiters     *int         `json:"waiters"`
}

func toJSON(s locker.State) stateJSON {
	j := stateJSON{Key: s.Key, Held: s.Held, Broken: s.Broken, Token: s.Token, Owner: s.Owner, Note: s.Note}
	if s.Held {
		j.HeldForMS, j.ExpiresInMS = knownMS(s.HeldFor), knownMS(s.ExpiresIn)
	}
	if s.Waiters >= 0 {
		j.Waiters = &s.Waiters
	}
	return j
}

func knownMS(d time.Duration) *int64 {
	if d < 0 {
		return nil
	}
	ms := d.Milliseconds()
	return &ms
}

func printJSON(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }

// sentence tells a state in one line: nightly: held by web-3:81 (token 7) for 12s.
func sentence(s locker.State) string {
	var b strings.Builder
	b.WriteString(printable(s.Key) + ": ")
	if !s.Held {
		b.WriteString("free")
		if s.Token != 0 {
			fmt.Fprintf(&b, " (last token %v)", s.Token)
		}
		return b.String()
	}
	b.WriteString("held by " + owner(s))
	if s.Token != 0 {
		fmt.Fprintf(&b, " (token %v)", s.Token)
	}
	if s.HeldFor >= 0 {
		fmt.Fprintf(&b, " for %v", round(s.HeldFor))
	}
	if s.Broken {
		b.WriteString(", broken: it cannot renew")
	}
	if s.ExpiresIn >= 0 {
		fmt.Fprintf(&b, ", free in %v unless renewed", round(s.ExpiresIn))
		if s.Broken {
			return strings.TrimSuffix(b.String(), " unless renewed") + details(s)
		}
	}
	return b.String() + details(s)
}

func details(s locker.State) string {
	var d string
	if s.Waiters > 0 {
		d += fmt.Sprintf(", %d waiting", s.Waiters)
	}
	if s.Note != "" {
		d += ": " + printable(s.Note)
	}
	return d
}

func owner(s locker.State) string {
	if s.Owner == "" {
		return "somebody unknown"
	}
	return printable(s.Owner)
}

// printable keeps what other programs wrote from moving the cursor.
func printable(s string) string {
	if q := strconv.Quote(s); q != `"`+s+`"` {
		return q
	}
	return s
}

func round(d time.Duration) time.Duration {
	if d >= 10*time.Second {
		return d.Round(time.Second)
	}
	return d.Round(10 * time.Millisecond)
}
