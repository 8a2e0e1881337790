package simd

import (
	"math"

	"github.com/kvloom/kvloom/attn"
)

// BackwardTasks is the number of independent tasks of Backward for b: one for each held KV head.
func BackwardTasks[E attn.Elem](b *attn.Block[E]) int { return b.KHeads }

// backward is a piece of the backward pass.
type backward[E attn.Elem] struct {
	isa    ISA
	b      *attn.Block[E]
	g      *attn.Grad[E, float32]
	sc     *Scratch
	kvHead int
	h0, h1 int // the query heads that read it
	curve  curve
	set    bool // the piece sets DK and DV, else it adds to them
}

// Backward computes the gradients of one held KV head, 0 <= task < BackwardTasks(b): what
// kernel.Backward does for it. b must be one that is served, isa one that is supported and not
// Portable.
func Backward[E attn.Elem](isa ISA, b *attn.Block[E], g attn.Grad[E, float32], task int,
	sc *Scratch,
) {
	for pass := range passes(b, task) {
		BackwardPiece(isa, b, g, Piece{KVHead: task, Pass: pass}, 1, sc)
	}
}

// BackwardPiece computes one piece of Backward, of the grid of so many parts, when those that it
// needs are over (Grid.Needs). All pieces together give the bits of Backward, whatever the parts.
func BackwardPiece[E attn.Elem](isa ISA, b *attn.Block[E], g attn.Grad[E, float32], p Piece,
	parts int, sc *Scratch,
) {
	w := backward[E]{
		isa: pathOf(isa, b), b: b, g: &g, sc: sc, kvHead: p.KVHead, curve: newCurve(b.SoftCap),
	}
	w.h0, w.h1 = readers(b, p.KVHead)
	at := queries(b, p.KVHead)
	row0 := at.pass(passRows(w.h1-w.h0), p.Pass)
	n := at.reach(passRows(w.h1 - w.h0))
	if n == 0 && p.Pass > 0 {
		return // other heads have more passes
	}
	sc.fitBackward(w.isa, b.D, b.DV, n*(w.h1-w.h0))
	first, last := sc.setRows(&at, n)
	sc.near = sift(sc.near, b.Mask, box{first, last, math.MinInt, math.MaxInt})
	if ends := len(at.set) == 0; len(sc.near) == 0 && !ends {
		return
	}
	w.set = !g.AddKV && !w.met(queries(b, p.KVHead), p.Pass)
	end := sc.startPart(b.KSpans, p.Part, parts)
	if len(sc.near) == 0 {
		w.clear(sc.tile.row0, end-sc.tile.row0)
		return
	}
	sc.setGroups(w.isa, row0, n, w.h0, w.h1, b.QHeads)
	w.fetch(0)
	w.pass(first, last, end)
}

// met reports whether one of the next passes, so many of them, has a slice of the mask near it: if
// so, it has set DK and DV. The last is asked first, as the likeliest.
func (w *backward[E]) met(at cursor, before int) bool {
	if before == 0 {
		return false
	}
	rows := at.bounds(at.reach(passRows(w.h1 - w.h0)))
	return w.met(at, before-1) || anyTouches(w.b.Mask, rows)
}

// pass takes the groups of queries, at positions first to last, past the tiles before key end.
func (w *backward[E]) pass(first, last, end int) {
	sc, rows := w.sc, box{first, last, math.MinInt, math.MaxInt}
	for sc.tile.row0+sc.tile.n < end {
		met, touched := false, sc.next(rows)
		for i := 0; touched && i < len(sc.groups); i++ {
			if see := w.see(i); see.hi != 0 {
				if !met {
					w.start()
				}
				met = true
				w.meet(i, see)
			}
		}
		if met {
			w.finish()
		} else {
			w.clear(sc.tile.row0, sc.tile.n)
		}
	}
	for i := range sc.groups {
		w.store(i)
	}
}

