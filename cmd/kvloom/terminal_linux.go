package main

import (
	"os"
	"syscall"
	"unsafe"
)

// terminalColumns asks the terminal; the answer is 0 when f is none.
func terminalColumns(f *os.File) int {
	var size struct{ rows, columns, x, y uint16 } // struct winsize of ioctl_tty(2)
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), syscall.TIOCGWINSZ,
		uintptr(unsafe.Pointer(&size)))
	if errno != 0 {
		return 0
	}
	return int(size.columns)
}
