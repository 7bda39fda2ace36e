package filelock

import "github.com/fencelock/locker/driver"

// Options are what a directory can be told. The zero value is fine.
type Options struct {
	// Namespace is the name of the subdirectory that holds the keys. Empty: locker.
	Namespace string
	// TokenBase is added to every token. It is fixed when the namespace is created.
	TokenBase driver.Token
	// NoSync leaves out fsync: faster, and a power loss may make tokens start again.
	// It is fixed when the namespace is created, because one client without fsync
	// would break the promise to all others.
	NoSync bool
	// Keep is how many old numbers of a key are kept. Zero: 8.
	Keep int
}

const defaultNamespace = "locker"

// name is Info.Name.
const name = "filelock"
