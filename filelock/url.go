package filelock

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
)

// The URL is file:///absolute/path, with sync=on (default) or off. The namespace is a
// directory below the path.
func init() {
	locker.Register(locker.Scheme{
		Name:   "file",
		Params: []string{"sync"},
		Open: func(ctx context.Context, u *locker.URL) (driver.Driver, error) {
			if u.Client.Host != "" || u.Client.User != nil {
				return nil, fmt.Errorf("want file:///absolute/path: %q stands where a host would", u.Client.Host)
			}
			if u.Client.Path == "" || u.Client.Path[0] != '/' {
				return nil, errors.New("want file:///absolute/path")
			}
			sync, err := u.Choice("sync", "on", "off")
			if err != nil {
				return nil, err
			}
			return NewDriver(ctx, u.Client.Path, &Options{Namespace: u.Namespace, TokenBase: u.TokenBase, NoSync: sync == "off"})
		},
	})
}
