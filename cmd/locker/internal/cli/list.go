package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/locker"
)

func newList(p *place) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls [PREFIX]",
		Aliases: []string{"list"},
		Short:   "List the keys that are held",
		Example: `  locker ls
  locker ls backup/ --json | jq -r .key`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("want one prefix at most, not %q: %s", args, c.UseLine())
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			prefix := ""
			if len(args) == 1 {
				prefix = args[0]
			}
			return p.use(func(ctx context.Context, v *view) error {
				var held []locker.State
				for s, err := range v.list(ctx, prefix) {
					if err != nil {
						return err
					}
					held = append(held, s)
				}
				slices.SortFunc(held, func(a, b locker.State) int { return cmp.Compare(a.Key, b.Key) })
				if p.json {
					return listJSON(os.Stdout, held)
				}
				return table(os.Stdout, held)
			})
		},
	}
	cmd.Flags().BoolVar(&p.json, "json", false, "as JSON, one object a line")
	return cmd
}

func listJSON(w io.Writer, held []locker.State) error {
	for _, s := range held {
		if err := printJSON(w, toJSON(s)); err != nil {
			return err
		}
	}
	return nil
}

func table(w io.Writer, held []locker.State) error {
	if len(held) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "KEY\tTOKEN\tOWNER\tHELD\tEXPIRES\tNOTE")
	for _, s := range held {
		expires := ago(s.ExpiresIn)
		if s.Broken {
			expires += ", broken"
		}
		fmt.Fprintf(t, "%s\t%v\t%s\t%s\t%s\t%s\n",
			printable(s.Key), s.Token, owner(s), ago(s.HeldFor), expires, printable(s.Note))
	}
	return t.Flush()
}

// ago is a duration, or a dash where it is unknown.
func ago(d time.Duration) string {
	if d < 0 {
		return "-"
	}
	return round(d).String()
}
