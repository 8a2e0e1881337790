package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// gridColumns is how wide a grid may be as text.
const gridColumns = 100

// grid says at which ring step of the forward pass each chunk of queries meets each chunk of keys.
// It is read off the programs.
type grid struct {
	rows, cols []chunk
	cells      []cell // row by row
}

// chunk is a run of tokens and the ring shards that hold it; with merged chunks several.
type chunk struct {
	lo, hi int
	shards []int // ring indices, in order of the tokens
	ranks  []int
}

// cell is the first and last step at which a pair of it is computed; none if the mask allows none.
type cell struct {
	first, last int
	pairs       int64 // of allowed (query, key) in it
	none        bool
}

// newGrid walks the forward programs of one ring.
func newGrid(r *planRequest) (*grid, error) {
	h, m := r.plan.Header(), r.mesh
	g := &grid{rows: chunksOf(r.layout, h.QTokens, m), cols: chunksOf(r.layout, h.KTokens, m)}
	g.cells = make([]cell, len(g.rows)*len(g.cols))
	for i := range g.cells {
		g.cells[i].none = true
	}
	programs, err := r.ringPrograms(plan.Forward)
	if err != nil {
		return nil, err
	}
	steps := clockOf(programs)
	for _, p := range programs {
		for i := range p.Ops {
			if p.Ops[i].Kind == plan.Attend {
				g.meet(h, p, i, steps.of(p.Ops[i].Tick))
			}
		}
	}
	return g, nil
}

// ringPrograms are the programs of head rank 0: its peers do the same for other heads.
func (r *planRequest) ringPrograms(pass plan.Pass) ([]*plan.Program, error) {
	programs := make([]*plan.Program, r.mesh.Ring)
	for c := range programs {
		p, err := r.plan.Program(pass, r.mesh.Rank(mesh.Coord{C: c}))
		if err != nil {
			return nil, err
		}
		programs[c] = p
	}
	return programs, nil
}

// chunksOf lists the chunks of a sequence in the order of its tokens.
func chunksOf(l mesh.Layout, tokens int, m mesh.Mesh) []chunk {
	var out []chunk
	for c := range m.Ring {
		var ranks []int
		for h := range m.Head {
			ranks = append(ranks, m.Rank(mesh.Coord{H: h, C: c}))
		}
		for i := range 2 {
			for _, s := range mesh.Half(l, tokens, m.Ring, c, i) {
				out = append(out, chunk{s.Start, s.Last() + 1, []int{c}, ranks})
			}
		}
	}
	slices.SortFunc(out, func(a, b chunk) int { return cmp.Compare(a.lo, b.lo) })
	return out
}

// stepClock turns ticks of attends into ring steps: the tick of step 0, and from one step to the
// next.
type stepClock struct{ base, apart int32 }

// clockOf reads the clock off the programs of a ring: step 0 is the first at which any of them
// attends, and steps are as far apart as divides all that lie between attends.
func clockOf(programs []*plan.Program) stepClock {
	var ticks []int32
	for _, p := range programs {
		ticks = append(ticks, attendTicks(p)...)
	}
	if len(ticks) == 0 {
		return stepClock{0, 1}
	}
	c := stepClock{base: slices.Min(ticks)}
	for _, t := range ticks {
		a, b := c.apart, t-c.base
		for b != 0 {
			a, b = b, a%b
		}
		c.apart = a
	}
	c.apart = max(c.apart, 1)
	return c
}

func (c stepClock) of(tick int32) int { return int(tick-c.base) / int(c.apart) }

// meet notes what attend i of a program covers.
func (g *grid) meet(h *plan.Header, p *plan.Program, i, step int) {
	q, k := h.Sets[p.Args(i)[0].Set], h.Sets[p.Args(i)[1].Set]
	for _, a := range within(g.rows, q) {
		for _, b := range within(g.cols, k) {
			row, col := &g.rows[a], &g.cols[b]
			pairs := h.Mask.Pairs(mesh.Set{{Start: row.lo, Stride: 1, Count: row.hi - row.lo}},
				mesh.Set{{Start: col.lo, Stride: 1, Count: col.hi - col.lo}})
			if pairs > 0 {
				g.cells[a*len(g.cols)+b].add(cell{first: step, last: step, pairs: pairs})
			}
		}
	}
}

