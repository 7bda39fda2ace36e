package memlock

import (
	"context"
	"errors"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
)

// The URL is mem://name: the server of that name in this process, one for each ns. It is
// for tests and examples; other processes are not excluded.
func init() {
	locker.Register(locker.Scheme{
		Name: "mem",
		Open: func(_ context.Context, u *locker.URL) (driver.Driver, error) {
			if u.Client.Host == "" || u.Client.User != nil || (u.Client.Path != "" && u.Client.Path != "/") {
				return nil, errors.New("want mem://name, without user or path")
			}
			return Named(u.Client.Host + "/" + u.Namespace).Open(&Options{TokenBase: u.TokenBase})
		},
	})
}
