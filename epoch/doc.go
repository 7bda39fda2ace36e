// Package epoch turns a store that can only create, replace and list small records
// into a lock with fencing tokens. It is what s3lock and filelock have in common.
//
// Every grant of a key is a record of its own, under a number that nobody else can
// take: the epoch. The number is the counter behind the token, so the counter needs
// no home of its own and survives whatever the records survive.
//
// # How a key changes hands
//
// A contender looks at the newest record. While that is neither ended nor lapsed, the
// key is held. If it has lapsed, the contender seals it (from then on its holder
// cannot renew it), then creates the next number, which only one contender can, and
// then checks that the number it took is the newest. Without the check a contender
// that slept could create a number that was used and collected long ago.
//
// A holder renews by making its record young again, and releases by ending it. It
// never deletes it: the number must stay taken until newer ones exist.
//
// # Weaknesses
//
// There is no queue: waiters poll, and the order among them is chance. A record that
// is removed by hand takes the counter with it. One small object or directory per key
// ever used stays for ever.
//
// [Store] is the interface a store implements; [Driver] is the algorithm, a
// [driver.Driver]. The tests explore the shipped code completely within small bounds,
// every store call being a point where anything else may happen first.
package epoch
