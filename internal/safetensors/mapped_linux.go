package safetensors

import (
	"math"
	"os"
	"syscall"
)

// mapFile gives the file as memory that can only be read, or nil when the system refuses: some file
// systems cannot, and 32 bits are soon full.
func mapFile(r *os.File, size int64) []byte {
	if size <= 0 || size > math.MaxInt {
		return nil
	}
	mem, err := syscall.Mmap(int(r.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil
	}
	return mem
}

func unmapFile(mem []byte) error {
	if mem == nil {
		return nil
	}
	return syscall.Munmap(mem)
}
