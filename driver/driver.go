package driver

import (
	"context"
	"iter"
	"time"
)

// Request is one attempt to get a key. It is fixed when the attempt is made: every
// call that belongs to the attempt carries the same Request.
type Request struct {
	// Key is the full key: 1 to 512 bytes of valid UTF-8 without NUL. The core
	// has checked that. A backend maps keys injectively.
	Key string
	// Attempt identifies the attempt. A backend stores it with the grant and with a
	// place in the queue, and compares it in every renewal and release.
	Attempt Attempt
	// TTL is how long the grant lasts when nobody renews it. The core has checked it
	// against Info.MinTTL.
	TTL time.Duration
	// Manual says that nobody renews the grant on a schedule. A backend that shares
	// one server-side lease between grants MUST NOT share it with this one.
	Manual bool
	// Owner and Note are shown to people: who holds the key, and why. They never
	// decide anything.
	Owner, Note string
	// Floor is set after a caller accepted that tokens restarted: the grant's token
	// MUST be greater where the backend can raise its counter. A backend that cannot
	// ignores it. A place in a queue keeps it, and whoever grants raises first. Zero:
	// no floor.
	Floor Token
}

// Grant is a key, granted.
type Grant struct {
	// Request is the request that was granted, with TTL as granted: what one renewal
	// buys. A backend that rounds a ttl up says so here.
	Request
	// Token is the fencing token. It never changes while the grant lives. Zero: the
	// outcome of the acquire is unknown (only beside ErrAmbiguous, and in the Grant
	// that the core makes to undo such an attempt).
	Token Token
	// Sent is where Left counts from. Zero: from the core's first send of this
	// TryAcquire, or from the answered send of an Enqueue, Poll or Renew. A driver
	// that needs several requests sets it just before the granting one.
	Sent Instant
	// Left is the least time the server keeps the key, counted from Sent. It is
	// always set; zero or less is over.
	//
	// Sent and Left are one pair:
	//   - TryAcquire, granted by this send: (zero or this send, TTL).
	//   - TryAcquire, found from an earlier send of the attempt: (zero, TTL), since zero
	//     is the first send; or (this send, what remains). Never (this send, TTL), never
	//     (zero, what remains). What a queue granted to the attempt lasts a claim window
	//     only, so it is always (this send, what remains).
	//   - Enqueue and Poll: (zero or this send, what remains by the server's clock in the
	//     same answer). A driver without such a clock sets both by itself.
	//   - Renew: (zero or this send, TTL), and never the Sent it was given.
	Left time.Duration
	// State is the driver's own (an ETag, a lease id, the epoch tried). The core
	// hands back the newest one it was given and never looks inside.
	State any
}

// Driver is what every backend implements.
//
// The core always calls with a deadline: min(ttl/4, 5 s), at least 50 ms, sometimes
// less near the end of a lease or of a caller's wait. A method MUST return within
// Info.Slack of that deadline. Cancellation alone need not interrupt a call in
// flight, but delays it by 2 s at most. A raw context error counts as ErrAmbiguous.
// A driver that goes on with a call in the background after returning MUST write
// nothing to the network after the call's deadline, and drops the answer.
//
// A driver MUST NOT re-send a request inside one call, unless the re-send carries
// the same attempt and its answer counts from the first send. Most clients re-send
// by themselves: turn that off.
type Driver interface {
	// Info describes the backend. It is constant after the constructor returned.
	Info() Info

	// TryAcquire makes one attempt and never waits for the key. An attempt that is
	// sent again MUST return what its first send granted, with the first send's
	// expiry: a re-send extends nothing. Refused: *HeldError, never naming the
	// attempt itself. A counter that has no greater token left is ErrTokenRegression.
	// Beside ErrAmbiguous the Grant may carry Request and State with
	// Token 0, for a Release that needs to know where to look.
	TryAcquire(ctx context.Context, r Request) (Grant, error)

	// Renew makes the grant last its TTL again, counted from this call. It compares
	// attempt and token with what is stored and checks that this very grant exists,
	// not merely that a session is alive. ErrLost: expired, taken over, broken or
	// released; nothing was changed.
	Renew(ctx context.Context, g Grant) (Grant, error)

	// Release ends whatever g.Attempt has: its grant, or its place in the queue. It
	// MUST work from g.Request alone, with Token 0 and State nil, as far as the
	// attempt can be found: this is how the core undoes an unknown acquire and a
	// cancelled wait. Attempts are unique, so the attempt alone says what is meant: a
	// copy that the network delivered late may have given it a grant under another
	// token, and that has to end too. ErrLost: the attempt has nothing, and nobody was
	// touched. Releasing a broken grant is ErrLost too.
	Release(ctx context.Context, g Grant) error

	// Close ends no grant: calls answer ErrClosed from then on, and what is held
	// lapses unless somebody releases it through another driver. Close waits for the
	// driver's own goroutines. The client that the caller passed in stays open.
	Close() error
}

