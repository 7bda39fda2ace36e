module github.com/fencelock/locker/conformance/porcupine

go 1.25.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/fencelock/locker v0.0.0
)

replace github.com/fencelock/locker => ../..
