package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func newStatus(p *place) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status KEY",
		Short: "Show who holds a key",
		Long: `Show who holds a key, with which token, since when, and until when without a renewal.
What is shown is old when it arrives: to do something only if the key is free, take it
(locker run -n KEY -- CMD).`,
		Example: `  locker status nightly
  locker status nightly --json | jq -r .owner`,
		Args: needKey,
		RunE: func(_ *cobra.Command, args []string) error {
			return p.use(func(ctx context.Context, v *view) error {
				s, err := v.inspect(ctx, args[0])
				if err != nil {
					return err
				}
				if err := v.unused(); err != nil {
					say(p.json, args[0], err)
				}
				if p.json {
					return printJSON(os.Stdout, toJSON(s))
				}
				_, err = fmt.Println(sentence(s))
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&p.json, "json", false, "as one JSON object")
	return cmd
}
