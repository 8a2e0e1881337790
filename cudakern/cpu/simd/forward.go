package simd

import (
	"math"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
)

// maxDim is the largest D and DV that are served.
const maxDim = 256

// Serves reports whether the kernels compute blocks like b: f32 or bf16 elements, up to 256 of a
// head, logits with a cap from 2^-60 to 2^60 or none.
func Serves[E attn.Elem](b *attn.Block[E]) bool {
	switch any(b.Q).(type) {
	case []float32, []attn.BF16:
	default:
		return false
	}
	return servesCap(b.SoftCap) && b.D <= maxDim && b.DV <= maxDim
}

// taskRows is the query rows of a task of Forward.
func taskRows[E attn.Elem](b *attn.Block[E]) int {
	return max(1, forwardLanes/min(b.Group, b.QHeads))
}

// ForwardTasks is the number of independent tasks of Forward for b, 0 when b has no query row: one
// for each held KV head and each so many query rows that its query heads have up to forwardLanes of
// them together. The last rows come first: under a causal mask their tasks are the longest.
func ForwardTasks[E attn.Elem](b *attn.Block[E]) int {
	return b.KHeads * cuts(b.QSpans, taskRows(b))
}

// cuts is how many cuts of up to limit rows a set has.
func cuts(set mesh.Set, limit int) (n int) {
	for at := (cursor{set: set}); len(at.set) > 0; n++ {
		at.skip(at.reach(limit))
	}
	return n
}

// forward is a task of Forward.
type forward[E attn.Elem] struct {
	isa    ISA
	b      *attn.Block[E]
	s      attn.State[float32]
	sc     *Scratch
	kvHead int
	curve  curve
	last   bool // the tile is the last one
}

// Forward folds the block's keys into the state of the query rows and heads of one task,
// 0 <= task < ForwardTasks(b): what kernel.Forward does for the same rows and heads. b must be one
// that is served, isa one that is supported and not Portable.
func Forward[E attn.Elem](isa ISA, b *attn.Block[E], s attn.State[float32], task int,
	sc *Scratch,
) {
	isa = pathOf(isa, b)
	per, kvHead := taskRows(b), task%b.KHeads
	at, row0 := cursor{set: b.QSpans}, 0
	n := at.reach(per)
	for cut := cuts(b.QSpans, per) - 1 - task/b.KHeads; cut > 0; cut-- {
		at.skip(n)
		row0 += n
		n = at.reach(per)
	}
	h0, h1 := readers(b, kvHead)
	if h0 == h1 {
		return
	}
	sc.fitForward(isa, b.D, b.DV, n*(h1-h0))
	first, last := sc.setRows(&at, n)
	sc.near = sift(sc.near, b.Mask, box{first, last, math.MinInt, math.MaxInt})
	if len(sc.near) == 0 {
		return
	}
	sc.setGroups(isa, row0, n, h0, h1, b.QHeads)
	f := forward[E]{
		isa: isa, b: b, s: s, sc: sc, kvHead: kvHead, curve: newCurve(b.SoftCap),
	}
	f.fetch(&sc.groups[0], true, 0, 1)
	rows := box{first, last, math.MinInt, math.MaxInt}
	for left := sc.tiles(b.KSpans, rows); left > 0; {
		if !sc.next(rows) {
			continue
		}
		left--
		f.last = left == 0
		for i := range sc.groups {
			f.fold(i)
			if f.last {
				f.store(i)
			}
		}
	}
}

// fold folds the tile into group i.
func (f *forward[E]) fold(i int) {
	sc, isa, g, t := f.sc, f.isa, &f.sc.groups[i], &f.sc.tile
	see := sc.look(g, t)
	if see.hi == 0 {
		return
	}
	if isa.dots() {
		f.foldDot(i, see)
		return
	}
	var words *uint64
	if !see.all {
		words = &sc.words[see.lo]
	}
	f.load(i)
	f.source()
	dims, v := (f.b.DV+7)&^7, t.v
	odd := !see.all && !t.v.finite(isa)
	if odd {
		v = sc.cleaned(&t.v)
	}
	n, q, o := see.hi-see.lo, f.panel(sc.q, f.b.D, i), f.panel(sc.o, f.b.DV, i)
	next, whole := f.ahead(i)
	parts := partsOf(next, n)
	for k, from := 0, 0; k < parts; k++ {
		m := cut8(n, k, parts) - from
		isa.scores(&sc.s[from*isa.lanes()], &q[0], t.k.at(see.lo+from), t.k.stride(), m, f.b.D,
			g.vecs)
		from += m
		f.fetch(next, whole, k, 2*parts)
	}
	sc.bow(isa, &f.curve, n)
	isa.softmax(&sc.s[0], words, n, &g.m[0], &g.l[0], &sc.alpha[0], g.vecs)
	parts = partsOf(next, dims)
	for k, from := 0, 0; k < parts; k++ {
		m := cut8(dims, k, parts) - from
		isa.weigh(&o[from*isa.lanes()], &sc.s[0], &v.data[see.lo*v.step+from], v.stride(), n, m,
			&sc.alpha[0], g.vecs)
		from += m
		f.fetch(next, whole, parts+k, 2*parts)
	}
	if odd {
		sc.patchPanel(isa, o, sc.s, &t.v, see)
	}
}

