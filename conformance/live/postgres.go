package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/testcontainers/testcontainers-go"
)

// PostgresOptions is what a Postgres server can be asked to be. The zero value is a primary that writes everything down
// before it answers, and a server of the environment will do for it.
type PostgresOptions struct {
	// StandbyOf makes it a standby, with asynchronous replication unless the primary's Args say otherwise: its name
	// there is "standby".
	StandbyOf *PostgresServer
	// Own: a server of the environment will not do.
	Own bool
	// Args are further arguments of the server, such as "-c", "synchronous_commit=off".
	Args []string
}

// PostgresServer is a Postgres server. Anybody may log in as any user, without a password, unless it is one of the environment.
type PostgresServer struct {
	*Server
	login   pgLogin
	adopted bool // it is one of the environment
}

// postgresHBA lets everybody in: only this host can reach the port.
const postgresHBA = "local all all trust\nhost all all all trust\nhost replication all all trust\n"

// initAndRun is the command of a server. The local image holds a cluster, the official one does not; and what that one starts from to
// make one gets the arguments too, and then looks for a socket where they say that there is none.
const initAndRun = `set -e
[ -s "$PGDATA/PG_VERSION" ] || initdb -U postgres -A trust -E UTF8 --locale=C.UTF-8 --no-sync
exec "$0" "$@"`

// cloneAndRun is the command of a standby: it copies the primary once, and then runs like any other server. The copy is
// complete when its marker is there.
const cloneAndRun = `set -e
if [ ! -e "$PGDATA/cloned" ]; then
	rm -rf "$PGDATA"/*
	pg_basebackup -h %s -U postgres -D "$PGDATA" -R -X stream -c fast -d application_name=standby
	touch "$PGDATA/cloned"
fi
exec "$0" "$@"`

// Postgres starts a Postgres server for a test, or skips the test.
func Postgres(tb testing.TB, o PostgresOptions) *PostgresServer {
	tb.Helper()
	s := &PostgresServer{login: anybody}
	p := spec{
		image: image{server: "postgres", official: "postgres:17"},
		user:  "postgres", port: 5432, data: "/var/lib/postgresql/data",
		stop:  "SIGINT", // fast: TERM waits for every client to go
		plain: !o.Own && o.StandbyOf == nil && len(o.Args) == 0,
		files: []testcontainers.ContainerFile{{
			Reader: strings.NewReader(postgresHBA), ContainerFilePath: "/pg_hba.conf", FileMode: 0o644,
		}},
		schemes: map[string]string{"postgres": "5432", "postgresql": "5432"},
		adopt:   s.adopt,
		url:     postgresURL,
		ready:   s.answer,
	}
	script := initAndRun
	if o.StandbyOf != nil {
		p.as = o.StandbyOf.name + "-standby"
		p.peers = o.StandbyOf.withPeers(tb)
		script = fmt.Sprintf(cloneAndRun, o.StandbyOf.name)
	}
	p.command = append([]string{
		"bash", "-c", script, "postgres", "-c", "listen_addresses=*", "-c", "unix_socket_directories=/tmp", "-c", "max_connections=300",
		"-c", "hba_file=/pg_hba.conf",
	}, o.Args...)
	s.Server = start(tb, p)
	return s
}

func postgresURL(at string) string { return "postgres://postgres@" + at + "/postgres?sslmode=disable" }

// adopt takes a server of the environment.
func (s *PostgresServer) adopt(u *url.URL, at string) (string, error) {
	s.adopted = true
	user := cmp.Or(u.User.Username(), s.login.user)
	s.login = pgLogin{user, cmp.Or(strings.Trim(u.Path, "/"), user), u.Query().Get("sslmode")}
	return at, nil
}

// answer is the server's first answer to a query. One of the environment may ask for a password: that is an answer too, and
// the last one that is understood here.
func (s *PostgresServer) answer(ctx context.Context, at string) error {
	if !s.adopted {
		_, err := queryPG(ctx, at, s.login, "SELECT 1")
		return err
	}
	c, err := dialPG(ctx, at, s.login)
	if err == nil {
		defer c.Close()
		_, err = c.receive()
	}
	return pgRefused(err)
}

func queryPG(ctx context.Context, at string, as pgLogin, sql string) ([]string, error) {
	c, err := dialPG(ctx, at, as)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.idle(nil); err != nil {
		return nil, err
	}
	return c.query(sql)
}

// Query runs SQL on a connection of its own, as the user and in the database of the URL, and returns the first column of
// each row as text.
func (s *PostgresServer) Query(ctx context.Context, sql string) ([]string, error) {
	rows, err := queryPG(ctx, s.Addr(), s.login, sql)
	if err != nil {
		return nil, fmt.Errorf("live: %s: %q: %w", s.name, sql, err)
	}
	return rows, nil
}

// Promote makes a standby a primary, on a timeline of its own. What has not reached it is lost.
func (s *PostgresServer) Promote(ctx context.Context) error {
	rows, err := s.Query(ctx, "SELECT pg_promote()")
	if err == nil && (len(rows) != 1 || rows[0] != "t") {
		err = errors.New("live: " + s.name + " is not promoted")
	}
	return err
}

// PgBouncerOptions is how a PgBouncer pools.
type PgBouncerOptions struct {
	// Mode is "session", "transaction" or "statement". Empty: "transaction".
	Mode string
	// Settings are further lines of its configuration, such as "default_pool_size = 2".
	Settings []string
}

// PgBouncer starts a PgBouncer before a Postgres server with a handle, for a test, or skips the test.
func PgBouncer(tb testing.TB, upstream *PostgresServer, o PgBouncerOptions) *PostgresServer {
	tb.Helper()
	if o.Mode == "" {
		o.Mode = "transaction"
	}
	settings := strings.Join(append([]string{
		"[databases]", "* = host=" + upstream.name + " port=5432",
		"[pgbouncer]", "listen_addr = *", "listen_port = 6432", "unix_socket_dir =", "pool_mode = " + o.Mode,
		"auth_type = trust", "auth_file = /users.txt", "max_client_conn = 1000", "ignore_startup_parameters = extra_float_digits",
	}, o.Settings...), "\n") + "\n"
	s := &PostgresServer{login: anybody}
	s.Server = start(tb, spec{
		image: image{server: "pgbouncer"},
		user:  "postgres", port: 6432, data: "/data", stop: "SIGINT",
		peers: upstream.withPeers(tb),
		files: []testcontainers.ContainerFile{
			{Reader: strings.NewReader(settings), ContainerFilePath: "/pgbouncer.ini", FileMode: 0o644},
			{Reader: strings.NewReader("\"postgres\" \"\"\n"), ContainerFilePath: "/users.txt", FileMode: 0o644},
		},
		command: []string{"pgbouncer", "/pgbouncer.ini"},
		url:     postgresURL,
		ready:   s.answer,
	})
	return s
}