// see is look at the tile by group i, whose rows without weight are known by then.
func (w *backward[E]) see(i int) seen {
	g := &w.sc.groups[i]
	if !g.loaded && !anyTouches(w.sc.near,
		box{g.first, g.last, w.sc.tile.first, w.sc.tile.last}) {
		return seen{}
	}
	w.load(i)
	return w.sc.look(g, &w.sc.tile)
}

// start readies keys, values and their gradients.
func (w *backward[E]) start() {
	b, t, sc := w.b, &w.sc.tile, w.sc
	if w.isa.dots() {
		w.startDot()
	} else {
		t.k = headRows(w.isa, sc.k, b.K, t, b.KHeads, w.kvHead, b.D, true)
		t.v = headRows(w.isa, sc.v, b.V, t, b.KHeads, w.kvHead, b.DV, false)
	}
	x, count := t.row0*b.KHeads+w.kvHead, sc.count[:t.n]
	touch(w.isa, w.g.DK[x*b.D:], count, b.KHeads*b.D, b.D)
	touch(w.isa, w.g.DV[x*b.DV:], count, b.KHeads*b.DV, b.DV)
	clear(sc.dk[:(maxKeys+zeroRows)*padded(b.D)])
	clear(sc.dv[:(maxKeys+zeroRows)*padded(b.DV)])
}

// finish gives the tile's gradients to the block.
func (w *backward[E]) finish() {
	b, t, sc := w.b, &w.sc.tile, w.sc
	for i := range t.n {
		x := (t.row0+i)*b.KHeads + w.kvHead
		dk, dv := w.g.DK[x*b.D:][:b.D], w.g.DV[x*b.DV:][:b.DV]
		if w.set {
			copy(dk, sc.dk[i*padded(b.D):])
			copy(dv, sc.dv[i*padded(b.DV):])
			continue
		}
		w.isa.accumulate(&dk[0], &sc.dk[i*padded(b.D)], b.D)
		w.isa.accumulate(&dv[0], &sc.dv[i*padded(b.DV)], b.DV)
	}
}

// clear sets the gradients of n keys to 0 where they are to be set.
func (w *backward[E]) clear(row0, n int) {
	for x := row0*w.b.KHeads + w.kvHead; w.set && n > 0; n-- {
		clear(w.g.DK[x*w.b.D:][:w.b.D])
		clear(w.g.DV[x*w.b.DV:][:w.b.DV])
		x += w.b.KHeads
	}
}

// meet adds what group i and the tile give to each other.
func (w *backward[E]) meet(i int, see seen) {
	b, sc, isa, g, t := w.b, w.sc, w.isa, &w.sc.groups[i], &w.sc.tile
	if isa.dots() {
		w.meetDot(i, see)
		return
	}
	var words *uint64
	if !see.all {
		words = &sc.words[see.lo]
	}
	n, lanes := see.hi-see.lo, isa.lanes()
	q, do, dq := w.part(sc.q, b.D, i), w.part(sc.do, b.DV, i), w.part(sc.o, b.D, i)
	isa.scores(&sc.s[0], &q[0], t.k.at(see.lo), t.k.stride(), n, b.D, g.vecs)
	isa.scores(&sc.dp[0], &do[0], t.v.at(see.lo), t.v.stride(), n, b.DV, g.vecs)
	delta := sc.bend(isa, &w.curve, n, &g.l)
	isa.slopes(&sc.s[0], &sc.dp[0], words, n, &g.m[0], delta, float32(b.Scale), g.vecs)
	if n%zeroRows != 0 {
		clear(sc.s[n*lanes : (n+zeroRows)*lanes])
		clear(sc.dp[n*lanes : (n+zeroRows)*lanes])
	}
	k := t.k
	odd := !see.all && !t.k.finite(isa)
	if odd {
		k = sc.cleaned(&t.k)
	}
	isa.weigh(&dq[0], &sc.dp[0], k.at(see.lo), k.stride(), n, (b.D+7)&^7, &sc.ones[0], g.vecs)
	if odd {
		sc.patchPanel(isa, dq, sc.dp, &t.k, see)
	}
	dk, dv := sc.dk[see.lo*padded(b.D):], sc.dv[see.lo*padded(b.DV):]
	qr, dor := w.part(sc.qr, b.D, i), w.part(sc.dor, b.DV, i)
	fours := ceilDiv(g.n, 4)
	isa.outer(&dv[0], &sc.s[0], &dor[0], n, padded(b.DV), fours)
	isa.outer(&dk[0], &sc.dp[0], &qr[0], n, padded(b.D), fours)
	if g.odd {
		patchRows(sc, isa, dv, sc.s, w.g.DO, g, b.DV, see)
		patchRows(sc, isa, dk, sc.dp, b.Q, g, b.D, see)
	}
}

