//go:build !linux

package main

import "os"

// terminalColumns is the usual width for whatever looks like a terminal.
func terminalColumns(f *os.File) int {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return 0
	}
	return 80
}
