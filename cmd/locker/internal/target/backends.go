package target

// The backends that the command can lock with, beside the directory.
import (
	"github.com/redis/go-redis/v9/logging"

	_ "github.com/fencelock/locker/redislock"
	_ "github.com/fencelock/locker/s3lock"
)

// silence keeps client libraries from writing to stderr by themselves: what fails comes
// back as an error and is told once, in the command's words.
func silence() { logging.Disable() }
