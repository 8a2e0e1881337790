package simd

import (
	"syscall"
	"unsafe"
)

// coreSeconds is the time that the calling thread has had a core, so that other programs on the
// machine disturb less.
func coreSeconds() float64 {
	const threadCPU = 3 // CLOCK_THREAD_CPUTIME_ID
	var ts syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, threadCPU, uintptr(unsafe.Pointer(&ts)), 0)
	return float64(ts.Sec) + float64(ts.Nsec)*1e-9
}
