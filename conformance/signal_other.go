//go:build !unix

package conformance

import "os"

// Elsewhere a process cannot be frozen: the process cases are undeclared.
var stopSignal, continueSignal os.Signal
