package cli

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/locker/cmd/locker/internal/run"
)

const runHelp = `Wait for KEY, run CMD while holding it, give it back when CMD and everything that
CMD has started are gone. CMD gets the terminal, standard input, and signals; its exit
code is locker's.

While CMD runs the lease is renewed. If that fails for too long (the server is gone,
somebody broke the lock), CMD gets SIGTERM, and SIGKILL while the key is still its own.
That takes a locker that runs: if it alone is stopped (kill -STOP) or the host is frozen,
the lease ends, somebody else gets the key, and CMD runs on beside it until locker wakes.
Only the token protects from that: a resource must refuse lower ones than it has seen.

Exit codes:
  CMD's own; 128+N if signal N ended it, or ended the wait
  121  --max-hold ended CMD              125  locker itself failed
  122  the lease was lost, CMD stopped   126  CMD cannot be executed
  123  the key is held (-n)              127  CMD was not found
  124  --wait elapsed
CMD may use these codes too: scripts that must tell read --result.

CMD finds LOCKER_KEY, LOCKER_TOKEN, LOCKER_OWNER and LOCKER_TTL (seconds) in its
environment. Pass the token along with what CMD writes.`

const runExamples = `  locker run nightly -- ./job.sh
  locker run -n nightly -- ./job.sh                    somebody has it: give up, exit code 123
  locker run -n -E 0 nightly -- ./job.sh               … and that is fine (cron: no mail)
  locker run -w 10m nightly -- ./job.sh                wait ten minutes at most
  locker run --min-hold 50s minutely -- ./job.sh       hosts with different clocks: once a minute
  locker run --max-hold 1h --kill-after 5s k -- ./job.sh
  locker run -u file:///var/lib/locks k -- ./job.sh    a directory that several users share
  locker run --result out.json k -- ./job.sh; jq -r .outcome out.json
  locker run k -- sh -c 'psql -v token=$LOCKER_TOKEN -f job.sql'`

const runUsage = "locker run [flags] KEY -- CMD [ARG…]"

var errNoDash = errors.New("want -- between the key and the command, as in: locker run nightly -- ./job.sh --its-flag")

// wrongUse says what is missing around the --, which stands behind so many arguments;
// negative: there is none.
func wrongUse(args []string, dash int) error {
	switch {
	case dash < 0 && len(args) == 0:
		return errors.New("want a key and a command: " + runUsage)
	case dash < 0:
		return errNoDash
	case dash == 0:
		return errors.New("no key before --: " + runUsage)
	case dash > 1:
		return fmt.Errorf("want one key before --, not %q: %s", args[:dash], runUsage)
	case len(args) == dash:
		return errors.New("no command after --: " + runUsage)
	}
	return nil
}

func newRun(p *place, args []string, began time.Time) *cobra.Command {
	c := run.Config{Wait: -1, Conflict: -1, KillAfter: -1, Began: began}
	onLoss := string(run.Terminate)
	cmd := &cobra.Command{
		Use:                   "run [flags] KEY -- CMD [ARG…]",
		Short:                 "Run a command while holding a key",
		Long:                  runHelp,
		Example:               runExamples,
		DisableFlagsInUseLine: true,
		Args:                  func(cmd *cobra.Command, args []string) error { return wrongUse(args, cmd.ArgsLenAtDash()) },
		RunE: func(_ *cobra.Command, args []string) error {
			var err error
			if c.Target, err = p.choose(); err != nil {
				return err
			}
			c.Key, c.Command, c.OnLoss = args[0], args[1:], run.OnLoss(onLoss)
			if code := run.Run(c); code != 0 {
				return &exit{code: code}
			}
			return nil
		},
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if cmd.Flags().NArg() > 0 && !slices.Contains(args, "--") {
			return errNoDash // and the flag is the command's
		}
		return cmd.Parent().FlagErrorFunc()(cmd, err)
	})
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVarP(&c.NonBlock, "nonblock", "n", false, "do not wait: exit with 123 if the key is held")
	f.VarP(duration{&c.Wait, true}, "wait", "w", "wait at most so long, then exit with 124 (default: for ever)")
	f.VarP((*exitCode)(&c.Conflict), "conflict-exit-code", "E", "exit with this `code` instead of 123 and 124; 0 also silences the message")
	f.Var(duration{&c.TTL, false}, "ttl", "how long the key stays taken when this host dies (default 30s, or the URL's)")
	f.Var(duration{&c.MinHold, true}, "min-hold", "keep the key at least so long, even if the command ends sooner")
	f.Var(duration{&c.MaxHold, false}, "max-hold", "stop the command after so long, exit with 121")
	f.StringVar(&onLoss, "on-loss", onLoss, "`what` happens when the lease is lost: term (SIGTERM, SIGKILL in time), kill (SIGKILL in time) or ignore")
	f.Var(duration{&c.KillAfter, true}, "kill-after", "time between SIGTERM and SIGKILL; less than a third of the ttl (default: a sixth)")
	f.StringVar(&c.Owner, "owner", "", "`name` shown to others as the holder (default host:pid)")
	f.StringVar(&c.Note, "note", "", "`text` shown to others (default: the command's name)")
	f.StringVar(&c.Result, "result", "", "write what happened to a `file`, as JSON")
	f.BoolVar(&c.JSON, "json", false, "say everything on stderr as JSON, one object a line; the last one is the result")
	f.BoolVarP(&c.Verbose, "verbose", "v", false, "tell what is going on")
	return cmd
}
