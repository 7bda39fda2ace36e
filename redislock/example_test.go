package redislock_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/redislock"
)

// Any URL that locker.Open takes can be one of Redis, once the package is imported.
func Example() {
	ctx := context.Background()
	l, err := locker.Open(ctx, "redis://localhost:6379/0?ns=app&ttl=15s", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	err = l.Do(ctx, "nightly", func(ctx context.Context, lease *locker.Lease) error {
		fmt.Println("token", lease.Token())
		return nil // work, until ctx ends
	})
	if err != nil {
		log.Print(err)
	}
}

// A driver over a client that the program has anyway. Lockers share it.
func ExampleNewDriver() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer func() { _ = client.Close() }()
	d, err := redislock.NewDriver(ctx, client, &redislock.Options{Namespace: "app"})
	if err != nil {
		log.Print(err)
		return
	}
	defer func() { _ = d.Close() }()
	l, err := locker.New(d, nil)
	if err != nil {
		log.Print(err)
		return
	}
	defer func() { _ = l.Close() }()
	fmt.Println(l.Info().Tokens)
}

// A resource in Redis refuses the writes of a holder that was overtaken.
func ExampleFence() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer func() { _ = client.Close() }()
	balance, err := redislock.NewFence(client, "balance")
	if err != nil {
		log.Print(err)
		return
	}
	work := func(ctx context.Context, lease *locker.Lease) error {
		token, err := redislock.Token(lease)
		if err != nil {
			return err
		}
		if err := balance.Raise(ctx, token); err != nil { // before the first read
			return err
		}
		_, err = balance.Do(ctx, token, "INCRBY", "{balance}:value", 100)
		return err
	}
	_ = work
}
