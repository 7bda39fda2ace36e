// Command gendoc writes docs/conformance.md from the table of cases.
package main

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/fencelock/locker/conformance"
)

//go:embed head.md
var head string

func main() {
	// go generate runs in the package's directory.
	path := filepath.Join("..", "docs", "conformance.md")
	if err := os.WriteFile(path, []byte(page()), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "gendoc:", err)
		os.Exit(1)
	}
}

// page is the whole page.
func page() string {
	var b strings.Builder
	b.WriteString(head)
	cases := conformance.Cases()
	fmt.Fprintf(&b, "\nThere are %d. Ids are permanent.\n", len(cases))
	topic := ""
	for _, k := range cases {
		if t, _, _ := strings.Cut(k.ID, "/"); t != topic {
			topic = t
			fmt.Fprintf(&b, "\n### %s\n\n| case | rule | surface | needs | per push | full |\n|---|---|---|---|---|---|\n", topic)
		}
		surface := k.Surface.String()
		if k.Level == conformance.Extended {
			surface += ", extended"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", k.ID, escape(k.Rule), surface, needs(k), size(k.Push), size(k.Full))
	}
	return b.String()
}

func needs(k conformance.Case) string {
	var names []string
	for _, f := range k.Needs {
		if f != conformance.FeatureCore { // every backend of ours has it
			names = append(names, string(f))
		}
	}
	return strings.Join(names, ", ")
}

func size(s conformance.Size) string { return s.String() }

func escape(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
