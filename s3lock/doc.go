// Package s3lock is the backend for S3 and its relatives.
package s3lock
