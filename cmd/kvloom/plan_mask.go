package main

import (
	"fmt"
	"strings"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
)

// maskSide is how many tiles a picture of a mask has at most, down and across.
const maskSide = 32

// maskPage draws a mask of any kind to scale: tiles of as many tokens each, but the last one, and
// darker the more of their pairs are allowed.
func maskPage(m attn.Mask, tokens int) string {
	size := (tokens + maskSide - 1) / maskSide
	n := (tokens + size - 1) / size
	tile := func(i int) (mesh.Set, int) {
		lo := i * size
		count := min(size, tokens-lo)
		return mesh.Set{{Start: lo, Stride: 1, Count: count}}, count
	}
	var b strings.Builder
	each := plural(size, "token") + " a tile"
	if last := tokens - (n-1)*size; last < size {
		each += fmt.Sprintf(", %d in the last", last)
	}
	share := float64(m.TotalPairs()) / (float64(tokens) * float64(tokens))
	fmt.Fprintf(&b, "the mask: queries down, keys across, %s; of all pairs %.3g%% are "+
		"allowed\n", each, 100*share)
	for i := range n {
		q, rows := tile(i)
		line := ""
		for k := range n {
			keys, cols := tile(k)
			line += strings.Repeat(shade(m.Pairs(q, keys), int64(rows)*int64(cols)), 2)
		}
		b.WriteString("  " + strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// shade is a tile of which so many pairs are allowed: none, up to a third, up to two thirds, more,
// all.
func shade(pairs, all int64) string {
	switch {
	case pairs == 0:
		return " "
	case pairs == all:
		return "█"
	case 3*pairs <= all:
		return "░"
	case 3*pairs <= 2*all:
		return "▒"
	}
	return "▓"
}
