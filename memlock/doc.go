// Package memlock keeps locks in the memory of one process. It excludes nobody
// outside that process, and everything it knows ends with it. Use it in tests, and
// read it to learn what a backend must do: it is the executable specification of
// [driver.Driver] and of every optional interface beside it.
//
//	server := memlock.NewServer()
//	a, b := server.Driver(), server.Driver() // two independent clients
//
// memlock.go is the algorithm, in the order acquire, wait, renew, release, inspect.
// queue.go is what it stands on: one record per key, with a counter, a grant and a
// queue. driver.go and ticket.go are the client's side, where a server's clock is
// turned into the caller's.
//
// # Time
//
// The server has no goroutine and no timer. A grant that has expired is found by
// whoever looks next, and that one grants the key to the first live waiter. The only
// clock is time.Now, so testing/synctest drives everything; a Server that a bubble
// uses must be made inside that bubble, and [Named] must not be called there.
//
// # What stays
//
// A key that was granted once keeps a small record as long as the Server
// lives: the counter behind its tokens must survive every release and expiry.
//
// # Errors
//
// Nothing is ever ambiguous here. A call whose context has ended before it began
// answers [driver.ErrUnavailable], since nothing was applied.
package memlock
