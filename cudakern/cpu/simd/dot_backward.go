package simd

import (
	"unsafe"

	"github.com/kvloom/kvloom/attn"
)

// packPairs sets panel dst [w/2, lanes] to the rows of src [items, w] that the group holds, in
// pairs of dims, each of which is 32 bits like a float.
func packPairs(dst []float32, src []attn.BF16, g *lanes, w int) {
	AVX512.pack(&dst[0], (*float32)(unsafe.Pointer(&src[0])), &g.item[0], 2*w, w/2, panelVecs)
}

// weaveRows sets dst [maxLanes/2, padded(w)] to pairs of the rows of src [items, w] that the group
// holds, and 0 after them, and reports whether they are all finite; else 0 is in place of what is
// not.
func (sc *Scratch) weaveRows(dst []float32, src []attn.BF16, g *lanes, w int) (finite bool) {
	pad := padded(w)
	clear(dst[ceilDiv(g.n, 2)*pad : maxLanes/2*pad])
	if pairBF16(&dst[0], word(src), &g.item[0], 2*w, g.n, w, 4*pad, pairBytes) {
		return true
	}
	clean := sc.dot.clean
	for i, x := range g.item[:g.n] {
		copyFinite(clean[i*w:(i+1)*w], src[x*w:])
	}
	pairBF16(&dst[0], word(clean), &sc.count[0], 2*w, g.n, w, 4*pad, pairBytes)
	return false
}

// packDot readies the panels and rows of group i, but for dq.
func (w *backward[E]) packDot(i int) {
	b, sc, g := w.b, w.sc, &w.sc.groups[i]
	q, do := bits(b.Q), bits(w.g.DO)
	packPairs(w.part(sc.q, b.D, i), q, g, b.D)
	packPairs(w.part(sc.do, b.DV, i), do, g, b.DV)
	plain := sc.weaveRows(w.part(sc.qr, b.D, i), q, g, b.D)
	g.odd = !sc.weaveRows(w.part(sc.dor, b.DV, i), do, g, b.DV) || !plain
}

// startDot readies keys and values.
func (w *backward[E]) startDot() {
	b, t, sc := w.b, &w.sc.tile, w.sc
	sc.dot.k = dotSource(sc.dot.few[0], bits(b.K), t, b.KHeads, w.kvHead, b.D)
	sc.dot.v = dotSource(sc.dot.few[1], bits(b.V), t, b.KHeads, w.kvHead, b.DV)
	sc.weave(&sc.dot.k, t.n, b.D)
}

// meetDot is meet, by products of pairs.
func (w *backward[E]) meetDot(i int, see seen) {
	b, sc, g, t := w.b, w.sc, &w.sc.groups[i], &w.sc.tile
	see = see.pair()
	var words *uint64
	if !see.all {
		words = &sc.words[see.lo]
	}
	n, held, scale := see.hi-see.lo, see.held(t), float32(b.Scale)
	q, do, dq := w.part(sc.q, b.D, i), w.part(sc.do, b.DV, i), w.part(sc.o, b.D, i)
	k, v, p, ds := &sc.dot.k, &sc.dot.v, numbers(sc.s), numbers(sc.dot.ds)
	scoresBF16(&sc.s[0], &q[0], k.at(see.lo), k.stride(), held, b.D/2, g.vecs, scale)
	scoresBF16(&sc.dp[0], &do[0], v.at(see.lo), v.stride(), held, b.DV/2, g.vecs, 1)
	if held < n {
		sc.dropLast(held)
		clear(sc.dp[held*maxLanes : n*maxLanes])
	}
	slopesBF16(&sc.s[0], &sc.dp[0], word(ds), words, n, &g.m[0], &g.l[0], scale)
	if n%zeroRows != 0 {
		clear(p[n*maxLanes : (n+zeroRows)*maxLanes])
		clear(ds[n*maxLanes : (n+zeroRows)*maxLanes])
	}
	weighBF16(&dq[0], &sc.dp[0], &sc.dot.woven[see.lo/2*dimPairs], dimStride, n/2, (b.D+7)&^7,
		&sc.ones[0], g.vecs)
	if sc.dot.odd {
		sc.patchWoven(dq, sc.dp, k, t.n, b.D, see)
	}
	dk, dv := sc.dk[see.lo*padded(b.D):], sc.dv[see.lo*padded(b.DV):]
	qr, dor := w.part(sc.qr, b.D, i), w.part(sc.dor, b.DV, i)
	fours := ceilDiv(g.n, 8)
	outerBF16(&dv[0], word(p), &dor[0], n, padded(b.DV), fours)
	outerBF16(&dk[0], word(ds), &qr[0], n, padded(b.D), fours)
	if g.odd {
		sc.patchWeights(dv, p, bits(w.g.DO), g, b.DV, see)
		sc.patchWeights(dk, ds, bits(b.Q), g, b.D, see)
	}
}

// patchWeights adds to the rows of dst [keys, padded(w)] what weaveRows left out of src [items, w]:
// weights p [keys, lanes], both from see.lo on.
func (sc *Scratch) patchWeights(dst []float32, p, src []attn.BF16, g *lanes, w int, see seen) {
	pad := padded(w)
	for i, item := range g.item[:g.n] {
		for c, x := range src[item*w:][:w] {
			if isFinite(x.Float32()) {
				continue
			}
			for key := see.lo; key < see.hi; key++ {
				if see.all || sc.words[key]>>i&1 != 0 {
					at := key - see.lo
					dst[at*pad+c] += p[at*maxLanes+i].Float32() * x.Float32()
				}
			}
		}
	}
}
