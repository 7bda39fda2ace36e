// Package seam is where the suite reaches into the core: things that no user needs and
// that cannot be provoked from outside in a test.
package seam

import "time"

// SkewBoot moves the boot clock of one *locker.Locker ahead, as a suspend of that length
// would. The root package sets it.
var SkewBoot func(locker any, d time.Duration)
