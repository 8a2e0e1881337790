//go:build !linux

package simd

import "time"

// coreSeconds is the time of day.
func coreSeconds() float64 { return float64(time.Now().UnixNano()) * 1e-9 }
