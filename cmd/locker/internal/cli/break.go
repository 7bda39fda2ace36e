package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/fencelock/locker"
)

const breakHelp = `Take a key away from its holder. The token says which holder is meant, so that a
new one, who came while you were typing, is not hit: locker status tells it.

The holder can renew no more; locker run stops its command when it notices, and the key
is given away at the holder's last deadline. Two holders never overlap.

--now gives the key away at once. The old holder does not know that yet and may still
work: only resources that check tokens are safe from it.`

func newBreak(p *place) *cobra.Command {
	var (
		token, reason string
		now           bool
	)
	cmd := &cobra.Command{
		Use:   "break KEY --token N",
		Short: "Take a key away from a holder that hangs",
		Long:  breakHelp,
		Example: `  locker status nightly                    nightly: held by web-3:81 (token 7), …
  locker break nightly --token 7 --reason 'host is gone, see OPS-12'`,
		Args: needKey,
		RunE: func(_ *cobra.Command, args []string) error {
			t, err := locker.ParseToken(token)
			if err != nil {
				return fmt.Errorf("--token: %w; locker status %s tells the holder's", err, args[0])
			}
			return p.use(func(ctx context.Context, v *view) error {
				err := v.breakLock(ctx, args[0], t, locker.Break{Now: now, By: whoami(), Reason: reason})
				if err != nil {
					return refusedBreak(args[0], t, err)
				}
				s, err := v.inspect(ctx, args[0])
				if err != nil {
					return err
				}
				if p.json {
					return printJSON(os.Stdout, toJSON(s))
				}
				_, err = fmt.Println(sentence(s))
				return err
			})
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&token, "token", "", "the holder's token (`N`)")
	f.BoolVar(&now, "now", false, "give the key away at once, not at the holder's deadline")
	f.StringVar(&reason, "reason", "", "`text` that is stored with it")
	f.BoolVar(&p.json, "json", false, "show what is held now as one JSON object")
	if err := cmd.MarkFlagRequired("token"); err != nil {
		panic(err) // no such flag
	}
	return cmd
}

// refusedBreak tells a no from a failure.
func refusedBreak(key string, t locker.Token, err error) error {
	var held *locker.HeldError
	switch {
	case errors.As(err, &held):
		return &exit{codeNo, fmt.Errorf("not broken: %q is %w, not with token %v", key, held, t)}
	case errors.Is(err, locker.ErrLost):
		return &exit{codeNo, fmt.Errorf("not broken: nobody holds %q", key)}
	}
	return err
}

// whoami is who broke the lock, for people: user@host:pid.
func whoami() string {
	name := "uid " + strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return fmt.Sprintf("%s@%s:%d", name, host, os.Getpid())
}
