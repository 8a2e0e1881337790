package simd

import (
	"math"

	"github.com/kvloom/kvloom/attn"
)

// maxDim is the largest D and DV that are served.
const maxDim = 256

// Serves reports whether the kernels compute blocks like b: f32 or bf16 elements, up to 256 of a
// head, no cap on the logits.
func Serves[E attn.Elem](b *attn.Block[E]) bool {
	switch any(b.Q).(type) {
	case []float32, []attn.BF16:
	default:
		return false
	}
	return b.SoftCap == 0 && b.D <= maxDim && b.DV <= maxDim
}

// taskRows is the query rows of a task of Forward.
func taskRows[E attn.Elem](b *attn.Block[E]) int {
	return max(1, forwardLanes/min(b.Group, b.QHeads))
}

// ForwardTasks is the number of independent tasks of Forward for b, 0 when b has no query row: one
// for each held KV head and each so many query rows that its query heads have forwardLanes of them
// together. The last rows come first: under a causal mask their tasks are the longest.
func ForwardTasks[E attn.Elem](b *attn.Block[E]) int {
	return b.KHeads * ceilDiv(b.QSpans.Len(), taskRows(b))
}

// forward is a task of Forward.
type forward[E attn.Elem] struct {
	isa    ISA
	b      *attn.Block[E]
	s      attn.State[float32]
	sc     *Scratch
	kvHead int
}

// Forward folds the block's keys into the state of the query rows and heads of one task,
// 0 <= task < ForwardTasks(b): what kernel.Forward does for the same rows and heads. b must be one
// that is served, isa one that is supported and not Portable.
func Forward[E attn.Elem](isa ISA, b *attn.Block[E], s attn.State[float32], task int,
	sc *Scratch,
) {
	per, total, keys := taskRows(b), b.QSpans.Len(), b.KSpans.Len()
	kvHead, row0 := task%b.KHeads, (ceilDiv(total, per)-1-task/b.KHeads)*per
	n := min(per, total-row0)
	h0, h1 := readers(b, kvHead)
	if h0 == h1 {
		return
	}
	sc.fitForward(isa, b.D, b.DV, n*(h1-h0))
	at := cursor{set: b.QSpans}
	at.skip(row0)
	first, last := sc.setRows(&at, n)
	sc.near = sift(sc.near, b.Mask, box{first, last, math.MinInt, math.MaxInt})
	if len(sc.near) == 0 {
		return
	}
	sc.setGroups(isa, row0, n, h0, h1, b.QHeads)
	f := forward[E]{isa, b, s, sc, kvHead}
	at = cursor{set: b.KSpans}
	for key0 := 0; key0 < keys; key0 += forwardKeys {
		sc.tile.cut(&at, key0, min(forwardKeys, keys-key0))
		if !anyTouches(sc.near, box{first, last, sc.tile.first, sc.tile.last}) {
			continue
		}
		for i := range sc.groups {
			f.fold(i)
		}
	}
	for i := range sc.groups {
		f.store(i)
	}
}

// fold folds the tile into group i.
func (f *forward[E]) fold(i int) {
	sc, isa, g, t := f.sc, f.isa, &f.sc.groups[i], &f.sc.tile
	see := sc.look(g, t)
	if see.hi == 0 {
		return
	}
	var words *uint64
	if !see.all {
		words = &sc.words[see.lo]
	}
	f.load(i)
	f.source()
	n, q, o := see.hi-see.lo, f.panel(sc.q, f.b.D, i), f.panel(sc.o, f.b.DV, i)
	isa.scores(&sc.s[0], &q[0], t.k.at(see.lo), t.k.stride(), n, f.b.D)
	isa.softmax(&sc.s[0], words, n, &g.m[0], &g.l[0], &sc.alpha[0])
	dims, v := (f.b.DV+7)&^7, t.v
	odd := !see.all && !t.v.finite(isa)
	if odd {
		v = sc.cleaned(&t.v)
	}
	isa.weigh(&o[0], &sc.s[0], v.at(see.lo), v.stride(), n, dims, &sc.alpha[0])
	if odd {
		sc.patchPanel(isa, o, sc.s, &t.v, see)
	}
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
	if from, ok := floats(b.Q); ok {
		isa.packScaled(&q[0], &from[0], &g.item[0], 4*b.D, b.D, b.Scale)
	} else {
		loadLanes(isa, sc.qr, b.Q, g, b.D)
		isa.packScaled(&q[0], &sc.qr[0], sc.own(g), 4*padded(b.D), b.D, b.Scale)
	}
	isa.pack(&o[0], &f.s.Acc[0], &g.item[0], 4*b.DV, b.DV)
	for j, x := range g.item[:isa.lanes()] {
		g.m[j], g.l[j] = f.s.M[x], f.s.L[x]
	}
}

// store puts the state of group i back, if it was loaded.
func (f *forward[E]) store(i int) {
	b, sc, isa, g := f.b, f.sc, f.isa, &f.sc.groups[i]
	if !g.loaded {
		return
	}
	o := f.panel(sc.o, b.DV, i)
	isa.unpack(&f.s.Acc[0], &o[0], &g.item[0], 4*b.DV, b.DV)
	for j, x := range g.item[:g.n] {
		f.s.M[x], f.s.L[x] = g.m[j], g.l[j]
	}
}
