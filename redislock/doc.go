// Package redislock is the backend for Redis and Valkey.
package redislock
