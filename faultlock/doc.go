// Package faultlock makes a backend fail on purpose. It decorates any [driver.Driver]
// and injects lost requests, lost replies, delays, silence and duplicates into any of
// its operations, by a schedule that is short enough to print and to replay.
//
//	schedule, err := faultlock.Parse("try#1=after; renew#2=delayback:1.2s; enqueue%0.1=before")
//	…
//	d := faultlock.New(backend, seed, schedule)
//	locks, err := locker.New(d, nil)
//
// # Rules
//
// A rule is operation, key, ordinal, probability, fault; only the first and the last
// are needed. Rules are separated by semicolons or spaces. The first rule that matches
// a call and draws its probability decides; the others are not asked.
//
//	renew=before            every renewal
//	renew[jobs/a]=before    every renewal of one key; ["…"] is a quoted Go string
//	renew#2=before          the second renewal of each key
//	renew#2-5=before        the second to the fifth
//	renew#2-=before         all from the second on
//	renew%0.1=before        one in ten
//	*=before                every operation
//
// The operations are try, renew, release, listen, enqueue, poll, wait, inspect, list,
// break and ping. A batch of renewals is that many renew calls, each with a fault of
// its own, so that one key can be stuck while its neighbours answer at once.
//
// The faults, seen from the caller:
//
//	before          not sent: ErrUnavailable
//	after           applied, the reply is lost: ErrAmbiguous
//	delay:D         sent D later
//	delayback:D     applied at once, the reply comes D later
//	hang            not sent, and nothing is heard: ErrAmbiguous when the context ends
//	hangback        applied, and nothing is heard: ErrAmbiguous when the context ends
//	dup             sent twice; the first answer counts
//	dup:D           sent again D later; the first answer counts
//
// D is a duration or a range, 0s-2s, from which each call draws its own.
//
// # Late deliveries
//
// A driver must write nothing to the network after a call's deadline. This one does,
// and that is its purpose: it plays the network, which may deliver a request at any
// time. Where a delay is longer than the caller's context, the call returns
// ErrAmbiguous when the context ends, and the request still arrives D after it was
// made; a copy made by dup:D arrives whatever became of the first. The answers of such
// requests are dropped. They get as much time as the caller's context had left.
//
// # Waits
//
// For wait the message is the push. An ordinal is taken when a ticket begins to wait
// for its next push, and stays with it over Waits that end with their context.
//
//	wait=before         Wait fails; a push stays in the ear for the next Wait
//	wait=after          a push is swallowed; Wait goes on waiting
//	wait=delay:D        the ear is deaf for D; then it hears what came meanwhile
//	wait=delayback:D    a push is heard D later, by whichever Wait is running then
//	wait=hang           Wait is deaf until its context ends
//	wait=hangback       a push is swallowed; Wait is deaf until its context ends
//	wait=dup, dup:D     a push is heard twice
//
// # Replay
//
// Whether a rule fires is a function of the seed, the rule's position, the operation,
// the key and the ordinal. There is no shared stream of random numbers: the same
// schedule with the same seed decides the same, however goroutines interleave.
// Ordinals begin with 1, per operation and key, when the schedule is set; calls made
// while the faults are disabled are not counted.
//
// # Time
//
// Delays are ordinary timers, so testing/synctest drives them.
package faultlock
