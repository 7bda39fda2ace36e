package target

// The backends that the command can lock with, beside the directory.
import (
	_ "github.com/fencelock/locker/redislock"
	_ "github.com/fencelock/locker/s3lock"
)
