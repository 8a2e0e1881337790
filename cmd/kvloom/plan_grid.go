package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// gridColumns is how wide a grid may be as text.
const gridColumns = 100

// gridChunks is up to how many chunks a grid has a row and a column for each; sequences of more,
// and those of stripes, are cut into gridBins equal bins.
const (
	gridChunks = 512
	gridBins   = 64
)

// grid says at which ring step of the forward pass each chunk of queries meets each chunk of keys,
// and which rank computes them. It is read off the programs.
type grid struct {
	rows, cols []chunk
	cells      []cell // row by row
	byKeys     bool   // who holds the keys computes: queries travel
	binned     bool   // chunks are bins: each may lie on many shards
	headChunks int    // in how many chunks heads are exchanged; steps are those of the first
}

// chunk is a run of tokens and the ring shards that hold it; with merged chunks several.
type chunk struct {
	lo, hi int
	shards []int // ring indices, in order of the tokens
	ranks  []int
}

// set is the tokens.
func (c *chunk) set() mesh.Set {
	return mesh.Set{{Start: c.lo, Stride: 1, Count: c.hi - c.lo}}
}

// cell is the first and last step at which a pair of it is computed; none if the mask allows none.
type cell struct {
	first, last int
	pairs       int64 // of (query, key) in it that the mask allows
	none        bool  // is never computed
}

// newGrid walks the forward programs of one ring, of the first chunk of heads.
func newGrid(r *planRequest) (*grid, error) {
	h, m := r.plan.Header(), r.mesh
	spec := r.plan.Spec()
	g := &grid{byKeys: r.scheme == passQ, headChunks: r.options.HeadChunks}
	g.rows, g.cols = chunksOf(spec.Layout, h.QTokens, m), chunksOf(spec.KeyLayout, h.KTokens, m)
	if len(g.rows) == 0 || len(g.cols) == 0 {
		g.binned = true
		g.rows = binsOf(spec.Layout, h.QTokens, m)
		g.cols = binsOf(spec.KeyLayout, h.KTokens, m)
	}
	g.cells = make([]cell, len(g.rows)*len(g.cols))
	for i := range g.cells {
		g.cells[i].none = true
	}
	g.countPairs(h.Mask)
	programs, err := r.ringPrograms(plan.Forward)
	if err != nil {
		return nil, err
	}
	steps := clockOf(programs)
	tiles := tiler{grid: g, header: h, seen: map[plan.SetID][2][]part{}}
	for _, p := range programs {
		first := firstHeads(p)
		for i := range p.Ops {
			if p.Ops[i].Kind == plan.Attend && p.Args(i)[0].Heads.Lo == first {
				tiles.meet(p, i, steps.of(p.Ops[i].Tick))
			}
		}
	}
	return g, nil
}

