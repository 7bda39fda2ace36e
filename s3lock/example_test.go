package s3lock_test

import (
	"context"
	"fmt"
	"log"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/s3lock"
)

// Any URL that locker.Open takes can be one of S3, once the package is imported.
func Example() {
	ctx := context.Background()
	l, err := locker.Open(ctx, "s3://my-bucket/locks?region=eu-central-1&ttl=1m", nil)
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
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		log.Fatal(err)
	}
	d, err := s3lock.NewDriver(ctx, s3.NewFromConfig(cfg), "my-bucket", &s3lock.Options{Prefix: "locks"})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	l, err := locker.New(d, nil)
	if err != nil {
		log.Print(err)
		return
	}
	defer func() { _ = l.Close() }()
	fmt.Println(l.Info().ExpiryClock)
}

// What a store can do, one line for each thing that locks need.
func ExampleProbe() {
	ctx := context.Background()
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		log.Fatal(err)
	}
	report, err := s3lock.Probe(ctx, s3.NewFromConfig(cfg), "my-bucket", nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(report)
	if err := report.Err(); err != nil {
		log.Print(err)
	}
}

// An object refuses the writes of a holder that was overtaken.
func ExampleFence() {
	ctx := context.Background()
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		log.Fatal(err)
	}
	report, err := s3lock.NewFence(s3.NewFromConfig(cfg), "my-bucket", "reports/latest.csv")
	if err != nil {
		log.Fatal(err)
	}
	work := func(ctx context.Context, lease *locker.Lease) error {
		token, err := s3lock.Token(lease)
		if err != nil {
			return err
		}
		if err := report.Raise(ctx, token); err != nil { // before the first read
			return err
		}
		old, err := report.Read(ctx, token)
		if err != nil {
			return err
		}
		return report.Write(ctx, token, old+"one more line\n")
	}
	_ = work
}