// part is group i's own of panels or rows a, whose rows are width long.
func (w *backward[E]) part(a []float32, width, i int) []float32 {
	size := padded(width) * w.isa.lanes()
	return a[i*size : (i+1)*size]
}

// load readies the rows and panels of group i, once. A row whose lse is -Inf does not count.
func (w *backward[E]) load(i int) {
	b, sc, isa, g := w.b, w.sc, w.isa, &w.sc.groups[i]
	if g.loaded {
		return
	}
	g.loaded = true
	if isa.dots() {
		w.packDot(i)
	} else {
		w.pack(i)
	}
	dq := w.part(sc.o, b.D, i)
	isa.pack(&dq[0], &w.g.DQ[0], &g.item[0], 4*b.D, b.D, g.vecs)
	w.fetch(i + 1)
	for j, x := range g.item[:isa.lanes()] {
		g.m[j], g.l[j] = w.g.LSE[x], w.g.Delta[x]
		if math.IsInf(float64(g.m[j]), -1) {
			g.live &^= 1 << j
			g.m[j] = 0
		}
	}
}

// pack readies the panels and rows of group i, but for dq.
func (w *backward[E]) pack(i int) {
	b, sc, isa, g := w.b, w.sc, w.isa, &w.sc.groups[i]
	q, do := w.part(sc.q, b.D, i), w.part(sc.do, b.DV, i)
	qr, dor := w.part(sc.qr, b.D, i), w.part(sc.dor, b.DV, i)
	loadLanes(isa, qr, b.Q, g, b.D)
	loadLanes(isa, dor, w.g.DO, g, b.DV)
	scale, rest := split(b.Scale)
	isa.packScaled(&q[0], &qr[0], sc.own(g), 4*padded(b.D), b.D, g.vecs, scale, rest)
	isa.pack(&do[0], &dor[0], sc.own(g), 4*padded(b.DV), b.DV, g.vecs)
	pd, pv := padded(b.D), padded(b.DV)
	g.odd = !isa.finite(&qr[0], 4*pd, g.n, pd) || !isa.finite(&dor[0], 4*pv, g.n, pv)
	if g.odd {
		dropOdd(qr)
		dropOdd(dor)
	}
}

// fetch asks the caches for the rows of group i, if there is one, while another is at work.
func (w *backward[E]) fetch(i int) {
	if i >= len(w.sc.groups) {
		return
	}
	g := &w.sc.groups[i]
	items := g.item[:g.n]
	touch(w.isa, w.b.Q, items, w.b.D, w.b.D)
	touch(w.isa, w.g.DO, items, w.b.DV, w.b.DV)
	touch(w.isa, w.g.DQ, items, w.b.D, w.b.D)
	touch(w.isa, w.g.LSE, items, 1, 1)
	touch(w.isa, w.g.Delta, items, 1, 1)
}

// store puts dq of group i back, if it was loaded.
func (w *backward[E]) store(i int) {
	g := &w.sc.groups[i]
	if g.loaded {
		dq := w.part(w.sc.o, w.b.D, i)
		w.sc.unpack(w.isa, w.g.DQ, dq, g, w.b.D)
	}
}
