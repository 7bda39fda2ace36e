// Package filelock keeps locks in a directory: real exclusion between the processes of
// one host, with fencing tokens, and nothing to install.
//
// Each grant is a small file under a number of its own, in a folder per key:
//
//	<dir>/<namespace>/<key>/lock-7       who holds the key; never changes
//	<dir>/<namespace>/<key>/lock-7.end   how the grant ended
//
// A holder renews by setting the file's modification time to the boot clock, and keeps
// the file locked with flock(2) as long as it lives: a killed holder's key is free at
// once, a stopped holder's after its ttl. The algorithm is package epoch's; this
// package is its store. docs/backends/directory.md tells the whole story.
//
// # Weaknesses
//
// One host only: on a file system that several hosts mount, two hosts' boot clocks are
// not one clock. File systems that are known to be local are accepted, all others
// refused by name. Whoever removes or moves the files by hand while the key is held
// suspends mutual exclusion for up to one ttl, and removing them restarts the tokens.
// The files look as if they were from 1970: exempt the directory from cleaners that go
// by age.
//
// # Errors
//
// What the file system refused is driver.ErrUnavailable beside the *fs.PathError, so
// that errors.Is finds fs.ErrPermission, syscall.ENOSPC or syscall.EMFILE: nothing was
// granted. driver.ErrCorrupt is a file that this package did not write.
//
// # Platforms
//
// Linux. Elsewhere NewDriver answers driver.ErrUnsupported: it needs O_TMPFILE or an
// equivalent, a boot clock that all processes share, and a boot id.
package filelock
