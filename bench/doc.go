// Package bench compares Locker with the libraries that people use today: the same scenario,
// the same server, one run, each library as it comes and as its documentation tunes it.
//
//	go test -bench . -benchtime 200x ./bench
//
// Compare numbers of one run only: what they are in milliseconds is the machine's.
package bench
