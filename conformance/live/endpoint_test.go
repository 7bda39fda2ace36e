package live

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// kinds are the servers that the environment can name.
var kinds = map[string]func(testing.TB) handle{
	"redis":    func(tb testing.TB) handle { return Redis(tb, RedisOptions{}) },
	"valkey":   func(tb testing.TB) handle { return Valkey(tb, RedisOptions{}) },
	"etcd":     func(tb testing.TB) handle { return Etcd(tb, EtcdOptions{}) },
	"postgres": func(tb testing.TB) handle { return Postgres(tb, PostgresOptions{}) },
	"s3":       func(tb testing.TB) handle { return S3(tb, S3Options{}) },
	"minio":    func(tb testing.TB) handle { return MinIO(tb, S3Options{}) },
}

// handle is what all kinds have in common.
type handle interface {
	Ours() bool
	URL() string
}

// atEndpoint asks for a server of the environment, without which the test is to fail.
func atEndpoint(t *testing.T, kind, url string) (handle, string) {
	t.Helper()
	_, variable := endpoint(kind)
	t.Setenv(variable, url)
	t.Setenv(requireVariable, kind)
	var h handle
	s := &spy{TB: t}
	s.do(func(tb testing.TB) { h = kinds[kind](tb) })
	if s.skip != "" {
		t.Errorf("%s=%s, which is required: skipped, %s", variable, url, s.skip)
	}
	return h, strings.Join(s.failures(), "\n")
}

// wantEndpoint wants a server that answers.
func wantEndpoint(t *testing.T, kind, url string) handle {
	t.Helper()
	h, failure := atEndpoint(t, kind, url)
	if failure != "" || h == nil {
		t.Fatalf("%s at %s: %s", kind, url, failure)
	}
	if h.Ours() {
		t.Errorf("%s at %s: it counts as ours", kind, url)
	}
	if got := h.URL(); got != url {
		t.Errorf("%s: got the URL %s, want %s", kind, got, url)
	}
	return h
}

// wantRefusal wants an error that names the variable, says what to do, and shows no password.
func wantRefusal(t *testing.T, kind, url string, want ...string) {
	t.Helper()
	h, failure := atEndpoint(t, kind, url)
	if h != nil {
		t.Errorf("%s at %s: it is accepted", kind, url)
	}
	_, variable := endpoint(kind)
	for _, text := range append(want, variable) {
		if !strings.Contains(failure, text) {
			t.Errorf("%s at %s: got %q, want it to have %q", kind, url, failure, text)
		}
	}
	if strings.Contains(failure, "s3cret") {
		t.Errorf("%s at %s: the error shows the password: %s", kind, url, failure)
	}
}

// nowhere is a name that no resolver has to be asked about: a part of it is too long.
var nowhere = strings.Repeat("x", 64) + ".invalid"

