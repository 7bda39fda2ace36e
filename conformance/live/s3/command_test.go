package s3_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The command over S3, from its URL to its exit codes.
func TestCommand(t *testing.T) {
	t.Parallel()
	s := shared(t)
	bin := filepath.Join(t.TempDir(), "locker")
	build := exec.Command("go", "build", "-o", bin, ".")
	build.Dir = filepath.Join("..", "..", "..", "cmd", "locker")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the command: %v\n%s", err, out)
	}
	url := s.URL() + "&ns=" + namespace()
	command := func(ctx context.Context, args ...string) *exec.Cmd {
		c := exec.CommandContext(ctx, bin, args...)
		c.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID="+s.AccessKey, "AWS_SECRET_ACCESS_KEY="+s.SecretKey, "LOCKER_URL="+url)
		return c
	}
	// run returns the child's output, what the command said, and its exit code.
	run := func(args ...string) (out, said string, code int) {
		t.Helper()
		c := command(within(t), args...)
		var stdout, stderr bytes.Buffer
		c.Stdout, c.Stderr = &stdout, &stderr
		err := c.Run()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			code = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(stderr.String(), s.SecretKey) {
			t.Errorf("%v: the secret is in %s", args, &stderr)
		}
		return stdout.String(), stderr.String(), code
	}
	for _, want := range []string{"1\n", "2\n"} {
		if out, said, code := run("run", "nightly", "--", "sh", "-c", "echo $LOCKER_TOKEN"); out != want || code != 0 {
			t.Fatalf("run: got %q, %d (%s), want token %q", out, code, said, want)
		}
	}
	if _, _, code := run("run", "nightly", "--", "sh", "-c", "exit 7"); code != 7 {
		t.Errorf("the child's exit code: got %d, want 7", code)
	}
	holder := command(within(t), "run", "held", "--", "cat")
	stdin, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "the key is held", func() bool {
		out, _, _ := run("status", "held")
		return strings.Contains(out, "held by")
	})
	if _, said, code := run("run", "-n", "held", "--", "true"); code != 123 {
		t.Errorf("a held key with -n: got %d (%s), want 123", code, said)
	}
	if out, _, _ := run("ls"); !strings.Contains(out, "held") {
		t.Errorf("ls: got %q", out)
	}
	_ = stdin.Close()
	if err := holder.Wait(); err != nil {
		t.Errorf("the holder: %v", err)
	}
	if out, said, code := run("run", "held", "--", "sh", "-c", "echo $LOCKER_TOKEN"); out != "2\n" || code != 0 {
		t.Errorf("behind the holder: got %q, %d (%s), want token 2", out, code, said)
	}
}
