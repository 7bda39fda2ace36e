//go:build unix

package main_test

import "runtime"

// adopts: Linux tells a process of everything its descendants leave behind, and kills a
// command when its parent dies.
const adopts = runtime.GOOS == "linux"
