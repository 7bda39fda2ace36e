// Package bench compares Locker with the libraries that people use today: the same scenario,
// the same server, one run, each library as it comes and as its documentation tunes it.
//
//	go test -bench . -benchtime 200x ./bench
//
// Compare numbers of one run only: what they are in milliseconds is the machine's. Uncontended shows
// the median of an acquire and a release for each library, and locker's by that of the fastest
// other; ns/op is a round over all of them. HotKey shows hand-offs by the ceiling that the
// holds allow, commands by hand-off, Jain's index of fairness (1: all alike), and who was never
// served. A library is there as it comes and as its documentation tunes it: redsync and bsm by
// the interval at which they try again, rueidis with three keys for each lock or one.
package bench
