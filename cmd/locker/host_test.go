//go:build unix

package main_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const warning = "locker: locking on this host only; set LOCKER_URL or pass --local\n"

// A job that has lost its LOCKER_URL must not become one lock per host in silence.
func TestDefaultDirectoryWarns(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.locker("run", "key", "--", "true").want(0)
	if got := p.stderr.String(); got != warning {
		t.Errorf("stderr: got %q, want %q", got, warning)
	}
	if !h.exists(".local/state/locker") {
		t.Error("not in the user's state folder")
	}
	h.locker("run", "--local", "key", "--", "true").want(0).silent()
	p = h.locker("status", "key").want(0)
	if got := p.stderr.String(); got != warning {
		t.Errorf("status, stderr: got %q, want %q", got, warning)
	}
}

func TestStateFolder(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.env = append(h.env, "XDG_STATE_HOME="+h.file("state of things"))
	h.locked("true").want(0).silent()
	if !h.exists("state of things/locker") || h.exists(".local") {
		t.Error("XDG_STATE_HOME was not used")
	}
}

func TestURL(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	holder := h.locker("run", "-u", "file://"+h.file("locks"), "key", "--", "sh", "-c", "echo $$ > holder; exec sleep 60").start()
	h.pid("holder")
	h.env = append(h.env, "LOCKER_URL=file://"+h.file("locks"))
	p := h.locker("run", "-n", "key", "--", "true").want(123)
	contains(t, "stderr", p.stderr.String(), "held by")
	h.locker("run", "-n", "key2", "--", "true").want(0).silent()
	h.locker("run", "-u", "FILE://"+h.file("locks"), "-n", "key", "--", "true").want(123)
	h.locker("run", "--local", "-n", "key", "--", "true").want(0).silent()
	h.locker("run", "-u", "file://"+h.file("others"), "-n", "key", "--", "true").want(0).silent()
	holder.signal(syscall.SIGTERM)
	holder.ended(143)
	// The ttl in the URL counts.
	h.locker("run", "-u", "file://"+h.file("locks")+"?ttl=9s", "key", "--", "sh", "-c", "test $LOCKER_TTL = 9").want(0)
	h.locker("run", "-u", "file://"+h.file("locks")+"?ttl=9s", "--kill-after", "4s", "key", "--", "true").want(125)
	h.env = append(h.env, "LOCKER_URL=")
	contains(t, "empty", h.locker("run", "-n", "key", "--", "true").want(0).stderr.String(), warning)
}

// What stands on stderr is locker's, in one line, and not a client library's.
func TestServerIsNotThere(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := closed.Addr().String()
	closed.Close()
	for _, url := range []string{"redis://" + address, "s3://bucket/locks?region=none&endpoint=http://" + address} {
		h.env = append(h.env, "AWS_ACCESS_KEY_ID=none", "AWS_SECRET_ACCESS_KEY=none")
		p := h.locker("run", "-n", "-u", url, "key", "--", "touch", "ran").want(125)
		if s := p.stderr.String(); !strings.HasPrefix(s, "locker: open "+url[:5]) || strings.Count(s, "\n") != 1 || !strings.Contains(s, "refused") {
			t.Errorf("%s: want one line of locker's, got %q", url, s)
		}
	}
	if h.exists("ran") {
		t.Error("the command has run")
	}
}

// No directory is as good as the right one.
func TestNoHome(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for env, says := range map[string]string{
		"NONE=": "HOME is not set", "HOME=": "HOME is not set", "XDG_STATE_HOME=relative": "HOME is not set",
		"HOME=relative": `HOME is "relative", which is not an absolute path`,
	} {
		h.env = []string{"PATH=" + os.Getenv("PATH"), env}
		p := h.locker("run", "key", "--", "touch", "ran").want(125)
		contains(t, env, p.stderr.String(), says)
		contains(t, env, p.stderr.String(), "LOCKER_URL")
		p = h.locker("run", "--local", "key", "--", "touch", "ran").want(125)
		contains(t, env, p.stderr.String(), "instead of --local pass --url")
	}
	if h.exists("ran") {
		t.Error("the command has run")
	}
	h.locker("run", "-u", "file://"+h.file("locks"), "key", "--", "true").want(0).silent()
}

