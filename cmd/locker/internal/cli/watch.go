package cli

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/locker"
)

const (
	defaultLook = 500 * time.Millisecond
	// slowestLook bounds the pause while the backend fails.
	slowestLook = 10 * time.Second
)

func newWatch(p *place) *cobra.Command {
	every := defaultLook
	cmd := &cobra.Command{
		Use:   "watch KEY",
		Short: "Print a line whenever the holder of a key changes",
		Long: `Print a line now, and another whenever the key gets another holder, becomes free, or is
broken, until you press Ctrl-C. It asks again and again: what begins and ends between
two questions is not seen, except that tokens are missing in the row.`,
		Example: `  locker watch nightly
  locker watch nightly --json | while read -r line; do …; done`,
		Args: needKey,
		RunE: func(_ *cobra.Command, args []string) error {
			return p.use(func(ctx context.Context, v *view) error {
				if err := v.unused(); err != nil {
					say(p.json, args[0], err)
				}
				failed := func(err error) { say(p.json, args[0], err) }
				return watch(ctx, v, args[0], every, failed, func(s locker.State) error {
					now := time.Now()
					if p.json {
						return printJSON(os.Stdout, changeJSON{now.Format(time.RFC3339Nano), toJSON(s)})
					}
					_, err := fmt.Println(now.Format(time.TimeOnly), sentence(s))
					return err
				})
			})
		},
	}
	cmd.Flags().BoolVar(&p.json, "json", false, "as JSON, one object a line")
	cmd.Flags().Var(duration{&every, false}, "interval", "how often to ask")
	return cmd
}

// changeJSON is a state with the time it was seen, for people: this host's clock.
type changeJSON struct {
	Time string `json:"time"`
	stateJSON
}

// look is what makes a change: not the durations, which always differ.
type look struct {
	held, broken bool
	token        locker.Token
	owner, note  string
	waiters      int
}

func watch(ctx context.Context, v *view, key string, every time.Duration, failed func(error), tell func(locker.State) error) error {
	var last look
	pause := every
	for first := true; ; {
		s, err := v.inspect(ctx, key)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && first:
			return err
		case err != nil:
			failed(err)
			pause = min(2*pause, max(slowestLook, every))
		default:
			pause = every
			now := look{s.Held, s.Broken, s.Token, s.Owner, s.Note, s.Waiters}
			if first || now != last {
				if err := tell(s); err != nil {
					return err
				}
			}
			first, last = false, now
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
}
