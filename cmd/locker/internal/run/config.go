// Package run runs a command under a lock.
package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fencelock/locker/cmd/locker/internal/target"
)

// The exit codes of locker's own. A command may use them too: a script that must tell
// reads the result file.
const (
	CodeMaxHold       = 121 // --max-hold ended the command
	CodeLost          = 122 // the lease was lost
	CodeHeld          = 123 // the key is held, and waiting was not wanted
	CodeTimeout       = 124 // --wait elapsed
	CodeFailed        = 125 // locker itself failed, or was called wrongly
	CodeNotExecutable = 126
	CodeNotFound      = 127
)

// OnLoss says what becomes of the command when its lease is lost.
type OnLoss string

// The values of --on-loss.
const (
	Terminate OnLoss = "term"   // SIGTERM, and SIGKILL before the deadline
	Kill      OnLoss = "kill"   // SIGKILL before the deadline
	Ignore    OnLoss = "ignore" // nothing: the command runs on without a lock
)

// Config is what the command line asks for.
type Config struct {
	Key     string
	Command []string
	Target  target.Target

	NonBlock bool
	Wait     time.Duration // negative: for ever
	Conflict int           // exit code instead of CodeHeld and CodeTimeout; negative: those

	TTL       time.Duration // zero: the URL's, or 30 s
	MinHold   time.Duration
	MaxHold   time.Duration // zero: no maximum
	OnLoss    OnLoss
	KillAfter time.Duration // negative: a sixth of the ttl

	Owner, Note string
	Result      string // file; empty: none
	JSON        bool
	Verbose     bool

	Began time.Time // when main was entered
}

const (
	// killShare: --kill-after must be less than this share of the ttl. A renewal is due
	// every third of it and needs time to be tried again before the command is told to
	// stop.
	killShare = 3
	// defaultKillShare is the share that is used when nothing is said.
	defaultKillShare = 6
)

func (c *Config) check() error {
	switch {
	case c.Key == "":
		return errors.New("the key is empty")
	case c.NonBlock && c.Wait >= 0:
		return errors.New("--nonblock and --wait exclude each other")
	case c.MaxHold > 0 && c.MinHold > c.MaxHold:
		return fmt.Errorf("--min-hold %v is longer than --max-hold %v", c.MinHold, c.MaxHold)
	case c.OnLoss != Terminate && c.OnLoss != Kill && c.OnLoss != Ignore:
		return fmt.Errorf("--on-loss %q: want term, kill or ignore", c.OnLoss)
	}
	_, err := c.killAfter(c.ttl())
	return err
}

// bound ends a context with the wait for the key.
func (c *Config) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.Wait < 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.Wait)
}

// defaultTTL is the ttl when neither the command line nor the URL names one.
const defaultTTL = 30 * time.Second

// ttl is what will be asked of the backend. It is known before the wait for the key, and
// so are flags that do not fit it.
func (c *Config) ttl() time.Duration { return cmp.Or(c.TTL, c.Target.TTL(), defaultTTL) }

// killAfter is the time between SIGTERM and SIGKILL under a ttl.
func (c *Config) killAfter(ttl time.Duration) (time.Duration, error) {
	if c.KillAfter < 0 {
		return ttl / defaultKillShare, nil
	}
	if c.KillAfter >= ttl/killShare {
		return 0, fmt.Errorf("--kill-after %v: want less than a third of the ttl (%v): the command must be gone before the lease's deadline, "+
			"and a renewal that failed must be tried again before that", c.KillAfter, ttl)
	}
	return c.KillAfter, nil
}

// note is what other people see of the holder: by default the command's name, without
// its arguments, which may be secret.
func (c *Config) note() string {
	if c.Note != "" {
		return c.Note
	}
	return filepath.Base(c.Command[0])
}
