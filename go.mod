module github.com/fencelock/locker

go 1.25.0
