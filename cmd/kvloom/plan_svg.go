package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Limits of a picture: a grid with more rows or columns has neighbours put together until it has at
// most the smaller number, since cells then have two numbers each.
const (
	svgCells  = 64
	svgMerged = 32
)

// Sizes of the picture, in pixels.
const (
	svgSide   = 640 // of the grid, about
	svgLeft   = 150
	svgTop    = 96
	svgRight  = 260
	svgBottom = 40
	svgFont   = 12
)

// drawable is the grid with so many neighbours put together that it can be drawn.
func (g *grid) drawable() *grid {
	n := max(len(g.rows), len(g.cols))
	if n <= svgCells {
		return g
	}
	by := 2
	for (n+by-1)/by > svgMerged {
		by *= 2
	}
	return g.mergedBy(by)
}

// svg draws the grid: a cell has the colour of the ranks that compute it and the step at which they
// do; it is paler where the mask allows a part of its pairs only.
func (g *grid) svg(r *planRequest) string {
	n, digits := max(len(g.rows), len(g.cols)), g.widths()[2]
	side := min(max(svgSide/n, 9+5*digits), 56)
	w, h := svgLeft+side*len(g.cols)+svgRight, svgTop+side*len(g.rows)+svgBottom
	legend := g.legend()
	h = max(h, svgTop+20*(len(legend)+4))
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" `+
		`viewBox="0 0 %d %d" font-family="sans-serif" font-size="%d">`+"\n", w, h, w, h, svgFont)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", w, h)
	svgText(&b, 12, 24, "start", 16, "#111111", fmt.Sprintf("%d tokens on %dx%d ranks, %s",
		r.tokens, r.mesh.Head, r.mesh.Ring, r.schemeWords()))
	svgText(&b, 12, 44, "start", svgFont, "#555555", fmt.Sprintf("%s mask, %s layout, %s; the "+
		"number in a cell is the ring step", r.mask, r.layout, r.mesh.Placement))
	g.svgAxes(&b, side)
	for i := range g.rows {
		for k := range g.cols {
			g.svgCell(&b, r, i, k, side, min(svgFont+2, 3*side/(2*digits+1)))
		}
	}
	x := svgLeft + side*len(g.cols) + 24
	svgText(&b, x, svgTop+4, "start", svgFont, "#111111", "computed by")
	for i, l := range legend {
		y := svgTop + 20*(i+1)
		if l.shard >= 0 {
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="14" height="14" fill="%s"/>`+"\n", x, y-6,
				svgColour(l.shard, r.mesh.Ring))
		}
		svgText(&b, x+22, y+5, "start", svgFont, "#111111", l.words)
	}
	y := svgTop + 20*(len(legend)+2)
	fmt.Fprintf(&b, `<rect x="%d" y="%d" width="14" height="14" fill="%s" fill-opacity="0.45"/>`+
		"\n", x, y-6, svgColour(0, r.mesh.Ring))
	svgText(&b, x+22, y+5, "start", svgFont, "#111111", "paler: a part is masked")
	b.WriteString("</svg>\n")
	return b.String()
}

// svgAxes writes what rows and columns are.
func (g *grid) svgAxes(b *strings.Builder, side int) {
	svgText(b, svgLeft+side*len(g.cols)/2, svgTop-34, "middle", svgFont, "#555555",
		"keys, by the shard that holds them")
	svgText(b, svgLeft-12, svgTop-10, "end", svgFont, "#555555", "queries")
	for i := range g.rows {
		svgText(b, svgLeft-10, svgTop+side*i+side/2+4, "end", min(svgFont, side/2+2), "#333333",
			g.rows[i].tokens())
	}
	size := min(svgFont, 3*side/(2*g.widths()[2]))
	for k := range g.cols {
		svgText(b, svgLeft+side*k+side/2, svgTop-8, "middle", size, "#333333",
			"c"+numbersText(g.cols[k].shards))
	}
}

func (g *grid) svgCell(b *strings.Builder, r *planRequest, i, k, side, size int) {
	c := &g.cells[i*len(g.cols)+k]
	row, col := &g.rows[i], &g.cols[k]
	x, y := svgLeft+side*k, svgTop+side*i
	fill, opacity := "#f2f2f2", 1.0
	if !c.none {
		fill = svgColour(row.shard(), r.mesh.Ring)
		if c.pairs < int64(row.hi-row.lo)*int64(col.hi-col.lo) {
			opacity = 0.45
		}
	}
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s" fill-opacity="%g" `+
		`stroke="#ffffff"/>`+"\n", x, y, side, side, fill, opacity)
	if !c.none {
		svgText(b, x+side/2, y+side/2+size/3, "middle", size, "#111111", c.text())
	}
}

// shard is whose colour a row has: the first of those that hold it.
func (c *chunk) shard() int { return slices.Min(c.shards) }

// legendLine is a colour and whose it is.
type legendLine struct {
	shard int // -1: a line of words
	words string
}

// legend names the shards whose colours the rows have.
func (g *grid) legend() []legendLine {
	const most = 32
	var out []legendLine
	seen := map[int]bool{}
	for i := range g.rows {
		row := &g.rows[i]
		if seen[row.shard()] {
			continue
		}
		seen[row.shard()] = true
		if len(out) == most {
			out = append(out, legendLine{-1, "and more, row by row"})
			break
		}
		word := "ranks"
		ranks := numbersText(row.ranks)
		if len(row.ranks) == 1 {
			word = "rank"
		}
		out = append(out, legendLine{row.shard(), fmt.Sprintf("%s %s: shard c%s", word, ranks,
			numbersText(row.shards))})
	}
	return out
}

// svgColour is the colour of a ring shard: hues far apart for neighbours, bright enough for black
// numbers.
func svgColour(shard, ring int) string {
	const golden = 0.6180339887498949
	hue := math.Mod(float64(shard)*golden, 1)
	if ring <= 8 {
		hue = float64(shard) / float64(ring)
	}
	light := 0.66 + 0.08*float64(shard%2)
	return hsl(hue, 0.62, light)
}

// hsl turns hue, saturation and lightness, each from 0 to 1, into a colour of SVG.
func hsl(h, s, l float64) string {
	channel := func(n float64) int {
		k := math.Mod(n+12*h, 12)
		a := s * min(l, 1-l)
		return int(math.Round(255 * (l - a*max(-1, min(k-3, 9-k, 1)))))
	}
	return fmt.Sprintf("#%02x%02x%02x", channel(0), channel(8), channel(4))
}

func svgText(b *strings.Builder, x, y int, anchor string, size int, colour, words string) {
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="%s" font-size="%d" fill="%s">%s</text>`+"\n",
		x, y, anchor, size, colour, escaped(words))
}

// escaped makes words safe inside SVG.
func escaped(words string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(words)
}
