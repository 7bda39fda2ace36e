//go:build unix

package main_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// beside starts locker run by a script that has started helpers and then becomes locker
// (exec): they are below it, and no part of the command.
func (h *host) beside(helpers, script string, flags string) *process {
	return h.command("bash", "-c", fmt.Sprintf("%s\nexec %q run --local %s key -- sh -c '%s'", helpers, binary, flags, script))
}

// Each link of the chain ends as soon as it has started the next one, so that whoever
// looks at the processes one by one sees the old one no longer and the new one not yet.
func TestChainOfDaemonsBesideAHelper(t *testing.T) {
	t.Parallel()
	if !adopts {
		t.Skip("only Linux lets a process adopt what its children leave behind")
	}
	h := newHost(t)
	for round := range 4 {
		if err := os.RemoveAll(h.file("end")); err != nil {
			t.Fatal(err)
		}
		h.beside("exec > >(cat)", fmt.Sprintf(`
			hop() { if [ $1 -gt 0 ]; then ( hop $(($1 - 1)) & ); else sleep 0.1; %q run --local -n key -- true; echo $? > end; fi; }
			hop 150 </dev/null >/dev/null 2>&1`, binary), "").want(0)
		if got, want := h.read("end"), "123\n"; got != want {
			t.Fatalf("round %d: somebody who wanted the key while the last daemon was at work: got %q, want %q", round, got, want)
		}
	}
}

// A script that has started a helper and then becomes locker (exec) has left it the
// helper: that is no part of the command.
func TestHelperOfTheScriptIsNotTheCommands(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.beside("sleep 60 & echo $! > helper", "setsid sleep 60 & sleep 60", "--max-hold 300ms").start()
	helper := h.pid("helper")
	p.ended(121)
	if !alive(helper) {
		t.Error("the helper was killed with the command")
	}
	if err := syscall.Kill(helper, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h.free()
}

// Nor is what a helper leaves when it ends, although locker gets it.
func TestWhatAHelperLeavesIsNotTheCommands(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]string{"is killed": "sleep 60", "keeps the key": "while [ -e helper ]; do sleep 0.01; done"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			p := h.beside(`(setsid sh -c 'echo $$ > left; exec sleep 60' & while [ -e helper ]; do sleep 0.01; done) & echo > helper
				while ! [ -s left ]; do sleep 0.01; done`, "echo $$ > command; "+then, "--max-hold 1500ms --kill-after 200ms").start()
			left := h.pid("left")
			t.Cleanup(func() { _ = syscall.Kill(left, syscall.SIGKILL) })
			h.pid("command")
			if err := os.Remove(h.file("helper")); err != nil {
				t.Fatal(err)
			}
			if p.wait(); !alive(left) {
				t.Error("what the helper has left was killed with the command")
			}
			h.free()
		})
	}
}

// In a pid namespace with another one's /proc a look shows the wrong processes. Who cannot
// see that a daemon is gone waits until the helpers are, too.
func TestHelperBesideAForeignProc(t *testing.T) {
	t.Parallel()
	if !adopts {
		t.Skip("only Linux has pid namespaces")
	}
	h := newHost(t)
	until := func(file string) string { return "while ! [ -e " + file + " ]; do sleep 0.01; done" }
	inside := h.beside(until("helper-ends")+" &", "setsid sh -c \"echo > daemon; "+until("daemon-ends")+"\" & exit 4", "")
	p := h.command("unshare", "-rpf", "--kill-child", "sh", "-c", `"$@"; exit $?`, "sh") // the first process is another one
	p.Args = append(p.Args, inside.Args...)
	p.start()
	if within(patience, func() bool { return h.exists("daemon") || strings.Contains(p.stderr.String(), "unshare") }); !h.exists("daemon") {
		t.Skipf("no namespace to be had here: %s", p.stderr)
	}
	held := func() bool { return h.locked("true", "-n").run() == 123 }
	always(t, 300*time.Millisecond, "the daemon has the key", held)
	for _, file := range []string{"daemon-ends", "helper-ends"} {
		if err := os.WriteFile(h.file(file), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p.ended(4)
	h.free()
}
