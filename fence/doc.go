// Package fence is what a protected resource does with fencing tokens: it remembers
// the greatest token that it has seen and refuses a write with a smaller one. A holder
// that was paused, and wakes after its lease has been given away, can then do no harm.
// No lock service can stop it; only the resource can.
//
// # What a fence cannot do
//
// The weaknesses first.
//
// It refuses a stale write only after a newer holder has shown its token. A new holder
// that neither raised nor wrote, but only read, is invisible: the old holder's write is
// accepted, and the new one has read a value that changed behind its back. So a holder
// calls Raise before its first read.
//
// A mark must be as durable as the data that it protects. A mark in memory forgets
// with the process; data on a disk does not, and after a restart the first stale write
// is accepted. The reverse is as bad: a mark that survives while the lock's counter
// starts again blocks every new holder. Do not keep a mark in the same store that may
// lose the counter behind the tokens.
//
// The check and the write must be one atomic step in the resource: one transaction, one
// conditional write, one critical section. A Gate in front of a resource in another
// process leaves a window: between the check's answer and the moment the write is
// applied, a newer holder may raise the mark and write, and the older write lands on
// top. The window closes only if nothing can pass through it: if the resource itself
// compares the token as it writes, or if every access goes through one process that
// admits nobody else until the resource has answered the write for certain. A timeout
// is no answer; the write may still be on its way.
//
// # What is here
//
// [Gate] does the comparing and keeps its marks in a [Store]. [Marks] is the store in
// memory. [Register] is a whole resource, one value with its fence, for tests and for
// learning. Each backend has a fence of its own for resources in the same kind of
// store, which is atomic where a Gate is not.
//
// The idea is from Kleppmann, "How to do distributed locking" (2016); that equal tokens
// are accepted lets one holder write many times.
//
// # Errors
//
// A refusal is a [StaleError], which is [driver.ErrStale]: nothing was applied.
package fence
