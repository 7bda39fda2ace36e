//go:build unix

package main_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

const recipes = "../../docs/recipes"

// blocks returns the fenced blocks of a language, with the line before each.
func blocks(t *testing.T, file, language string) (found []struct{ title, text string }) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(recipes, file))
	if err != nil {
		t.Fatal(err)
	}
	fence := regexp.MustCompile("(?ms)^([^\n]*)\n+```" + language + "\n(.*?)^```$")
	for _, m := range fence.FindAllStringSubmatch(string(b), -1) {
		found = append(found, struct{ title, text string }{m[1], m[2]})
	}
	if len(found) == 0 {
		t.Fatalf("%s has no block of %s", file, language)
	}
	return found
}

// cache makes a directory with an old and a young file.
func (h *host) cache(dir string) {
	h.t.Helper()
	if err := os.MkdirAll(h.file(dir), 0o755); err != nil {
		h.t.Fatal(err)
	}
	for name, age := range map[string]time.Duration{"old": 100 * 24 * time.Hour, "young": 0} {
		file := filepath.Join(h.file(dir), name)
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			h.t.Fatal(err)
		}
		at := time.Now().Add(-age)
		if err := os.Chtimes(file, at, at); err != nil {
			h.t.Fatal(err)
		}
	}
}

func (h *host) cleaned(dir string) {
	h.t.Helper()
	if h.exists(dir+"/old") || !h.exists(dir+"/young") {
		h.t.Errorf("%s was not cleaned", dir)
	}
}

// Each line of the crontab runs as cron runs it: through sh, with little in the
// environment, no terminal and no input.
func TestCronRecipe(t *testing.T) {
	t.Parallel()
	var path string
	jobs := 0
	for line := range strings.Lines(blocks(t, "cron.md", "crontab")[0].text) {
		line = strings.TrimSpace(line)
		if p, ok := strings.CutPrefix(line, "PATH="); ok {
			path = p
			continue
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		m := regexp.MustCompile(`^(?:\S+\s+){5}(.*)$`).FindStringSubmatch(line)
		if m == nil || path == "" {
			t.Fatalf("no job, or no PATH before it: %q", line)
		}
		jobs++
		h := newHost(t)
		h.cache(".cache")
		h.env = []string{"HOME=" + h.home, "LOGNAME=somebody", "SHELL=/bin/sh", "PATH=" + filepath.Dir(binary) + ":" + path}
		p := h.command("/bin/sh", "-c", m[1])
		p.SysProcAttr.Setsid = true
		p.want(0)
		if p.stderr.String() != "" {
			t.Errorf("%s: cron would send mail: %s", m[1], p.stderr)
		}
		if strings.Contains(line, "-delete") {
			h.cleaned(".cache")
		}
	}
	if jobs < 3 {
		t.Errorf("%d jobs", jobs)
	}
}

func TestSystemdRecipe(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.cache("cache")
	var units []string
	command := ""
	for _, b := range blocks(t, "systemd.md", "ini") {
		name := filepath.Base(strings.Trim(b.title, "`:"))
		text := strings.ReplaceAll(b.text, "/usr/local/bin/locker", binary)
		if err := os.WriteFile(h.file(name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		units = append(units, h.file(name))
		for line := range strings.Lines(text) {
			if c, ok := strings.CutPrefix(line, "ExecStart="); ok {
				command = c
			}
		}
	}
	if len(units) != 2 || command == "" {
		t.Fatalf("units %q, command %q", units, command)
	}
	// What systemd provides: no home, no shell's path.
	h.env = []string{"LOCKER_URL=file://" + h.file("locks"), "CACHE_DIRECTORY=" + h.file("cache")}
	h.command("/bin/sh", "-c", command).want(0).silent()
	h.cleaned("cache")

	analyze, err := exec.LookPath("systemd-analyze")
	if errors.Is(err, exec.ErrNotFound) {
		return // the units have been run; only their other lines are unchecked
	}
	h.env = []string{"PATH=" + os.Getenv("PATH")}
	p := h.command(analyze, append([]string{"verify", "--man=no"}, units...)...).want(0)
	for _, unit := range units {
		if strings.Contains(p.stderr.String(), filepath.Base(unit)) {
			t.Errorf("systemd-analyze: %s", p.stderr)
		}
	}
}
