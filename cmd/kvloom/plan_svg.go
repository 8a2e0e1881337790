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
// do; it is paler the fewer of its pairs the mask allows.
func (g *grid) svg(r *planRequest) string {
	n, digits := max(len(g.rows), len(g.cols)), g.widths()[2]
	side := min(max(svgSide/n, 9+5*digits), 56)
	w, h := svgLeft+side*len(g.cols)+svgRight, svgTop+side*len(g.rows)+svgBottom
	legend := g.legend(r.mesh.Ring)
	h = max(h, svgTop+20*(len(legend)+4))
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" `+
		`viewBox="0 0 %d %d" font-family="sans-serif" font-size="%d">`+"\n", w, h, w, h, svgFont)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", w, h)
	svgText(&b, 12, 24, "start", 16, "#111111", fmt.Sprintf("%d tokens on %dx%d ranks, %s",
		r.tokens, r.mesh.Head, r.mesh.Ring, r.schemeWords()))
	svgText(&b, 12, 44, "start", svgFont, "#555555", fmt.Sprintf("%s, %s layout, %s; the number "+
		"in a cell is the ring step%s", r.maskText(), r.layoutText(), r.mesh.Placement,
		g.ofHeads()))
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
		if l.colour != "" {
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="14" height="14" fill="%s"/>`+"\n", x, y-6,
				l.colour)
		}
		svgText(&b, x+22, y+5, "start", svgFont, "#111111", l.words)
	}
	y := svgTop + 20*(len(legend)+2)
	fmt.Fprintf(&b, `<rect x="%d" y="%d" width="14" height="14" fill="%s" fill-opacity="%g"/>`+
		"\n", x, y-6, svgColour(0, r.mesh.Ring), svgShade(1, 2))
	svgText(&b, x+22, y+5, "start", svgFont, "#111111", "paler: a part is masked, here half")
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
		by := row
		if g.byKeys {
			by = col
		}
		fill = g.colour(by, r.mesh.Ring)
		opacity = svgShade(c.pairs, int64(row.hi-row.lo)*int64(col.hi-col.lo))
	}
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s" fill-opacity="%g" `+
		`stroke="#ffffff"/>`+"\n", x, y, side, side, fill, opacity)
	if !c.none {
		svgText(b, x+side/2, y+side/2+size/3, "middle", size, "#111111", c.text())
	}
}

// svgShade is the opacity of a cell of which so many pairs are allowed, in hundredths.
func svgShade(pairs, all int64) float64 {
	if pairs >= all {
		return 1
	}
	return math.Round(25+50*float64(pairs)/float64(all)) / 100
}

// colour is whose colour a chunk has: that of the first shard that holds it. Bins that lie on many
// shards have one of their own.
func (g *grid) colour(c *chunk, ring int) string {
	if g.many(c) {
		return "#b4bfd0"
	}
	return svgColour(slices.Min(c.shards), ring)
}

// many tells whether a chunk is a bin that lies on several shards.
func (g *grid) many(c *chunk) bool {
	return g.binned && slices.Min(c.shards) != slices.Max(c.shards)
}

// legendLine is a colour and whose it is.
type legendLine struct{ colour, words string } // no colour: a line of words

// legend names the shards whose colours the cells have.
func (g *grid) legend(ring int) []legendLine {
	const most = 32
	by := g.rows
	if g.byKeys {
		by = g.cols
	}
	var out []legendLine
	seen := map[string]bool{}
	for i := range by {
		c := &by[i]
		colour := g.colour(c, ring)
		key := fmt.Sprint(colour, slices.Min(c.shards))
		if g.many(c) {
			key = colour
		}
		if seen[key] {
			continue
		}
		seen[key] = true
		if len(out) == most {
			out = append(out, legendLine{"", "and more, row by row"})
			break
		}
		word := "ranks"
		ranks := numbersText(c.ranks)
		if len(c.ranks) == 1 {
			word = "rank"
		}
		line := legendLine{colour, fmt.Sprintf("%s %s: shard c%s", word, ranks,
			numbersText(c.shards))}
		if g.many(c) {
			line.words = "several: see plan show as text"
		}
		out = append(out, line)
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
