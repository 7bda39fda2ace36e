package command_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/locker/conformance/live"
)

func TestMain(m *testing.M) { live.Main(m) }

// TestCommand makes the command as users do, and runs it on each kind of server.
func TestCommand(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "locker")
	cmd := exec.Command("go", "build", "-o", binary, ".")
	cmd.Dir = filepath.Join("..", "..", "..", "cmd", "locker")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for name, serve := range servers {
		for what, test := range map[string]func(*testing.T, string, server){
			"runs exclude each other": runsExclude, "held, shown, broken": heldShownBroken, "the server is gone": serverIsGone,
			"locker is killed": killed, "wrong credentials": wrongCredentials,
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				test(t, binary, serve(t))
			})
		}
	}
}

// ttl is short enough to wait for, and long enough for a busy machine.
const ttl = 6 * time.Second

// host is where the command runs: a URL, and an environment with nothing but what it needs.
type host struct {
	t    *testing.T
	path string
	dir  string
	env  []string
}

func on(t *testing.T, binary, url string, env ...string) host {
	t.Helper()
	dir := t.TempDir()
	return host{t, binary, dir, append(env, "LOCKER_URL="+url, "HOME="+dir, "PATH="+os.Getenv("PATH"))}
}

// run is one run of the command, started.
type run struct {
	*exec.Cmd
	t              *testing.T
	stdout, stderr bytes.Buffer
}

func (h host) start(args ...string) *run {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	h.t.Cleanup(cancel)
	r := &run{Cmd: exec.CommandContext(ctx, h.path, args...), t: h.t}
	r.Dir, r.Env = h.dir, h.env
	r.Stdout, r.Stderr = &r.stdout, &r.stderr
	r.WaitDelay = 5 * time.Second
	if err := r.Start(); err != nil {
		h.t.Fatal(err)
	}
	return r
}

// want waits for the end, and for an exit code.
func (r *run) want(code int) string {
	r.t.Helper()
	_ = r.Wait()
	if got := r.ProcessState.ExitCode(); got != code {
		r.t.Errorf("%v: got exit code %d, want %d\n%s%s", r.Args[1:], got, code, &r.stdout, &r.stderr)
	}
	return r.stdout.String() + r.stderr.String()
}

// there waits until the command has made a file.
func (h host) there(name string) {
	h.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; <-time.After(10 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(h.dir, name)); err == nil {
			return
		}
		if time.Now().After(end) {
			h.t.Fatalf("%s was not made", name)
		}
	}
}

// server is one of those that the command locks on.
type server struct {
	url    string
	env    []string
	secret string                      // must never be seen
	pause  func(context.Context) error // it no longer answers
	wrong  struct {                    // how to come with wrong credentials, and what is said
		url  string
		env  []string
		says string
	}
}

const wrong = "wr0ng"

// servers are made for one test, which may harm them.
var servers = map[string]func(t *testing.T) server{
	"redis": func(t *testing.T) server {
		const right = "r1ght"
		s := live.Redis(t, live.RedisOptions{Own: true, Password: right})
		with := func(name, password string) string {
			file := filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			return "redis://" + s.Addr() + "?password_file=" + file
		}
		o := server{url: with("right", right), secret: right, pause: s.Pause}
		o.wrong.url, o.wrong.says = with("wrong", wrong), "password"
		return o
	},
	"s3": func(t *testing.T) server {
		s := live.S3(t, live.S3Options{Own: true})
		o := server{url: s.URL(), secret: s.SecretKey, pause: s.Pause}
		o.env = []string{"AWS_ACCESS_KEY_ID=" + s.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s.SecretKey}
		o.wrong.url, o.wrong.says = s.URL(), "SignatureDoesNotMatch"
		o.wrong.env = []string{o.env[0], "AWS_SECRET_ACCESS_KEY=" + wrong}
		return o
	},
}

