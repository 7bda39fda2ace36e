module github.com/fencelock/locker/cmd/locker

go 1.25.0

require (
	github.com/creack/pty v1.1.24
	github.com/fencelock/locker v0.0.0
	github.com/spf13/cobra v1.10.2
	golang.org/x/sys v0.45.0
)

require (
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
)

replace github.com/fencelock/locker => ../..
