//go:build !linux

package kvloom

import "time"

// cpuTime is not known here.
func cpuTime() time.Duration { return 0 }