// Commands that run under one key never overlap, whatever process and user folder they come
// from, and each has a greater token.
func runsExclude(t *testing.T, binary string, s server) {
	shared := t.TempDir()
	const n = 6
	var runs []*run
	script := `mkdir busy || exit 9; echo $LOCKER_TOKEN >>tokens; sleep 0.2; rmdir busy`
	for range n {
		h := on(t, binary, s.url, s.env...)
		h.dir = shared
		runs = append(runs, h.start("run", "--ttl", ttl.String(), "job", "--", "sh", "-c", script))
	}
	for _, r := range runs {
		r.want(0)
	}
	b, err := os.ReadFile(filepath.Join(shared, "tokens"))
	if err != nil {
		t.Fatal(err)
	}
	last, tokens := uint64(0), strings.Fields(string(b))
	for _, token := range tokens {
		var got uint64
		if _, err := fmt.Sscan(token, &got); err != nil || got <= last {
			t.Errorf("token %q after %d", token, last)
		}
		last = got
	}
	if len(tokens) != n {
		t.Errorf("got %d tokens, want %d", len(tokens), n)
	}
}

// What is held is refused, shown, listed, and broken; the loser's command is stopped.
func heldShownBroken(t *testing.T, binary string, s server) {
	h := on(t, binary, s.url, s.env...)
	holder := h.start("run", "--ttl", ttl.String(), "--owner", "me", "--note", "why", "job", "--", "sh", "-c", "touch started; exec sleep 60")
	h.there("started")
	h.start("run", "-n", "job", "--", "true").want(123)
	h.start("run", "-w", "300ms", "job", "--", "true").want(124)
	h.start("run", "-n", "other", "--", "sh", "-c", "exit 7").want(7)
	var st struct {
		Key, Owner, Note string
		Held             bool
		Token            string
	}
	if err := json.Unmarshal([]byte(h.start("status", "--json", "job").want(0)), &st); err != nil {
		t.Fatal(err)
	}
	if st.Key != "job" || !st.Held || st.Owner != "me" || st.Note != "why" || st.Token == "" {
		t.Errorf("status: got %+v", st)
	}
	if out := h.start("ls").want(0); !strings.Contains(out, "job") || strings.Contains(out, "other") {
		t.Errorf("ls: got %q, want what is held", out)
	}
	h.start("break", "job", "--token", st.Token, "--reason", "a test").want(0)
	if out := holder.want(122); !strings.Contains(out, "lost") {
		t.Errorf("the holder that was broken says %q", out)
	}
	h.start("run", "-w", "20s", "job", "--", "true").want(0)
}

// When the server no longer answers the command is stopped before anybody else can have the
// key.
func serverIsGone(t *testing.T, binary string, s server) {
	h := on(t, binary, s.url, s.env...)
	r := h.start("run", "--ttl", ttl.String(), "job", "--", "sh", "-c", `trap 'touch stopped; exit' TERM; touch started; sleep 60 & wait`)
	h.there("started")
	if err := s.pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	h.there("stopped")
	if took := time.Since(begun); took > ttl {
		t.Errorf("stopped %v after the server, want it within the ttl", took)
	}
	r.want(122)
}

// A locker that is killed takes its command with it, and the key is free a ttl later.
func killed(t *testing.T, binary string, s server) {
	h := on(t, binary, s.url, s.env...)
	r := h.start("run", "--ttl", ttl.String(), "job", "--", "sh", "-c", "echo $$ >pid; mv pid started; exec sleep 60")
	h.there("started")
	if err := r.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = r.Wait()
	h.start("run", "-w", "20s", "job", "--", "sh", "-c", `! kill -0 $(cat started) 2>/dev/null`).want(0)
}

// Who may not enter is told so, and what it came with is not shown.
func wrongCredentials(t *testing.T, binary string, s server) {
	h := on(t, binary, s.wrong.url, s.wrong.env...)
	out := h.start("run", "job", "--", "true").want(125)
	if strings.Contains(out, wrong) || strings.Contains(out, s.secret) {
		t.Errorf("a secret is shown: %q", out)
	}
	if !strings.Contains(out, s.wrong.says) {
		t.Errorf("got %q, want it to say %q", out, s.wrong.says)
	}
}