// Queuer is a backend whose server keeps waiters in order and grants to the next one
// itself. It is optional: without it the core polls with TryAcquire.
//
// A place in the queue is live while its last Enqueue or Poll is younger than its
// horizon, [Horizon] of its ttl; a waiter that was killed is passed over after that.
// Who finds a key free or expired (a release, a try, an enqueue, a poll) grants it to the
// first live waiter in the same atomic step, for [ClaimWindow] of its ttl; the waiter's
// first renewal extends that. A renewal, a break (without Now) and an inspection hand
// nothing on.
type Queuer interface {
	// Listen opens the waiter's ear, not its place in the queue. The core opens one
	// per attempt before its first Enqueue, keeps it over that attempt's re-sends,
	// and closes it before the attempt is undone. ctx bounds this call, not the ticket.
	Listen(ctx context.Context, r Request) (Ticket, error)

	// Enqueue takes a place at the end of the queue, or the key itself, for the whole
	// ttl, if it is free and nobody live waits. It never waits. Queued: *HeldError (with Ahead). The core
	// sends it again only after an unknown answer; a re-send finds the place or the
	// grant that the first send made.
	Enqueue(ctx context.Context, r Request) (Grant, error)

	// Poll asks after the place and keeps it alive. It never enqueues and never
	// extends a grant. Granted: the Grant. Still queued: *HeldError. ErrLost: neither
	// queued nor granted.
	Poll(ctx context.Context, r Request) (Grant, error)
}

// Ticket is where pushed grants of one attempt arrive. Wait and Close are called by
// one goroutine.
type Ticket interface {
	// Wait blocks until the server pushed something for this attempt, or ctx ends. It
	// MUST return promptly when ctx ends (with ctx's error). A push is a Grant with
	// Sent and Left set, judged with the clock of an answer to this ticket's own
	// Enqueue or Poll (see [ServerClock]); a push that overtakes that answer is kept
	// for it. (zero Grant, nil): something may have happened, poll now. Pushes may be
	// lost, late and doubled. After the driver's Close: ErrClosed.
	Wait(ctx context.Context) (Grant, error)
	// Close lets go of the ticket. It ends no place and no grant; what is pushed
	// afterwards is ignored and never released: it may be a live lease that a Poll
	// has already found.
	Close()
}

// BatchRenewer renews many grants in one round trip. It is optional.
type BatchRenewer interface {
	// RenewBatch renews up to Info.MaxBatch grants of one ttl. It calls each(i, …)
	// once per grant as the answers arrive, from one goroutine at a time and never
	// after it has returned; grants without a call are ambiguous. A zero Sent counts
	// from the call of RenewBatch. One grant that is stuck at the server MUST NOT
	// hold back the answers of the others where the protocol allows it. The returned
	// error is nil or ErrUnsupported, the latter with nothing sent and each never
	// called; a closed driver says so for each grant.
	RenewBatch(ctx context.Context, gs []Grant, each func(i int, g Grant, err error)) error
}

// Inspector shows who holds what. It is optional, disturbs no grant, and never
// decides anything: what it says is old when it arrives.
type Inspector interface {
	// Inspect returns the state of one key. A key that nobody ever used is not an
	// error: its State says that it is free.
	Inspect(ctx context.Context, key string) (State, error)
	// List yields the state of every key with the prefix that is held, in no
	// particular order, reading page by page. A driver may yield keys that are free.
	// It ends after the first error. Unsupported: (State{}, ErrUnsupported) as its
	// first and only pair.
	List(ctx context.Context, prefix string) iter.Seq2[State, error]
}

// Breaker takes a key away from a holder that cannot let go. It is optional.
type Breaker interface {
	// Break takes the grant's right to renew: the holder's next renewal is ErrLost,
	// and the key is given away when the grant's last deadline has passed, so mutual
	// exclusion stands. With b.Now the key is free at once, and only fences hold back
	// what the old holder still sends. t must be the current holder's token: another
	// one answers the current *HeldError, or ErrLost where the key is free. Breaking
	// what is broken already (with the same token) succeeds.
	Break(ctx context.Context, key string, t Token, b Break) error
}

// Pinger answers whether the backend can be reached at all. It is optional.
type Pinger interface {
	Ping(ctx context.Context) error
}

// Break says how and why a lock is broken.
type Break struct {
	// Now gives the key away at once instead of at the holder's deadline. It is the
	// one operation that suspends mutual exclusion.
	Now bool
	// By and Reason are for people and are stored where the backend can.
	By, Reason string
}

// State is what an inspection shows of one key.
type State struct {
	Key  string
	Held bool
	// Broken: held until its deadline, but its holder can no longer renew.
	Broken bool
	// Token is the holder's, or the last one given if the key is free and the backend
	// still knows it. Zero: none was given, or unknown.
	Token   Token
	Attempt Attempt
	Owner   string
	Note    string
	// HeldFor is the time since the grant, ExpiresIn an upper bound of what is left
	// until the grant ends without a renewal, both by the backend's clock. Negative:
	// unknown.
	HeldFor   time.Duration
	ExpiresIn time.Duration
	// Waiters is how many live places are queued. Negative: the backend keeps none.
	Waiters int
}

const (
	// slowestPoll bounds PollInterval: a waiter that was missed by a push is never
	// more than this away from asking by itself.
	slowestPoll = 5 * time.Second
	// horizonPolls and claimPolls are how many poll intervals a silent place lives,
	// and how many a queued waiter has to claim a pushed grant.
	horizonPolls = 3
	claimPolls   = 2
)

// PollInterval is how often a queued waiter with this ttl asks at the least:
// min(ttl/4, 5 s), from send to send.
func PollInterval(ttl time.Duration) time.Duration { return min(ttl/4, slowestPoll) }

// Horizon is how long a place in a queue lives after its last Enqueue or Poll: three
// poll intervals.
func Horizon(ttl time.Duration) time.Duration { return horizonPolls * PollInterval(ttl) }

// ClaimWindow is how long a queued waiter's grant lasts until its first renewal:
// min(ttl, two poll intervals).
func ClaimWindow(ttl time.Duration) time.Duration { return min(ttl, claimPolls*PollInterval(ttl)) }
