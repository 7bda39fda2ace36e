// Package cli is the command line: flags, help, and what is printed.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

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
	root := newRoot(args, began)
	root.SetArgs(args)
	cmd, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	var e *exit
	if !errors.As(err, &e) {
		e = &exit{run.CodeFailed, err}
	}
	key, asked := cmd.Flags().Arg(0), early(args)
	switch {
	case e.err == nil:
	case cmd.Name() == "run":
		return run.Refuse(run.Config{Key: key, Result: asked.result, JSON: asked.json}, e.err)
	default:
		say(asked.json, key, e.err)
	}
	return e.code
}

// asked is how locker shall tell what happens.
type asked struct {
	json   bool
	result string
}

// early finds that in the arguments themselves, as their parsing may have ended before.
// Without a -- it cannot be told whose file a --result names: nothing is written then.
func early(args []string) (a asked) {
	dash := slices.Index(args, "--")
	if dash >= 0 {
		args = args[:dash]
	}
	for i, arg := range args {
		name, value, given := strings.Cut(arg, "=")
		switch {
		case arg == "--json":
			a.json = true
		case name != "--result" || dash < 0:
		case given:
			a.result = value
		case i+1 < dash:
			a.result = args[i+1]
		}
	}
	return a
}

// say says on stderr what run would say in the same way.
func say(asJSON bool, key string, err error) {
	m := run.Message{Level: "warning", Message: strings.TrimSpace(target.Plain(err).Error()), Key: key}
	_, _ = os.Stderr.Write(m.Line(asJSON)) // there is nobody else to tell
}

func newRoot(args []string, began time.Time) *cobra.Command {
	root := &cobra.Command{
		Use:   "locker",
		Short: "Run a command on one machine at a time, and see who holds what",
		Long: `locker runs a command under a lock, so that only one of them runs at a time,
and shows, watches and breaks locks.

Where the lock lives:
  -u, --url URL    a backend: file:///var/lib/locks, redis://host, s3://bucket/locks?region=…
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
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w (see %s --help)", err, c.CommandPath())
	})
	root.Flags().Bool("version", false, "print the version") // no -v: that is run --verbose
	var p place
	root.PersistentFlags().VarP((*urlFlag)(&p.url), "url", "u", "where the lock lives, as a `URL` (default: LOCKER_URL, else a directory of this user)")
	root.PersistentFlags().BoolVar(&p.local, "local", false, "lock on this host only, in this user's state folder, and do not warn about it")
	root.AddCommand(newRun(&p, args, began), newStatus(&p), newList(&p), newWatch(&p), newBreak(&p))
	root.SetHelpCommand(&cobra.Command{
		Use: "help [COMMAND]", Short: "Tell how a command is used",
		RunE: func(_ *cobra.Command, args []string) error {
			c, _, err := root.Find(args)
			if err != nil {
				return err
			}
			c.InitDefaultHelpFlag()
			return c.Help()
		},
	})
	root.InitDefaultCompletionCmd()
	if c, _, err := root.Find([]string{"completion"}); err == nil {
		c.RunE = root.RunE // a command that runs refuses arguments it does not know
	}
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
	json  bool // of the command that is run, except run
}

func (p *place) choose() (target.Target, error) { return target.Choose(p.url, p.local) }

// use opens the backend, does something, and closes it again. A signal ends it.
func (p *place) use(do func(context.Context, *view) error) error {
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
	v, err := p.look(ctx)
	if err == nil {
		err = errors.Join(do(ctx, v), v.close())
	}
	var interrupted *exit
	if err != nil && errors.As(context.Cause(ctx), &interrupted) {
		return interrupted
	}
	return err
}

// needKey checks the arguments of a command that takes one key.
func needKey(c *cobra.Command, args []string) error {
	switch {
	case len(args) != 1:
		return fmt.Errorf("want one key: %s", c.UseLine())
	case args[0] == "":
		return errors.New("the key is empty")
	}
	return nil
}