// within lists the chunks whose tokens are in a set.
func within(chunks []chunk, set mesh.Set) []int {
	var out []int
	for _, s := range set {
		first, _ := slices.BinarySearchFunc(chunks, s.Start, func(c chunk, at int) int {
			return cmp.Compare(c.lo, at)
		})
		for i := first; i < len(chunks) && chunks[i].lo <= s.Last(); i++ {
			out = append(out, i)
		}
	}
	return out
}

func (c *cell) add(o cell) {
	switch {
	case o.none:
	case c.none:
		*c = o
	default:
		c.first, c.last = min(c.first, o.first), max(c.last, o.last)
		c.pairs += o.pairs
	}
}

// mergedBy is the grid with so many neighbours put together, in rows and in columns.
func (g *grid) mergedBy(by int) *grid {
	out := &grid{rows: mergedChunks(g.rows, by), cols: mergedChunks(g.cols, by)}
	out.cells = make([]cell, len(out.rows)*len(out.cols))
	for i := range out.cells {
		out.cells[i].none = true
	}
	for a := range g.rows {
		for b := range g.cols {
			out.cells[a/by*len(out.cols)+b/by].add(g.cells[a*len(g.cols)+b])
		}
	}
	return out
}

func mergedChunks(chunks []chunk, by int) []chunk {
	var out []chunk
	for i, c := range chunks {
		if i%by == 0 {
			out = append(out, chunk{lo: c.lo})
		}
		last := &out[len(out)-1]
		last.hi = c.hi
		last.shards = append(slices.Clone(last.shards), c.shards...)
		last.ranks = append(slices.Clone(last.ranks), c.ranks...)
	}
	return out
}

// fit is the grid with so many chunks put together that its text is no wider than gridColumns.
func (g *grid) fit() *grid {
	for by := 1; ; by *= 2 {
		m := g.mergedBy(by)
		w := m.widths()
		if w[0]+w[1]+len(m.cols)*(w[2]+1) < gridColumns || len(m.cols) == 1 {
			return m
		}
	}
}

// widths are those of the rows' tokens, of their ranks, and of a cell.
func (g *grid) widths() [3]int {
	w := [3]int{len("queries"), len("ranks"), 1}
	for i := range g.rows {
		w[0] = max(w[0], len(g.rows[i].tokens()))
		w[1] = max(w[1], len(numbersText(g.rows[i].ranks)))
	}
	for i := range g.cells {
		w[2] = max(w[2], len(g.cells[i].text()))
	}
	for i := range g.cols {
		w[2] = max(w[2], 1+len(numbersText(g.cols[i].shards)))
	}
	return w
}

func (c *chunk) tokens() string { return fmt.Sprintf("%d:%d", c.lo, c.hi) }

// text is the cell's step or steps, a dot where nothing is allowed.
func (c *cell) text() string {
	switch {
	case c.none:
		return "."
	case c.first == c.last:
		return fmt.Sprint(c.first)
	}
	return fmt.Sprintf("%d-%d", c.first, c.last)
}

// numbersText writes numbers shortly: 3, or 0-3 for a run, or the lowest and highest with dots.
func numbersText(numbers []int) string {
	n := slices.Clone(numbers)
	slices.Sort(n)
	n = slices.Compact(n)
	lo, hi := n[0], n[len(n)-1]
	switch {
	case lo == hi:
		return fmt.Sprint(lo)
	case hi-lo == len(n)-1:
		return fmt.Sprintf("%d-%d", lo, hi)
	case len(n) == 2:
		return fmt.Sprintf("%d,%d", lo, hi)
	}
	return fmt.Sprintf("%d..%d", lo, hi)
}

// text is the grid for a terminal.
func (g *grid) text() string {
	var b strings.Builder
	w := g.widths()
	b.WriteString("ring steps at which queries meet keys; columns are chunks of keys, by the " +
		"shard that holds\nthem; a dot: never\n")
	fmt.Fprintf(&b, "%*s %*s", w[0], "queries", w[1], "ranks")
	for i := range g.cols {
		fmt.Fprintf(&b, " %*s", w[2], "c"+numbersText(g.cols[i].shards))
	}
	b.WriteByte('\n')
	for i := range g.rows {
		fmt.Fprintf(&b, "%*s %*s", w[0], g.rows[i].tokens(), w[1], numbersText(g.rows[i].ranks))
		for k := range g.cols {
			fmt.Fprintf(&b, " %*s", w[2], g.cells[i*len(g.cols)+k].text())
		}
		b.WriteByte('\n')
	}
	return b.String()
}
