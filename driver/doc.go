// Package driver is the contract between Locker's core and a backend.
//
// Users of locks never need it; they hold a [github.com/fencelock/locker.Locker].
// Authors of backends need nothing else: driver.go is the file to read, top to
// bottom, and conformance is the suite that says whether the result is right.
//
// # What a backend does
//
// A backend answers single requests: one try, one renewal, one release. It never
// waits for a lock, never schedules anything on behalf of a lease, and never
// decides whether a caller may still believe in one. All of that is written once,
// in the core, and holds for every backend.
//
// What a backend must bring is small and hard: in its own order at most one
// unexpired, unreleased grant per key exists; every grant carries a token greater
// than that of every grant of the same key that was returned before it began; and
// every renewal and release compares the attempt that made the grant.
//
// # Time
//
// No two machines agree about the time, so no value in this package is a wall-clock
// time. A grant says from which local [Instant] its remaining time counts (Sent)
// and how long the backend keeps it at the least (Left). A backend with a clock of
// its own turns its expiry into that pair with a [ServerClock].
//
// # Errors
//
// An error is either definite (the backend cannot have applied the request) or it
// is [ErrAmbiguous]. There is nothing between the two, and a guess in the wrong
// direction makes two holders. Wrap the client's raw error beside the sentinel:
// [Wrap] does that.
//
// # Concurrency
//
// Every method of every interface may be called from many goroutines at once,
// unless its comment says otherwise. No method may start a goroutine that outlives
// Close.
package driver