// An endpoint without a port means the port of its scheme. One of a host that is unknown, or none, ends the wait at once.
func TestEndpointForms(t *testing.T) {
	for _, c := range []struct{ kind, url, has string }{
		{"redis", "redis://" + nowhere, nowhere + ":6379"},
		{"redis", "rediss://me:s3cret@" + nowhere + "/1", nowhere + ":6379"},
		{"valkey", "redis://" + nowhere + ":77", nowhere + ":77"},
		{"etcd", "etcd://me:s3cret@" + nowhere, nowhere + ":2379"},
		{"etcd", "etcd://" + nowhere + ":77,a,b?x=y", nowhere + ":77"},
		{"postgres", "postgres://me:s3cret@" + nowhere + "/db", nowhere + ":5432"},
		{"postgres", "postgresql://" + nowhere, nowhere + ":5432"},
		{"s3", "s3://bucket?endpoint=http://" + nowhere, nowhere + ":80"},
		{"minio", "s3://bucket?endpoint=https://" + nowhere, nowhere + ":443"},
	} {
		wantRefusal(t, c.kind, c.url, c.has, "correct the name of the host")
	}
	for _, c := range []struct{ kind, url, has string }{
		{"redis", "redis:///0", "the host is missing: write redis://host:6379"},
		{"redis", "redis://:77", "the host is missing"},
		{"redis", "http://host:6379", `the scheme "http" is not one that tests can use, which are: redis, rediss`},
		{"valkey", "redis+cluster://host", "the scheme"},
		{"valkey", "redis://me:s3cret%@host", "is not a URL"},
		{"redis", "rediss://host?ca=/no/such/file", "/no/such/file"},
		{"redis", "redis://" + nowhere + ":99999", "the port is 99999, and not one from 1 to 65535"},
		{"valkey", "redis://" + nowhere + ":0", "the port is 0"},
		{"etcd", "etcd://host,host:99999", "the port is 99999"},
		{"redis", "redis://me:s3cret@" + nowhere + "/orders", `the database is "orders", and not a number`},
		{"redis", "redis://" + nowhere + "/0/1", `the database is "0/1"`},
		{"valkey", "redis://" + nowhere + "/0%20", `the database is "0 "`},
		{"redis", "redis://" + nowhere + "/-1", `the database is "-1"`},
		{"s3", "s3://?endpoint=http://host", "the bucket is missing"},
		{"minio", "s3://bucket?endpoint=http://host:70000", "the port is 70000"},
		{"etcd", "http://host:2379", "want etcd://host:2379"},
		{"etcd", "etcd://", "the host is missing"},
		{"etcd", "etcd://me:s3cret%@host", "not escaped"},
		{"postgres", "mysql://host", "which are: postgres, postgresql"},
		{"s3", "https://bucket", "the scheme"},
		{"s3", "s3://bucket", "endpoint=http://host:port is missing"},
		{"s3", "s3://bucket?endpoint=ftp://host", "want http://"},
		{"minio", "s3://me:s3cret@bucket?endpoint=http://host", "AWS_ACCESS_KEY_ID"},
	} {
		wantRefusal(t, c.kind, c.url, c.has)
	}
}

// What a server that starts answers, or a port where nothing listens yet, is no refusal.
func TestRefused(t *testing.T) {
	for _, err := range []error{
		&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
		&net.DNSError{Err: "server misbehaving", IsTemporary: true},
		redisRefused(replyError("LOADING Redis is loading the dataset in memory")),
		redisRefused(replyError("ERR max number of clients reached")),
		pgRefused(&pgError{code: "57P03"}),
		pgRefused(&pgError{code: "53300"}),
		refusedHTTP(http.StatusServiceUnavailable, errors.New("no leader"), etcdRefusals),
	} {
		var final refusal
		if errors.As(refused(err), &final) {
			t.Errorf("%v counts as final", err)
		}
	}
}

// listen serves connections one after another, on the address that it returns.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serve(conn)
			conn.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return l.Addr().String()
}

// answering is a server of the protocol of Redis that answers each command.
func answering(t *testing.T, answer func(command string) string) string {
	return listen(t, func(conn net.Conn) {
		c := &resp{Conn: conn, in: bufio.NewReader(conn)}
		for {
			v, err := c.read()
			if err != nil {
				return
			}
			command := strings.Trim(fmt.Sprint(v), "[]")
			if _, err := fmt.Fprintf(conn, "%s\r\n", answer(command)); err != nil {
				return
			}
		}
	})
}

