//go:build !linux

package run

import "github.com/fencelock/locker"

// Keep reports false: only Linux has a backend whose leases hold a descriptor.
func Keep() bool { return false }

func leaveKeeper(*locker.Lease) error { return nil }
