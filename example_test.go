package locker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/memlock"
)

// A cron job on several machines: one of them runs it, the others find that it is being
// done and say nothing.
func Example_cronJob() {
	ctx := context.Background()
	l, err := locker.Open(ctx, "mem://cron", nil) // any backend's URL
	if err != nil {
		log.Print(err)
		return
	}
	defer func() { _ = l.Close() }()

	err = l.Do(ctx, "nightly-report", func(ctx context.Context, lease *locker.Lease) error {
		// The command is killed when the lease ends before it does.
		cmd := exec.CommandContext(ctx, "echo", "report written")
		cmd.Stdout = os.Stdout
		return cmd.Run()
	}, locker.WithWait(0))
	switch {
	case errors.Is(err, locker.ErrHeld):
		return // somebody else is at it
	case err != nil:
		log.Print(err)
		return
	}
	// Output: report written
}

// A service with one active instance: run leads whenever this process has the key, and is
// told to stop by its context when it has not.
func Example_leaderLoop() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	l, err := locker.New(memlock.NewServer().Driver(), nil)
	if err != nil {
		log.Print(err)
		return
	}
	defer func() { _ = l.Close() }()

	run := func(ctx context.Context, lease *locker.Lease) error {
		fmt.Println("leading with token", lease.Token())
		return nil // a real one works until ctx ends; returning steps down for good
	}
	if err := l.Lead(ctx, "scheduler", run); err != nil {
		log.Print(err)
		return
	}
	// Output: leading with token 1
}

// chargeOrder takes an order's lock and writes under its fence: the row remembers the
// greatest token that has written it, and a process that slept through the end of its
// lease changes nothing.
func chargeOrder(ctx context.Context, l *locker.Locker, db *sql.DB, order string, cents int64) error {
	return l.Prefix("orders").Do(ctx, order, func(ctx context.Context, lease *locker.Lease) error {
		// Raise the fence before the first read, so that what is read stays true.
		const fenced = `UPDATE orders SET fence = $1 WHERE id = $2 AND fence <= $1`
		if err := writeFenced(ctx, db, fenced, int64(lease.Token()), order); err != nil {
			return err
		}
		var due int64
		if err := db.QueryRowContext(ctx, `SELECT due FROM orders WHERE id = $1`, order).Scan(&due); err != nil {
			return err
		}
		if due < cents {
			return fmt.Errorf("order %s: %d due, %d to charge", order, due, cents)
		}
		const charge = `UPDATE orders SET fence = $1, due = due - $3 WHERE id = $2 AND fence <= $1`
		return writeFenced(ctx, db, charge, int64(lease.Token()), order, cents)
	}, locker.WithTTL(10*time.Second), locker.WithWait(5*time.Second))
}

// writeFenced runs a statement that changes nothing if the fence is above the token.
func writeFenced(ctx context.Context, db *sql.DB, stmt string, args ...any) error {
	res, err := db.ExecContext(ctx, stmt, args...)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return errors.Join(locker.ErrStale, err)
	}
	return nil
}

// A lock per order, and a database that refuses whoever is late. Any database/sql driver
// will do; the table has a column fence BIGINT NOT NULL DEFAULT 0.
func Example_fencedSQLWrite() {
	var (
		l  *locker.Locker // from Open
		db *sql.DB        // from sql.Open
	)
	charge := func(ctx context.Context) error { return chargeOrder(ctx, l, db, "4711", 1999) }
	_ = charge
}

// A worker that owns ten thousand shards at once: the leases share one schedule, and cost
// no goroutine each.
func Example_manyKeys() {
	ctx := context.Background()
	l, err := locker.New(memlock.NewServer().Driver(), nil)
	if err != nil {
		log.Print(err)
		return
	}
	shards := map[string]*locker.Lease{}
	for i := range 10_000 {
		key := fmt.Sprint("shard-", i)
		lease, err := l.TryAcquire(ctx, key)
		if errors.Is(err, locker.ErrHeld) {
			continue // another worker's
		}
		if err != nil {
			log.Print(err)
			return
		}
		shards[key] = lease
	}
	fmt.Println(len(shards), "shards; the first is valid:", shards["shard-0"].Valid())
	if err := l.Close(); err != nil { // releases them all, in parallel
		log.Print(err)
		return
	}
	fmt.Println("closed:", errors.Is(shards["shard-0"].Err(), locker.ErrClosed))
	// Output:
	// 10000 shards; the first is valid: true
	// closed: true
}

// Importer is a library that is handed a Locker: which backend it is, and how it is
// configured, is its user's business.
type Importer struct {
	locks *locker.Locker
}

// NewImporter makes an Importer that uses keys below "import/".
func NewImporter(locks *locker.Locker) *Importer { return &Importer{locks.Prefix("import")} }

// Import imports one feed at a time, on whatever machine it is called.
func (i *Importer) Import(ctx context.Context, feed string) error {
	return i.locks.Do(ctx, feed, func(ctx context.Context, lease *locker.Lease) error {
		fmt.Println("importing under", lease.Grant().Key)
		return ctx.Err()
	}, locker.WithWait(time.Minute))
}

func Example_library() {
	ctx := context.Background()
	l, err := locker.New(memlock.NewServer().Driver(), nil)
	if err != nil {
		log.Print(err)
		return
	}
	defer func() { _ = l.Close() }()
	if err := NewImporter(l).Import(ctx, "prices"); err != nil {
		log.Print(err)
		return
	}
	// Output: importing under import/prices
}

// TestImportWaitsItsTurn is how to test code that uses locks: memlock inside a synctest
// bubble, where hours pass in no time. Make the server inside the bubble, and close every
// Locker before it ends.
func TestImportWaitsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		holder, _ := locker.New(server.Driver(), nil)
		defer func() { _ = holder.Close() }()
		lease, err := holder.Acquire(t.Context(), "import/prices")
		if err != nil {
			t.Fatal(err)
		}

		other, _ := locker.New(server.Driver(), nil)
		defer func() { _ = other.Close() }()
		begun := time.Now()
		if err := NewImporter(other).Import(t.Context(), "prices"); !errors.Is(err, locker.ErrHeld) || time.Since(begun) != time.Minute {
			t.Errorf("while somebody imports: got %v after %v, want ErrHeld after a minute", err, time.Since(begun))
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := NewImporter(other).Import(t.Context(), "prices"); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}