// ahead is the group whose rows will be needed next, and whether all of them or those of acc alone:
// the next group's, to be loaded, or at the end the own ones, to be stored, if not past the caches.
// nil: no group's. Memory would take as long for the rows of a group as the arithmetic of half a
// tile.
func (f *forward[E]) ahead(i int) (g *lanes, whole bool) {
	if i+1 < len(f.sc.groups) && !f.sc.groups[i+1].asked {
		f.sc.groups[i+1].asked = true
		return &f.sc.groups[i+1], true
	}
	if f.last && !f.sc.Past {
		return &f.sc.groups[i], false
	}
	return nil, false
}

// fetch asks the caches for part k of parts of the rows of g.
func (f *forward[E]) fetch(g *lanes, whole bool, k, parts int) {
	if g == nil {
		return
	}
	items := g.item[g.n*k/parts : g.n*(k+1)/parts]
	touch(f.isa, f.s.Acc, items, f.b.DV, f.b.DV)
	touch(f.isa, f.s.M, items, 1, 1)
	touch(f.isa, f.s.L, items, 1, 1)
	if whole {
		touch(f.isa, f.b.Q, items, f.b.D, f.b.D)
	}
}

// partsOf is the calls into which work on n rows is cut, to ask for rows of g between them.
func partsOf(g *lanes, n int) int {
	const most = 6
	if g == nil || n < 8*most {
		return 1
	}
	return most
}

// cut8 is the end of part k of parts of n: a multiple of 8, but for the last.
func cut8(n, k, parts int) int {
	if k == parts-1 {
		return n
	}
	return n * (k + 1) / parts &^ 7
}

// panel is group i's own of the panels a, whose rows are w long.
func (f *forward[E]) panel(a []float32, w, i int) []float32 {
	size := padded(w) * f.isa.lanes()
	return a[i*size : (i+1)*size]
}

// source readies the keys and values of the tile: in place where a kernel can read them there.
func (f *forward[E]) source() {
	b, t := f.b, &f.sc.tile
	if t.k.data != nil {
		return
	}
	t.k = headRows(f.isa, f.sc.k, b.K, t, b.KHeads, f.kvHead, b.D, false)
	t.v = headRows(f.isa, f.sc.v, b.V, t, b.KHeads, f.kvHead, b.DV, true)
}

// headRows is one head's rows of a tile of src [keys, heads, w]: in place where they are floats and
// enough, and for weigh a multiple of 8; else copied to buf. AVX2's weigh, which takes 16 bytes of
// a row at a time, is slower by a third where rows are a multiple of 4096 bytes apart, as all of
// them then share one set of the first cache.
func headRows[E attn.Elem](isa ISA, buf []float32, src []E, t *tile, heads, head, w int,
	weigh bool,
) rows {
	step, from := heads*w, src[(t.row0*heads+head)*w:]
	apart := !weigh || (w%8 == 0 && (isa != AVX2 || step%1024 != 0))
	if f, ok := floats(from); ok && t.n >= minKeys && apart {
		return rows{data: f, step: step, n: t.n, w: w}
	}
	return loadRows(isa, buf, from, t.n, w, step, padded(w))
}

// load readies the panels of group i, once.
func (f *forward[E]) load(i int) {
	b, sc, isa, g := f.b, f.sc, f.isa, &f.sc.groups[i]
	if g.loaded {
		return
	}
	g.loaded = true
	q, o := f.panel(sc.q, b.D, i), f.panel(sc.o, b.DV, i)
	scale, rest := split(b.Scale)
	if isa.dots() {
		f.packDot(i)
	} else if from, ok := floats(b.Q); ok {
		isa.packScaled(&q[0], &from[0], &g.item[0], 4*b.D, b.D, g.vecs, scale, rest)
	} else {
		loadLanes(isa, sc.qr, b.Q, g, b.D)
		isa.packScaled(&q[0], &sc.qr[0], sc.own(g), 4*padded(b.D), b.D, g.vecs, scale,
			rest)
	}
	isa.pack(&o[0], &f.s.Acc[0], &g.item[0], 4*b.DV, b.DV, g.vecs)
	for j, x := range g.item[:isa.lanes()] {
		g.m[j], g.l[j] = f.s.M[x], f.s.L[x]
	}
}

// store puts the state of group i back, if it was loaded.
func (f *forward[E]) store(i int) {
	b, sc, g := f.b, f.sc, &f.sc.groups[i]
	if !g.loaded {
		return
	}
	o := f.panel(sc.o, b.DV, i)
	sc.unpack(f.isa, f.s.Acc, o, g, b.DV)
	for j, x := range g.item[:g.n] {
		f.s.M[x], f.s.L[x] = g.m[j], g.l[j]
	}
}
