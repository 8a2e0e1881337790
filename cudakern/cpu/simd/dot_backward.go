package simd

import (
	"unsafe"

	"github.com/kvloom/kvloom/attn"
)

// packPairs sets panel dst [w/2, lanes] to the rows of src [items, w] that the group holds, in
// pairs of dims, each of which is 32 bits like a float, and to 0 up to a multiple of 16 pairs.
func packPairs(dst []float32, src []attn.BF16, g *lanes, w int) {
	AVX512.pack(&dst[0], (*float32)(unsafe.Pointer(&src[0])), &g.item[0], 2*w, w/2, panelVecs)
}

// weaveRows sets dst [rowFloats, padded(w)] to pairs of the rows of src [items, w] that the group
// holds, and 0 after them, and reports whether they are all finite; else 0 is in place of what is
// not.
func (sc *Scratch) weaveRows(dst []float32, src []attn.BF16, g *lanes, w int) (finite bool) {
	pad := padded(w)
	clear(dst[ceilDiv(g.n, 2)*pad : rowFloats*pad])
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
	sc.dot.k = dotSource(w.isa, sc.dot.few[0], bits(b.K), t, b.KHeads, w.kvHead, b.D)
	sc.dot.v = dotSource(w.isa, sc.dot.few[1], bits(b.V), t, b.KHeads, w.kvHead, b.DV)
	sc.weave(w.isa, &sc.dot.k, t.n, b.D)
}

// meetDot is meet, by products of pairs.
func (w *backward[E]) meetDot(i int, see seen) {
	b, sc, isa, g, t := w.b, w.sc, w.isa, &w.sc.groups[i], &w.sc.tile
	see = sc.whole(isa, see)
	var words *uint64
	if !see.all {
		words = &sc.words[see.lo]
	}
	n, held, scale := see.hi-see.lo, see.held(isa, t), float32(b.Scale)
	q, do, dq := w.part(sc.q, b.D, i), w.part(sc.do, b.DV, i), w.part(sc.o, b.D, i)
	k, v, p, ds := &sc.dot.k, &sc.dot.v, numbers(sc.s), numbers(sc.dot.ds)
	sc.scoresDot(isa, sc.s, q, k, see.lo, n, held, b.D, g.vecs, scale)
	sc.scoresDot(isa, sc.dp, do, v, see.lo, n, held, b.DV, g.vecs, 1)
	delta := sc.bend(isa, &w.curve, n, &g.l)
	sc.drop(held, n)
	clear(sc.dp[held*maxLanes : n*maxLanes])
	slopesDot(isa, sc.s, sc.dp, ds, words, n, &g.m[0], delta, scale, g.vecs)
	sc.weighDot(isa, dq, sc.dp, see.lo, n, b.D, &sc.ones[0], g.vecs)
	if sc.dot.odd {
		sc.patchWoven(dq, sc.dp, k, t.n, b.D, see)
	}
	dk, dv := sc.dk[see.lo*padded(b.D):], sc.dv[see.lo*padded(b.DV):]
	qr, dor := w.part(sc.qr, b.D, i), w.part(sc.dor, b.DV, i)
	outerDot(isa, dv, p, dor, n, b.DV, g.n)
	outerDot(isa, dk, ds, qr, n, b.D, g.n)
	if g.odd {
		sc.patchWeights(isa, dv, p, bits(w.g.DO), g, b.DV, see)
		sc.patchWeights(isa, dk, ds, bits(b.Q), g, b.D, see)
	}
}

// slopesDot turns n rows of scores s and dp into weights and their gradients, in bf16.
func slopesDot(isa ISA, s, dp []float32, ds []attn.BF16, words *uint64, n int,
	lse, delta *float32, scale float32, vecs int,
) {
	if isa == AMX {
		slopesAMX(&s[0], &dp[0], word(ds), words, n, lse, delta, scale, vecs)
		return
	}
	slopesBF16(&s[0], &dp[0], word(ds), words, n, lse, delta, scale, vecs)
	if n%zeroRows != 0 {
		p := numbers(s)
		clear(p[n*maxLanes : (n+zeroRows)*maxLanes])
		clear(ds[n*maxLanes : (n+zeroRows)*maxLanes])
	}
}

// outerDot adds to c [n, padded(w)] the product of n rows a of so many lanes and rows b.
func outerDot(isa ISA, c []float32, a []attn.BF16, b []float32, n, w, lanes int) {
	if isa == AMX {
		outerAMX(&c[0], word(a), &b[0], n, padded(w), ceilDiv(lanes, stepDims))
		return
	}
	outerBF16(&c[0], word(a), &b[0], n, padded(w), ceilDiv(lanes, 8))
}

// patchWeights adds to the rows of dst [keys, padded(w)] what weaveRows left out of src [items, w]:
// weights p [keys, lanes], both from see.lo on.
func (sc *Scratch) patchWeights(isa ISA, dst []float32, p, src []attn.BF16, g *lanes, w int,
	see seen) {
	pad := padded(w)
	for i, item := range g.item[:g.n] {
		for c, x := range src[item*w:][:w] {
			if isFinite(x.Float32()) {
				continue
			}
			for key := see.lo; key < see.hi; key++ {
				if see.all || sc.words[key]>>i&1 != 0 {
					at := key - see.lo
					dst[at*pad+c] += p[at*isa.rowLanes()+i].Float32() * x.Float32()
				}
			}
		}
	}
}
