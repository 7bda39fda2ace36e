module github.com/fencelock/locker/conformance/live

go 1.25.0

require github.com/fencelock/locker v0.0.0

replace github.com/fencelock/locker => ../..
