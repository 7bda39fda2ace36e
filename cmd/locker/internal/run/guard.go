package run

import "time"

// guard decides when a command must be told to stop. It only computes; the holder acts.
//
// The command must be gone before the lease's deadline, when the key may be somebody
// else's. The lease itself ends a little earlier (its grace: a tenth of what one renewal
// buys, at most a second). So SIGTERM goes out killAfter before the lease's end, SIGKILL
// at its end, and the grace is the margin in which SIGKILL takes effect.
type guard struct {
	onLoss    OnLoss
	killAfter time.Duration
	maxAt     time.Time // zero: no maximum

	end    time.Time // the lease's end as last known; renewals move it
	cause  Outcome   // why the command must stop; empty while it need not
	termed time.Time // when SIGTERM was sent; zero: not yet
}

type action int

const (
	nothing action = iota
	terminate
	kill
)

// killEvery is how often SIGKILL is repeated, for what was forked in the meantime.
const killEvery = 50 * time.Millisecond

// look says what to do now, with left until the lease ends (0: it is over).
func (g *guard) look(now time.Time, left time.Duration) action {
	if left > 0 {
		g.end = now.Add(left)
	}
	if g.cause == "" {
		g.cause = g.due(now, left)
	}
	switch {
	case g.cause == "":
		return nothing
	case g.cause == Lost && g.onLoss == Kill:
		return kill
	case g.termed.IsZero():
		g.termed = now
		return terminate
	case !now.Before(g.killAt()):
		return kill
	}
	return nothing
}

func (g *guard) due(now time.Time, left time.Duration) Outcome {
	switch {
	case g.onLoss == Terminate && left <= g.killAfter, g.onLoss == Kill && left <= 0:
		return Lost
	case !g.maxAt.IsZero() && !now.Before(g.maxAt):
		return MaxHold
	}
	return ""
}

func (g *guard) killAt() time.Time {
	at := g.termed.Add(g.killAfter)
	if g.onLoss != Ignore && g.end.Before(at) {
		return g.end
	}
	return at
}

// next is when to look again, with checks every so often in between: this program's
// timers stand still while the machine is suspended.
func (g *guard) next(now time.Time, left, check time.Duration) time.Time {
	at := now.Add(check)
	sooner := func(t time.Time) {
		if t.Before(at) {
			at = t
		}
	}
	switch {
	case g.cause == "":
		if !g.maxAt.IsZero() {
			sooner(g.maxAt)
		}
		switch g.onLoss {
		case Terminate:
			sooner(now.Add(left - g.killAfter))
		case Kill:
			sooner(now.Add(left))
		case Ignore:
		}
	case g.termed.IsZero() || !now.Before(g.killAt()):
		sooner(now.Add(killEvery))
	default:
		sooner(g.killAt())
	}
	return at
}