func TestRedisEndpoint(t *testing.T) {
	var asked atomic.Int64
	starts := listen(t, func(conn net.Conn) {
		switch asked.Add(1) {
		case 1: // as a port that Docker publishes before the server listens
		case 2:
			_, _ = fmt.Fprint(conn, "-LOADING Redis is loading the dataset in memory\r\n")
		default:
			_, _ = fmt.Fprint(conn, "+PONG\r\n")
		}
	})
	wantEndpoint(t, "redis", "redis://"+starts)

	login := []string{"AUTH me s3cret", "SELECT 3", "PING"} // in this order
	done := 0
	strict := answering(t, func(command string) string {
		if done == len(login) || command != login[done] {
			return "-WRONGPASS invalid username-password pair or user is disabled."
		}
		done++
		return "+OK"
	})
	wantEndpoint(t, "valkey", "redis://me:s3cret@"+strict+"/3")
	if done != len(login) {
		t.Errorf("of the user, the database and the question %d were sent", done)
	}
	wantRefusal(t, "valkey", "redis://:s3cret@"+strict, "WRONGPASS", "correct the user and the password")
	for answer, want := range map[string]string{
		"-ERR DB index is out of range":                          "correct the number of the database",
		"-NOAUTH Authentication required.":                       "correct the user and the password",
		"-NOPERM User me has no permissions to run 'ping'":       "the server's rights",
		"-ERR AUTH <password> called without any password":       "correct the user and the password",
		"HTTP/1.1 400 Bad Request":                               "this is no Redis",
		"\x15\x03\x01\x00\x02\x02\x46":                           "use the scheme rediss",
		"-DENIED Redis is running in protected mode because ...": "the server's rights",
	} {
		wantRefusal(t, "redis", "redis://"+answering(t, func(string) string { return answer }), want)
	}
	plain := listen(t, func(conn net.Conn) { _, _ = fmt.Fprint(conn, "-ERR Protocol error\r\n") })
	wantRefusal(t, "redis", "rediss://"+plain, "use the scheme without it")
}

func TestEtcdEndpoint(t *testing.T) {
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Name, Password string }
		_ = json.NewDecoder(r.Body).Decode(&body) // of another call it stays empty
		switch {
		case r.URL.Path == "/v3/auth/authenticate" && body.Name == "me" && body.Password == "s3cret":
			fmt.Fprint(w, `{"token":"t"}`)
		case r.URL.Path == "/v3/auth/authenticate":
			http.Error(w, "etcdserver: authentication failed, invalid user ID or password", http.StatusBadRequest)
		case r.Header.Get("Authorization") != "t":
			http.Error(w, "etcdserver: user name is empty", http.StatusBadRequest)
		default:
			if asked++; asked == 1 {
				http.Error(w, "etcdserver: no leader", http.StatusServiceUnavailable)
				return
			}
			fmt.Fprint(w, `{"header":{"member_id":"1"}}`)
		}
	}))
	t.Cleanup(s.Close)
	host := s.Listener.Addr().String()
	c := wantEndpoint(t, "etcd", "etcd://me:s3cret@"+host+"?x=y").(*EtcdCluster)
	if asked != 2 {
		t.Errorf("a node without a leader: asked %d times, want 2", asked)
	}
	if _, err := c.Get(t.Context(), c.Nodes[0], "k"); err != nil {
		t.Errorf("get as the user of the URL: %v", err)
	}
	if err := c.All(t.Context(), (*Server).Kill); !errors.Is(err, ErrNoHandle) {
		t.Errorf("kill: got %v, want %v", err, ErrNoHandle)
	}
	wantRefusal(t, "etcd", "etcd://me:wrong@"+host, "correct the user and the password")
	wantRefusal(t, "etcd", "etcd://"+host, "user name is empty", "correct the user and the password")

	wantRefusal(t, "etcd", "etcd://"+answers(t, http.StatusForbidden, ""), "role root")
	wantRefusal(t, "etcd", "etcd://"+answers(t, http.StatusNotFound, ""), "this is no etcd")
	wantRefusal(t, "etcd", "etcd://"+answers(t, http.StatusOK, "{}"), "this is no etcd")
	wantRefusal(t, "etcd", "etcd://"+encrypted(t), "the server speaks TLS")
}

// answers is a server that has one answer to everything.
func answers(t *testing.T, status int, body string) (host string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// encrypted is a server with a certificate that nobody trusts.
func encrypted(t *testing.T) (host string) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = silent
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}