// notRoot makes the host one of an ordinary user, if this user is root.
func (h *host) notRoot() {
	h.t.Helper()
	if os.Getuid() != 0 {
		return
	}
	const nobody = 65534
	h.as = &syscall.Credential{Uid: nobody, Gid: nobody}
	for dir := h.home; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			h.t.Fatal(err)
		}
	}
	if err := os.Chown(h.home, nobody, nobody); err != nil {
		h.t.Fatal(err)
	}
}

func TestOrdinaryUser(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.notRoot()
	h.locked("test $(id -u) != 0 && exit 3").want(3).silent()
	holder := h.holding()
	h.locked("true", "-n").want(123)
	holder.signal(syscall.SIGTERM)
	holder.ended(143)
	h.free()

	// A folder that may not be written is named.
	if err := os.Mkdir(h.file("closed"), 0o555); err != nil {
		t.Fatal(err)
	}
	h.env = append(h.env, "XDG_STATE_HOME="+h.file("closed"))
	p := h.locked("true").want(125)
	contains(t, "stderr", p.stderr.String(), "permission denied")
	contains(t, "stderr", p.stderr.String(), h.file("closed"))
}

// Users share a directory that was made for that before its first key, as the recipes say.
func TestUsersShareADirectory(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can be two users")
	}
	h := newHost(t)
	h.notRoot()
	user := h.as
	for _, mode := range []string{"2770", "1777", "755"} {
		h.as = nil
		dir := h.file("locks-" + mode)
		h.command("install", "-d", "-m", mode, "-g", "65534", dir).want(0)
		locked := func(code int) *process {
			return h.locker("run", "-n", "-u", "file://"+dir, "key", "--", "sh", "-c", "exit 3").want(code)
		}
		locked(3).silent() // root is first
		h.as = user
		if mode == "755" { // what systemd's StateDirectory= makes
			contains(t, mode, locked(125).stderr.String(), "permission denied")
			continue
		}
		locked(3).silent()
		h.as = nil
		locked(3).silent()
	}
}

func TestReadOnlyFileSystem(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for _, dir := range []string{"empty", "used/locker"} {
		if err := os.MkdirAll(h.file(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.locker("run", "-u", "file://"+h.file("used/locker"), "key", "--", "true").want(0)
	for _, dir := range []string{"empty", "used"} {
		p := h.command("unshare", "-rm", "sh", "-c", fmt.Sprintf(
			`mount --bind %[1]s %[1]s && mount -o remount,ro,bind %[1]s || exit 99
			XDG_STATE_HOME=%[1]s exec %[2]q run --local key -- true`, h.file(dir), binary))
		p.start()
		if p.wait() == 99 || strings.Contains(p.stderr.String(), "unshare") {
			t.Skipf("cannot mount here: %s", p.stderr)
		}
		p.ended(125)
		contains(t, "stderr", p.stderr.String(), "read-only file system")
		contains(t, "stderr", p.stderr.String(), h.file(dir))
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.locker("--help").want(0)
	for _, c := range []string{"run", "status", "ls", "watch", "break"} {
		contains(t, "help", p.stdout.String(), "\n  "+c+" ")
		contains(t, c, h.locker(c, "--help").want(0).stdout.String(), "Examples:")
	}
	contains(t, "help", h.locker("help", "run").want(0).stdout.String(), "--max-hold")
	contains(t, "completion", h.locker("completion", "bash").want(0).stdout.String(), "locker")
	for _, c := range []string{"verify", "doctor", "compare", "bench", "lab", "trace", "fence"} {
		if strings.Contains(p.stdout.String(), "\n  "+c+" ") {
			t.Errorf("%s is offered but not there", c)
		}
	}
	if h.locker("--version").want(0).stdout.String() == "" {
		t.Error("no version")
	}
}
