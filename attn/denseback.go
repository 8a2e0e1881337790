package attn

import (
	"fmt"
	"math"
)

// DenseBackward gives the gradients of sum(do * out): dq, dk, dv in the shapes of Q, K, V, and
// dsink in that of Sink, nil where there is none. do and out are [QTokens, QHeads, DV], lse
// [QTokens, QHeads], out and lse as Dense gave them.
//
//	delta = sum(do * out)   P = exp(logit - lse)   dS = P (do.v - delta) scale
//	dq = dS k               dk = dS^T q            dv = P^T do
//	dsink = -sum over rows of exp(sink - lse) delta
//
// With a soft cap c, dS has the slope 1 - tanh^2(scale q.k / c) as a further factor.
// (Dao et al., FlashAttention, appendix B). P = 0 where lse = -Inf, whatever do and out hold there.
func DenseBackward(p *Problem, do, out, lse []float64, par Parallel) (
	dq, dk, dv, dsink []float64,
) {
	dq = RowsBackward(p, do, out, lse, firstN(p.QTokens), par)
	dk, dv = KeysBackward(p, do, out, lse, firstN(p.KTokens), par)
	return dq, dk, dv, SinkBackward(p, do, out, lse)
}

// RowsBackward is the dq [len(rows), QHeads, D] of some query rows, the same bits as DenseBackward
// gives for them. do is the whole array [QTokens, QHeads, DV]; out and lse are those of the rows
// alone, as DenseRows returns them. It panics when a length is another.
func RowsBackward(p *Problem, do, out, lse []float64, rows []int, par Parallel) (dq []float64) {
	p.mustFit("do", do, p.QTokens*p.QHeads*p.DV)
	p.mustFit("out", out, len(rows)*p.QHeads*p.DV)
	p.mustFit("lse", lse, len(rows)*p.QHeads)
	dq = make([]float64, len(rows)*p.QHeads*p.D)
	par.blocks(len(rows), func(lo, hi int) {
		var keys []int
		var w []float64
		for h := range p.QHeads {
			k, v := p.kRows(p.kvHead(h)), p.vRows(p.kvHead(h))
			for r := lo; r < hi; r++ {
				x := r*p.QHeads + h
				if isNegInf(lse[x]) {
					continue
				}
				doRow := headRows(do, p.QHeads, h, p.DV).at(rows[r])
				delta := dot(doRow, out[x*p.DV:][:p.DV])
				keys = p.Mask.keys(keys[:0], rows[r])
				w = p.logits(w[:0], rows[r], h, keys)
				softCap := Cap(p.SoftCap)
				for n, s := range w {
					w[n] = math.Exp(softCap.Of(s)-lse[x]) * p.Scale * softCap.Slope(s)
				}
				eachDot(doRow, v, keys, func(n int, dp float64) { w[n] *= dp - delta })
				addRows(dq[x*p.D:][:p.D], w, k, keys)
			}
		}
	})
	return dq
}

// KeysBackward is the dk [len(keys), KHeads, D] and dv [len(keys), KHeads, DV] of some keys, the
// same bits as DenseBackward gives for them. do, out and lse are whole arrays, since any query may
// see a key; out and lse may be those of the run under test. It panics when a length is another.
func KeysBackward(p *Problem, do, out, lse []float64, keys []int, par Parallel) (
	dk, dv []float64,
) {
	p.mustFit("do", do, p.QTokens*p.QHeads*p.DV)
	p.mustFit("out", out, p.QTokens*p.QHeads*p.DV)
	p.mustFit("lse", lse, p.QTokens*p.QHeads)
	delta := make([]float64, len(lse))
	Delta(p.DV, do, out, delta)
	dk = make([]float64, len(keys)*p.KHeads*p.D)
	dv = make([]float64, len(keys)*p.KHeads*p.DV)
	par.blocks(len(keys), func(lo, hi int) {
		w := keyWork{p: p, do: do, lse: lse, delta: delta}
		for g := range p.KHeads {
			for r := lo; r < hi; r++ {
				x := r*p.KHeads + g
				w.backward(keys[r], g, dk[x*p.D:][:p.D], dv[x*p.DV:][:p.DV])
			}
		}
	})
	return dk, dv
}

// keyWork is what the backward of one key reads, and its scratch.
type keyWork struct {
	p              *Problem
	do, lse, delta []float64
	queries        []int
	prob, slope    []float64
	ds             []float64
}

// backward adds the gradient of key j, KV head g to dk and dv: over the query heads that read g,
// over the rows that see j.
func (w *keyWork) backward(j, g int, dk, dv []float64) {
	p := w.p
	k, v := p.kRows(g).at(j), p.vRows(g).at(j)
	group, softCap := p.QHeads/p.KHeads, Cap(p.SoftCap)
	for h := g * group; h < (g+1)*group; h++ {
		w.queries = w.seeing(h, j)
		q, do := p.qRows(h), headRows(w.do, p.QHeads, h, p.DV)
		w.prob, w.slope, w.ds = w.prob[:0], w.slope[:0], w.ds[:0]
		eachDot(k, q, w.queries, func(n int, qk float64) {
			s := p.Scale * qk
			prob := math.Exp(softCap.Of(s) - w.lse[w.queries[n]*p.QHeads+h])
			w.prob = append(w.prob, prob)
			w.slope = append(w.slope, softCap.Slope(s))
		})
		eachDot(v, do, w.queries, func(n int, dp float64) {
			delta := w.delta[w.queries[n]*p.QHeads+h]
			w.ds = append(w.ds, w.prob[n]*p.Scale*w.slope[n]*(dp-delta))
		})
		addRows(dv, w.prob, do, w.queries)
		addRows(dk, w.ds, q, w.queries)
	}
}

// seeing lists the queries that see key j with a weight: those of lse -Inf are left out.
func (w *keyWork) seeing(h, j int) []int {
	all := w.p.Mask.queries(w.queries[:0], j)
	kept := all[:0]
	for _, i := range all {
		if !isNegInf(w.lse[i*w.p.QHeads+h]) {
			kept = append(kept, i)
		}
	}
	return kept
}

// eachDot gives use the inner product of x with y.at(list[n]), for n in order.
func eachDot(x []float64, y vectors, list []int, use func(n int, dot float64)) {
	n := 0
	for ; n+4 <= len(list); n += 4 {
		a, b, c, d := dot4(x, y.at(list[n]), y.at(list[n+1]), y.at(list[n+2]), y.at(list[n+3]))
		use(n, a)
		use(n+1, b)
		use(n+2, c)
		use(n+3, d)
	}
	for ; n < len(list); n++ {
		use(n, dot(x, y.at(list[n])))
	}
}

// mustFit panics when an array of the caller has another length than its shape.
func (p *Problem) mustFit(name string, a []float64, want int) {
	if len(a) != want {
		panic(fmt.Sprintf("attn: %s has %d values, its shape needs %d", name, len(a), want))
	}
}
