package main

import (
	"io"
	"os"
)

// columns is the width of the terminal behind w; 0 when there is none, or one that tells no width.
func columns(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	return terminalColumns(f)
}
