package simd

import (
	"math"

	"github.com/kvloom/kvloom/attn"
)

// BackwardTasks is the number of independent tasks of Backward for b: one for each held KV head.
func BackwardTasks[E attn.Elem](b *attn.Block[E]) int { return b.KHeads }

// backward is a task of Backward.
type backward[E attn.Elem] struct {
	isa    ISA
	b      *attn.Block[E]
	g      *attn.Grad[E, float32]
	sc     *Scratch
	kvHead int
}

// Backward computes the gradients of one held KV head, 0 <= task < BackwardTasks(b): what
// kernel.Backward does for it. b must be one that is served, isa one that is supported and not
// Portable.
func Backward[E attn.Elem](isa ISA, b *attn.Block[E], g attn.Grad[E, float32], task int,
	sc *Scratch,
) {
	w := backward[E]{isa, b, &g, sc, task}
	if !g.AddKV {
		for x := task; x < b.KSpans.Len()*b.KHeads; x += b.KHeads {
			clear(g.DK[x*b.D:][:b.D])
			clear(g.DV[x*b.DV:][:b.DV])
		}
	}
	h0, h1 := readers(b, task)
	if h0 == h1 {
		return
	}
	per, total := max(1, backwardPack/(h1-h0)), b.QSpans.Len()
	at := cursor{set: b.QSpans}
	for row0 := 0; row0 < total; row0 += per {
		n := min(per, total-row0)
		sc.fitBackward(isa, b.D, b.DV, n*(h1-h0))
		first, last := sc.setRows(&at, n)
		sc.near = sift(sc.near, b.Mask, box{first, last, math.MinInt, math.MaxInt})
		if len(sc.near) == 0 {
			continue
		}
		sc.setGroups(isa, row0, n, h0, h1, b.QHeads)
		w.pass(first, last)
	}
}

// pass takes the groups of queries, at positions first to last, past all keys.
func (w *backward[E]) pass(first, last int) {
	b, sc := w.b, w.sc
	at, keys := cursor{set: b.KSpans}, b.KSpans.Len()
	for key0 := 0; key0 < keys; key0 += backwardKeys {
		t := &sc.tile
		t.cut(&at, key0, min(backwardKeys, keys-key0))
		if !anyTouches(sc.near, box{first, last, t.first, t.last}) {
			continue
		}
		met := false
		for i := range sc.groups {
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
	t.k = headRows(w.isa, sc.k, b.K, t, b.KHeads, w.kvHead, b.D, true)
	t.v = headRows(w.isa, sc.v, b.V, t, b.KHeads, w.kvHead, b.DV, false)
	clear(sc.dk[:(backwardKeys+zeroRows)*padded(b.D)])
	clear(sc.dv[:(backwardKeys+zeroRows)*padded(b.DV)])
}

// finish adds the tile's gradients to those of the block.
func (w *backward[E]) finish() {
	b, t, sc := w.b, &w.sc.tile, w.sc
	for i := range t.n {
		x := (t.row0+i)*b.KHeads + w.kvHead
		w.isa.accumulate(&w.g.DK[x*b.D], &sc.dk[i*padded(b.D)], b.D)
		w.isa.accumulate(&w.g.DV[x*b.DV], &sc.dv[i*padded(b.DV)], b.DV)
	}
}

// meet adds what group i and the tile give to each other.
func (w *backward[E]) meet(i int, see seen) {
	b, sc, isa, g, t := w.b, w.sc, w.isa, &w.sc.groups[i], &w.sc.tile
	var words *uint64
	if !see.all {
		words = &sc.words[see.lo]
	}
	n, lanes := see.hi-see.lo, isa.lanes()
	q, do, dq := w.part(sc.q, b.D, i), w.part(sc.do, b.DV, i), w.part(sc.o, b.D, i)
	isa.scores(&sc.s[0], &q[0], t.k.at(see.lo), t.k.stride(), n, b.D)
	isa.scores(&sc.dp[0], &do[0], t.v.at(see.lo), t.v.stride(), n, b.DV)
	isa.slopes(&sc.s[0], &sc.dp[0], words, n, &g.m[0], &g.l[0], float32(b.Scale))
	if n%zeroRows != 0 {
		clear(sc.s[n*lanes : (n+zeroRows)*lanes])
		clear(sc.dp[n*lanes : (n+zeroRows)*lanes])
	}
	k := t.k
	odd := !see.all && !t.k.finite(isa)
	if odd {
		k = sc.cleaned(&t.k)
	}
	isa.weigh(&dq[0], &sc.dp[0], k.at(see.lo), k.stride(), n, (b.D+7)&^7, &sc.ones[0])
	if odd {
		sc.patchPanel(isa, dq, sc.dp, &t.k, see)
	}
	dk, dv := sc.dk[see.lo*padded(b.D):], sc.dv[see.lo*padded(b.DV):]
	qr, dor := w.part(sc.qr, b.D, i), w.part(sc.dor, b.DV, i)
	isa.outer(&dv[0], &sc.s[0], &dor[0], n, padded(b.DV))
	isa.outer(&dk[0], &sc.dp[0], &qr[0], n, padded(b.D))
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
	q, do, dq := w.part(sc.q, b.D, i), w.part(sc.do, b.DV, i), w.part(sc.o, b.D, i)
	qr, dor := w.part(sc.qr, b.D, i), w.part(sc.dor, b.DV, i)
	loadLanes(isa, qr, b.Q, g, b.D)
	loadLanes(isa, dor, w.g.DO, g, b.DV)
	isa.packScaled(&q[0], &qr[0], sc.own(g), 4*padded(b.D), b.D, b.Scale)
	isa.pack(&do[0], &dor[0], sc.own(g), 4*padded(b.DV), b.DV)
	isa.pack(&dq[0], &w.g.DQ[0], &g.item[0], 4*b.D, b.D)
	for j, x := range g.item[:isa.lanes()] {
		g.m[j], g.l[j] = w.g.LSE[x], w.g.Delta[x]
		if math.IsInf(float64(g.m[j]), -1) {
			g.live &^= 1 << j
			g.m[j] = 0
		}
	}
	pd, pv := padded(b.D), padded(b.DV)
	g.odd = !isa.finite(&qr[0], 4*pd, g.n, pd) || !isa.finite(&dor[0], 4*pv, g.n, pv)
	if g.odd {
		dropOdd(qr)
		dropOdd(dor)
	}
}

// store puts dq of group i back, if it was loaded.
func (w *backward[E]) store(i int) {
	g := &w.sc.groups[i]
	if g.loaded {
		dq := w.part(w.sc.o, w.b.D, i)
		w.isa.unpack(&w.g.DQ[0], &dq[0], &g.item[0], 4*w.b.D, w.b.D)
	}
}
