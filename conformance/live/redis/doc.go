// Package redis runs the conformance suite, and everything that only redislock promises, on
// real Redis and Valkey servers.
package redis
