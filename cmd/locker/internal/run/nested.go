package run

import (
	"context"
	"os"
	"slices"
	"strings"

	"github.com/fencelock/locker"
)

// The variables that the command finds in its environment.
const (
	keyVariable   = "LOCKER_KEY"
	tokenVariable = "LOCKER_TOKEN"
	ownerVariable = "LOCKER_OWNER"
	ttlVariable   = "LOCKER_TTL"
	// heldVariable lists the attempts under whose locks this process runs. An attempt
	// is unique over all backends, so this needs no comparison of URLs.
	heldVariable = "LOCKER_HELD"
)

// nested reports the holder if this process runs under a lock of the same key: waiting
// for it would be waiting for itself. The variable alone proves nothing (at(1) and
// daemons keep an environment longer than a lock is held), so the backend is asked.
func nested(ctx context.Context, l *locker.Locker, key string) *locker.HeldError {
	held := strings.Fields(os.Getenv(heldVariable))
	if len(held) == 0 {
		return nil
	}
	s, err := l.Inspect(ctx, key)
	if err != nil || !s.Held || !slices.Contains(held, s.Attempt.String()) {
		return nil
	}
	return &locker.HeldError{Owner: s.Owner, Note: s.Note, Token: s.Token, Attempt: s.Attempt, ExpiresIn: s.ExpiresIn}
}
