// Package cli is the command line: flags, help, and what is printed.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/cmd/locker/internal/job"
	"github.com/fencelock/locker/cmd/locker/internal/run"
	"github.com/fencelock/locker/cmd/locker/internal/target"
)

// The exit codes of everything but run.
const (
	codeNo = 1 // the question was answered, and the answer is no
)

// exit ends a command with a code. Nil err: all has been said.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

// Main runs the command line and returns the exit code.
func Main(args []string) int {
	began := time.Now()
	root := newRoot(began)
	root.SetArgs(args)
	err := root.Execute()
	if err == nil {
		return 0
	}
	var e *exit
	if !errors.As(err, &e) {
		e = &exit{run.CodeFailed, err}
	}
	if e.err != nil {
		fmt.Fprintln(os.Stderr, "locker:", e.err)
	}
	return e.code
}

func newRoot(began time.Time) *cobra.Command {
	root := &cobra.Command{
		Use:   "locker",
		Short: "Run a command on one machine at a time, and see who holds what",
		Long: `locker runs a command under a lock, so that only one of them runs at a time,
and shows, watches and breaks locks.

Where the lock lives:
  -u, --url URL    a backend: file:///var/lib/locks
  LOCKER_URL       the same, from the environment
  --local          this host only: a directory in your state folder
                   ($XDG_STATE_HOME/locker or ~/.local/state/locker)
Without any of them it is this host only, and locker says so.`,
		Example: `  locker run nightly -- ./job.sh        run ./job.sh unless somebody else is; wait for them
  locker run -n nightly -- ./job.sh     … or give up at once (exit code 123)
  locker status nightly                 who holds it, since when
  locker ls                             all keys that are held
  locker break nightly --token 7        take it away from a holder that hangs`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetHelpCommand(&cobra.Command{Hidden: true}) // --help is enough
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w (see %s --help)", err, c.CommandPath())
	})
	root.Flags().Bool("version", false, "print the version") // no -v: that is run --verbose
	var p place
	root.PersistentFlags().StringVarP(&p.url, "url", "u", "", "where the lock lives, as a `URL` (default: LOCKER_URL, else a directory of this user)")
	root.PersistentFlags().BoolVar(&p.local, "local", false, "lock on this host only, in this user's state folder, and do not warn about it")
	root.AddCommand(newRun(&p, began), newStatus(&p), newList(&p), newWatch(&p), newBreak(&p))
	return root
}

// version is what the module was installed as, or which commit it was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && (v == "" || v == "(devel)") {
			v = s.Value
		}
	}
	return v
}

// place is where the flags say that locks live.
type place struct {
	url   string
	local bool
}

func (p *place) choose() (target.Target, error) { return target.Choose(p.url, p.local) }

// open opens the backend for a command that only looks or breaks.
func (p *place) open(ctx context.Context) (*locker.Locker, error) {
	t, err := p.choose()
	if err != nil {
		return nil, err
	}
	if t.Unasked {
		fmt.Fprintln(os.Stderr, "locker:", target.Warning)
	}
	return t.Open(ctx, nil)
}

// use opens the backend, does something, and closes it again. A signal ends it.
func (p *place) use(do func(context.Context, *locker.Locker) error) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	go func() {
		select {
		case s := <-signals:
			cancel(&exit{code: job.Interrupted(s)})
		case <-ctx.Done():
		}
	}()
	l, err := p.open(ctx)
	if err == nil {
		err = errors.Join(do(ctx, l), l.Close())
	}
	var interrupted *exit
	if err != nil && errors.As(context.Cause(ctx), &interrupted) {
		return interrupted
	}
	return err
}

// needKey checks the arguments of a command that takes one key.
func needKey(c *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want one key: %s", c.UseLine())
	}
	return nil
}
