// Package command tests the command locker on real servers.
package command
