// Package boot reads the clock that goes on while the machine sleeps.
package boot