// firstHeads is the first query head that a program attends with.
func firstHeads(p *plan.Program) int32 {
	first := int32(math.MaxInt32)
	for i := range p.Ops {
		if p.Ops[i].Kind == plan.Attend {
			first = min(first, p.Args(i)[0].Heads.Lo)
		}
	}
	return first
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

// chunksOf lists the chunks of a sequence in the order of its tokens: the runs of all halves of
// shards. It is nil when there are stripes or too many chunks.
func chunksOf(l mesh.Layout, tokens int, m mesh.Mesh) []chunk {
	var out []chunk
	for c := range m.Ring {
		ranks := headRanks(m, c)
		for i := range 2 {
			for _, s := range mesh.Half(l, tokens, m.Ring, c, i) {
				if s.Stride != 1 || len(out) == gridChunks && m.Ring < gridChunks/2 {
					return nil
				}
				out = append(out, chunk{s.Start, s.Last() + 1, []int{c}, ranks})
			}
		}
	}
	slices.SortFunc(out, func(a, b chunk) int { return cmp.Compare(a.lo, b.lo) })
	return out
}

// headRanks are the ranks of a ring shard.
func headRanks(m mesh.Mesh, c int) []int {
	var ranks []int
	for h := range m.Head {
		ranks = append(ranks, m.Rank(mesh.Coord{H: h, C: c}))
	}
	return ranks
}

// binsOf cuts a sequence into equal bins and says which shards hold tokens of each.
func binsOf(l mesh.Layout, tokens int, m mesh.Mesh) []chunk {
	n := min(gridBins, tokens)
	out := make([]chunk, n)
	for i := range out {
		out[i].lo, out[i].hi = mesh.CutEven(tokens, n, i)
	}
	for c := range m.Ring {
		for _, p := range cut(out, l.Shard(tokens, m.Ring, c)) {
			out[p.chunk].shards = append(out[p.chunk].shards, c)
			out[p.chunk].ranks = append(out[p.chunk].ranks, headRanks(m, c)...)
		}
	}
	return out
}

// part is the tokens of a set that lie in a chunk.
type part struct {
	chunk int
	set   mesh.Set
}

// cut parts a set by the chunks, in their order; chunks without tokens of it are left out.
func cut(chunks []chunk, set mesh.Set) []part {
	sets := make([]mesh.Set, len(chunks))
	for _, s := range set {
		first, found := slices.BinarySearchFunc(chunks, s.Start, func(c chunk, at int) int {
			return cmp.Compare(c.lo, at)
		})
		if !found {
			first--
		}
		for i := max(first, 0); i < len(chunks) && chunks[i].lo <= s.Last(); i++ {
			a := max((chunks[i].lo-s.Start+s.Stride-1)/s.Stride, 0)
			b := min((chunks[i].hi-s.Start+s.Stride-1)/s.Stride, s.Count)
			if a < b {
				sets[i] = append(sets[i], mesh.Span{Start: s.At(a), Stride: s.Stride, Count: b - a})
			}
		}
	}
	var out []part
	for i := range sets {
		if sets[i] != nil {
			out = append(out, part{i, sets[i]})
		}
	}
	return out
}

// countPairs fills in what the mask allows in each cell.
func (g *grid) countPairs(m attn.Mask) {
	for a := range g.rows {
		for b := range g.cols {
			g.cells[a*len(g.cols)+b].pairs = m.Pairs(g.rows[a].set(), g.cols[b].set())
		}
	}
}

// tiler notes who meets whom.
type tiler struct {
	*grid
	header *plan.Header
	seen   map[plan.SetID][2][]part // sets cut by rows and by columns
}

func (t *tiler) cut(id plan.SetID) [2][]part {
	parts, ok := t.seen[id]
	if !ok {
		set := t.header.Sets[id]
		parts = [2][]part{cut(t.rows, set), cut(t.cols, set)}
		t.seen[id] = parts
	}
	return parts
}

// meet notes what attend i of a program covers.
func (t *tiler) meet(p *plan.Program, i, step int) {
	q, k := t.cut(p.Args(i)[0].Set)[0], t.cut(p.Args(i)[1].Set)[1]
	for _, a := range q {
		for _, b := range k {
			c := &t.cells[a.chunk*len(t.cols)+b.chunk]
			row, col := &t.rows[a.chunk], &t.cols[b.chunk]
			whole := c.pairs == int64(row.hi-row.lo)*int64(col.hi-col.lo)
			if c.pairs > 0 && (whole || t.header.Mask.Pairs(a.set, b.set) > 0) {
				c.meet(step, step)
			}
		}
	}
}

// meet adds the steps from first to last.
func (c *cell) meet(first, last int) {
	if c.none {
		c.first, c.last, c.none = first, last, false
		return
	}
	c.first, c.last = min(c.first, first), max(c.last, last)
}

// stepClock turns ticks of attends into ring steps: the tick of step 0, and from one step to the
// next; or, with heads in chunks, all ticks in their order.
type stepClock struct {
	base, apart int32
	ticks       []int32
}

// clockOf reads the clock off the programs of a ring: step 0 is the first at which any of them
// attends, and steps are as far apart as divides all that lie between attends. Chunks of heads
// follow one another at any distance, so their steps are counted.
func clockOf(programs []*plan.Program) stepClock {
	var ticks []int32
	chunks := 1
	for _, p := range programs {
		ticks = append(ticks, attendTicks(p)...)
		chunks = max(chunks, len(chunkBases(p)))
	}
	if len(ticks) == 0 {
		return stepClock{apart: 1}
	}
	c := stepClock{base: slices.Min(ticks)}
	if chunks > 1 {
		slices.Sort(ticks)
		c.ticks = slices.Compact(ticks)
		return c
	}
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

func (c stepClock) of(tick int32) int {
	if c.ticks != nil {
		n, _ := slices.BinarySearch(c.ticks, tick)
		return n
	}
	return int(tick-c.base) / int(c.apart)
}

// chunkBases are the ticks at which a program begins with each chunk of heads.
func chunkBases(p *plan.Program) []int32 {
	var heads []mesh.Heads
	var out []int32
	for i := range p.Ops {
		if k := p.Ops[i].Kind; k != plan.Attend && k != plan.AttendBackward {
			continue
		}
		if h := p.Args(i)[0].Heads; !slices.Contains(heads, h) {
			heads, out = append(heads, h), append(out, p.Ops[i].Tick)
		}
	}
	return out
}

// add puts another cell's content to it.
func (c *cell) add(o cell) {
	c.pairs += o.pairs
	if !o.none {
		c.meet(o.first, o.last)
	}
}

// mergedBy is the grid with so many neighbours put together, in rows and in columns.
func (g *grid) mergedBy(by int) *grid {
	out := &grid{rows: mergedChunks(g.rows, by), cols: mergedChunks(g.cols, by),
		byKeys: g.byKeys, binned: g.binned, headChunks: g.headChunks}
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

// ofHeads says of which heads the steps are, where they are not the same for all.
func (g *grid) ofHeads() string {
	if g.headChunks < 2 {
		return ""
	}
	return fmt.Sprintf(" of the first of %d chunks of heads", g.headChunks)
}

// text is the grid for a terminal.
func (g *grid) text() string {
	var b strings.Builder
	w := g.widths()
	b.WriteString("ring steps at which queries meet keys; columns are chunks of keys, by the " +
		"shard that holds\nthem; a dot: never\n")
	if s := g.ofHeads(); s != "" {
		b.WriteString("steps" + s + "; the others do the same later\n")
	}
	if g.byKeys {
		b.WriteString("queries travel: who holds the keys computes\n")
	}
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
