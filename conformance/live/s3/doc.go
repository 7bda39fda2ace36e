// Package s3 runs the conformance suite, and everything that only s3lock promises, on real S3
// servers.
package s3
