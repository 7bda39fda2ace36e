// Package live runs the conformance suite on real servers.
package live
