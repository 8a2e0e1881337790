//go:build amd64 && !linux && !noasm

package simd

// permitTiles refuses tiles where it is not known how to ask for them.
func permitTiles() string { return "tiles are used on Linux alone" }
