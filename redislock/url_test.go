package redislock_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/locker"
	_ "github.com/fencelock/locker/redislock"
)

func TestSchemes(t *testing.T) {
	t.Parallel()
	for _, want := range []string{"redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"} {
		if !slices.Contains(locker.Schemes(), want) {
			t.Errorf("schemes: got %v, want %s among them", locker.Schemes(), want)
		}
	}
}

// What is wrong with a URL is said before anything is dialled, and without its secrets.
func TestBadURLs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty, junk := filepath.Join(dir, "empty"), filepath.Join(dir, "junk")
	for file, content := range map[string]string{empty: "\n", junk: "no certificate"} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for url, want := range map[string]string{
		"redis://:hunter2@h/notanumber":                     "number of a database",
		"redis://:hunter2@h?max_retries=5":                  "max_retries",
		"redis://:hunter2@h?allow_evictions=true":           `did you mean "allow_eviction"`,
		"redis://:hunter2@h?allow_eviction=yes":             "allow_eviction",
		"redis://:hunter2@h?wait_replicas=-1":               "wait_replicas",
		"redis://:hunter2@h?tokens=clock":                   "clock-floor",
		"redis://:hunter2@h?ns=a%7Bb":                       "braces",
		"redis://:hunter2@h?ca=" + junk:                     "rediss",
		"rediss://:hunter2@h?ca=" + junk:                    "no certificate in PEM",
		"rediss://:hunter2@h?ca=" + dir + "/none":           "no such file",
		"rediss://:hunter2@h?cert=" + junk:                  "cert and key",
		"redis://:hunter2@h?password_file=" + empty:         "is empty",
		"redis://:hunter2@h?password_file=" + dir + "/no":   "no such file",
		"redis+sentinel://:hunter2@h":                       "master_name",
		"redis+cluster://:hunter2@h?master_name=m":          "master_name",
		"redis+cluster://h?addr=u:hunter2@h:6379":           "addr: want host:port",
		"redis+sentinel://h?master_name=m&addr=u:hunter2@h": "addr: want host:port",
		"redis:///0":                        "host",
		"redis://:hunter2@h?pool_size=many": "pool_size",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		l, err := locker.Open(ctx, url, nil)
		cancel()
		if err == nil {
			_ = l.Close()
			t.Errorf("Open(%q): got nil, want an error that says %q", url, want)
			continue
		}
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("Open(%q): got %v, want it to say %q, and not the password", url, err, want)
		}
	}
}
