package live

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPostgresServer(t *testing.T) {
	t.Parallel()
	s := Postgres(t, PostgresOptions{})
	if !s.Ours() {
		return // it has answered; whether it lets us in is its own affair
	}
	query(t, s, "CREATE TABLE t (v text)")
	query(t, s, "INSERT INTO t VALUES ('one')")
	wantRows(t, s, "SELECT v FROM t", "one")
	wantRows(t, s, "SELECT current_setting('server_version_num')::int / 10000", "17")
	wantRows(t, s, "SELECT current_setting('fsync') || current_setting('synchronous_commit') || current_setting('max_connections')", "onon300")
	for as, todo := range map[pgLogin]string{
		{"postgres", "orders", ""}:          "make the database first",
		{"me", "postgres", "prefer"}:        "correct the user",
		{"postgres", "postgres", "require"}: "turn TLS on there",
	} {
		_, err := queryPG(t.Context(), s.Addr(), as, "SELECT 1")
		wantFinal(t, as.user+" in "+as.database, pgRefused(err), todo)
	}
	// An image without a cluster, as the official one is.
	version, err := s.Exec(t.Context(), "env", "PGDATA=/tmp/own", "bash", "-c", initAndRun, "cat", "/tmp/own/PG_VERSION")
	if err != nil || !strings.HasSuffix(version, "\n17\n") {
		t.Errorf("a server's command in an image without a cluster: got %q, %v", version, err)
	}
	testPause(t, s.Server, func(ctx context.Context) error {
		_, err := s.Query(ctx, "SELECT 1")
		return err
	})
	if err := s.Crash(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantRows(t, s, "SELECT v FROM t", "one")
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantRows(t, s, "SELECT v FROM t", "one")
}

// A promoted standby has what reached it, nothing of what did not, and a timeline of its own. It survives a kill.
func TestPostgresPromotion(t *testing.T) {
	t.Parallel()
	primary := Postgres(t, PostgresOptions{Args: []string{"-c", "wal_sender_timeout=2s"}})
	query(t, primary, "CREATE TABLE t (v text)")
	standby := Postgres(t, PostgresOptions{StandbyOf: primary})
	query(t, primary, "INSERT INTO t VALUES ('one')")
	eventually(t, func(ctx context.Context) bool {
		rows, _ := standby.Query(ctx, "SELECT v FROM t")
		return slices.Equal(rows, []string{"one"})
	})
	wantRows(t, standby, "SELECT pg_is_in_recovery()", "t")
	wantRows(t, primary, "SELECT application_name FROM pg_stat_replication", "standby")

	if err := standby.Disconnect(t.Context()); err != nil {
		t.Fatal(err)
	}
	query(t, primary, "INSERT INTO t VALUES ('lost')")
	if err := primary.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	query(t, standby, "INSERT INTO t VALUES ('two')")
	query(t, standby, "CHECKPOINT") // the timeline of the control file is that of the last one
	if err := standby.Crash(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantRows(t, standby, "SELECT v FROM t ORDER BY v", "one", "two")
	wantRows(t, standby, "SELECT timeline_id FROM pg_control_checkpoint()", "2")
}

// Behind PgBouncer two transactions of one client may run on two connections of the server, and the modes differ in that.
func TestPgBouncer(t *testing.T) {
	t.Parallel()
	pg := Postgres(t, PostgresOptions{Own: true})
	for mode, patience := range map[string]time.Duration{"transaction": time.Minute, "session": pauseShows} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := PgBouncer(t, pg, PgBouncerOptions{Mode: mode, Settings: []string{"default_pool_size = 1"}})
			first, err := dialPG(t.Context(), b.Addr(), anybody)
			if err != nil {
				t.Fatal(err)
			}
			defer first.Close()
			if err := first.idle(nil); err != nil {
				t.Fatal(err)
			}
			if _, err := first.query("SELECT 1"); err != nil {
				t.Fatal(err)
			}
			// The first client keeps its connection open, but no transaction.
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err = b.Query(ctx, "SELECT 1")
			if got, want := err == nil, mode == "transaction"; got != want {
				t.Errorf("a second client of a pool of one: answered %v (%v), want %v", got, err, want)
			}
		})
	}
}

func query(t *testing.T, s *PostgresServer, sql string) []string {
	t.Helper()
	rows, err := s.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func wantRows(t *testing.T, s *PostgresServer, sql string, want ...string) {
	t.Helper()
	if got := query(t, s, sql); !slices.Equal(got, want) {
		t.Errorf("%s: %s: got %s, want %s", s.Name(), sql, strings.Join(got, ", "), strings.Join(want, ", "))
	}
}
