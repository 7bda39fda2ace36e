// Package mutate applies the patches that break the product on purpose, so that a test can
// show that it catches the fault. The product has no seams for them: the broken files
// reach the compiler by go test -overlay.
//
// A patch is a text file:
//
//	test: TestR01CountsFromFirstSend
//	why: a re-send changes nothing at the backend, so its own send promises too much
//	--- acquire.go
//	@@
//	-	return q.accept(a, g, a.first)
//	+	return q.accept(a, g, a.sent)
//
// A hunk begins with @@ and holds context, removed and added lines like a unified diff,
// without line numbers: what it removes, with its context, must stand exactly once in the
// file.
package mutate

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
)

// Mutant is one broken variant.
type Mutant struct {
	Name  string   // the file's name without its ending
	Tests []string // the tests that must fail
	Why   string   // what is wrong with it
	files []file
}

type file struct {
	name  string // relative to the directory that is mutated
	hunks []hunk
}

type hunk struct{ old, new string }

// Load reads every *.patch of a directory, sorted by name.
func Load(dir string) ([]Mutant, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return nil, err
	}
	var ms []Mutant
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			return nil, err
		}
		m, err := parse(strings.TrimSuffix(filepath.Base(p), ".patch"), string(b))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		ms = append(ms, m)
	}
	return ms, nil
}

func parse(name, text string) (Mutant, error) {
	m := Mutant{Name: name}
	for n, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		switch {
		case len(m.files) == 0 && strings.HasPrefix(line, "test: "):
			m.Tests = append(m.Tests, strings.TrimPrefix(line, "test: "))
		case len(m.files) == 0 && strings.HasPrefix(line, "why: "):
			m.Why = strings.TrimPrefix(line, "why: ")
		case strings.HasPrefix(line, "--- "):
			m.files = append(m.files, file{name: strings.TrimPrefix(line, "--- ")})
		case len(m.files) > 0 && line == "@@":
			f := &m.files[len(m.files)-1]
			f.hunks = append(f.hunks, hunk{})
		case len(m.files) > 0 && len(m.files[len(m.files)-1].hunks) > 0:
			hs := m.files[len(m.files)-1].hunks
			if err := hs[len(hs)-1].add(line); err != nil {
				return m, fmt.Errorf("line %d: %w", n+1, err)
			}
		default:
			return m, fmt.Errorf("line %d: %q: want test:, why:, --- file or @@", n+1, line)
		}
	}
	if len(m.Tests) == 0 || m.Why == "" || len(m.files) == 0 {
		return m, fmt.Errorf("want test:, why: and at least one file")
	}
	return m, nil
}

func (h *hunk) add(line string) error {
	switch {
	case line == "":
		h.old += "\n"
		h.new += "\n"
	case line[0] == ' ':
		h.old += line[1:] + "\n"
		h.new += line[1:] + "\n"
	case line[0] == '-':
		h.old += line[1:] + "\n"
	case line[0] == '+':
		h.new += line[1:] + "\n"
	default:
		return fmt.Errorf("%q: want a line that begins with space, - or +", line)
	}
	return nil
}

// Overlay writes the files that the mutants break below tmp, and the overlay file for
// go test -overlay, whose path it returns. root is the directory that the patches' names
// are relative to. Several mutants in one overlay must each be switched on by something.
// extra adds files to the overlay: what they replace, by what. A patch that no longer
// applies is an error.
func Overlay(root, tmp string, extra map[string]string, ms ...Mutant) (string, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return "", err
	}
	broken := map[string]string{}
	for _, m := range ms {
		if err := m.apply(root, broken); err != nil {
			return "", err
		}
	}
	replace := maps.Clone(extra)
	if replace == nil {
		replace = map[string]string{}
	}
	for path, text := range broken {
		file := filepath.Join(tmp, fmt.Sprintf("%d-%s", len(replace), filepath.Base(path)))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[path] = file
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(tmp, "overlay.json")
	return overlay, os.WriteFile(overlay, b, 0o600)
}

// apply breaks the files' texts, reading what is not there yet.
func (m Mutant) apply(root string, texts map[string]string) error {
	for _, f := range m.files {
		path := filepath.Join(root, filepath.FromSlash(f.name))
		if _, ok := texts[path]; !ok {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			texts[path] = string(b)
		}
		for _, h := range f.hunks {
			if n := strings.Count(texts[path], h.old); n != 1 {
				return fmt.Errorf("mutant %s no longer applies: %s has %d times, want once:\n%s", m.Name, f.name, n, h.old)
			}
			texts[path] = strings.Replace(texts[path], h.old, h.new, 1)
		}
	}
	return nil
}

// Overlay is the overlay of this mutant alone.
func (m Mutant) Overlay(root, tmp string) (string, error) { return Overlay(root, tmp, nil, m) }
