//go:build !linux

package boot

import "time"

// Name says which clock Now reads.
const Name = "wall clock"

// Now returns the wall clock's time. Where the standard library offers no clock that
// counts suspend, differences of the wall clock are the best there is: a suspended
// machine's wall clock is right again when it wakes. A step forward ends leases too
// early, which is safe; a step back is ignored, since the larger of two differences
// counts.
func Now() (time.Duration, bool) {
	return time.Duration(time.Now().UnixNano()), true //nolint:forbidigo // the one place that may, see above
}
