//go:build !noasm

package simd

import (
	"fmt"
	"syscall"
)

// permitTiles asks the system for the use of tiles: Linux grows the frames of signals for a process
// that has it, and so gives it only to those that ask, once for all threads, for good. It says why
// it is refused.
func permitTiles() string {
	const (
		archPrctl       = 158
		requestRegister = 0x1023 // ARCH_REQ_XCOMP_PERM
		tileData        = 18
	)
	if _, _, err := syscall.RawSyscall(archPrctl, requestRegister, tileData, 0); err != 0 {
		return fmt.Sprintf("the system refuses the use of tiles: %v", err)
	}
	return ""
}
