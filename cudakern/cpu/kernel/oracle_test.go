package kernel

import (
	"math"

	"github.com/kvloom/kvloom/attn"
)

// result is what the oracle gives for one problem, in float64.
type result struct{ out, lse, dq, dk, dv []float64 }

// dense is attention by its definition over one block, pair by pair in float64: the block's arrays
// and do as they are, everything else derived here. dk and dv are the held KV heads' share.
func dense[T attn.Float](b *attn.Block[T], do []T) result {
	qpos, kpos := b.QSpans.Positions(), b.KSpans.Positions()
	nq, nk := len(qpos), len(kpos)
	r := result{
		out: make([]float64, nq*b.QHeads*b.DV), lse: make([]float64, nq*b.QHeads),
		dq: make([]float64, nq*b.QHeads*b.D),
		dk: make([]float64, nk*b.KHeads*b.D), dv: make([]float64, nk*b.KHeads*b.DV),
	}
	for i, qp := range qpos {
		for h := range b.QHeads {
			var seen []int
			for j, kp := range kpos {
				if b.Mask.Allows(qp, kp) {
					seen = append(seen, j)
				}
			}
			denseRow(b, do, &r, i, h, seen)
		}
	}
	return r
}

// denseRow does query row i of head h, which sees the given keys.
func denseRow[T attn.Float](b *attn.Block[T], do []T, r *result, i, h int, seen []int) {
	g, x := b.KVHead(h), i*b.QHeads+h
	dot := func(a, c []T) (s float64) {
		for n := range a {
			s += float64(a[n]) * float64(c[n])
		}
		return s
	}
	key := func(j int) int { return j*b.KHeads + g }
	q := b.Q[x*b.D:][:b.D]
	scores, slopes, top := make([]float64, len(seen)), make([]float64, len(seen)), math.Inf(-1)
	for n, j := range seen {
		scores[n], slopes[n] = b.Scale*dot(q, b.K[key(j)*b.D:][:b.D]), 1
		if b.SoftCap != 0 {
			tanh := math.Tanh(scores[n] / b.SoftCap)
			scores[n], slopes[n] = b.SoftCap*tanh, 1-tanh*tanh
		}
		if scores[n] > top || math.IsNaN(scores[n]) {
			top = scores[n]
		}
	}
	if math.IsInf(top, -1) {
		r.lse[x] = top
		return
	}
	sum := 0.0
	for _, s := range scores {
		sum += math.Exp(s - top)
	}
	r.lse[x] = top + math.Log(sum)
	out := r.out[x*b.DV:][:b.DV]
	for n, j := range seen {
		for c, v := range b.V[key(j)*b.DV:][:b.DV] {
			out[c] += math.Exp(scores[n]-top) / sum * float64(v)
		}
	}
	if do == nil {
		return
	}
	dor, delta := do[x*b.DV:][:b.DV], 0.0
	for c, y := range dor {
		delta += float64(y) * out[c]
	}
	for n, j := range seen {
		p := math.Exp(scores[n]-top) / sum
		ds := p * (dot(dor, b.V[key(j)*b.DV:][:b.DV]) - delta) * b.Scale * slopes[n]
		for c := range b.D {
			r.dq[x*b.D+c] += ds * float64(b.K[key(j)*b.D+c])
			r.dk[key(j)*b.D+c] += ds * float64(q[c])
		}
		for c, y := range dor {
			r.dv[key(j)*b.DV+c] += p * float64(y)
		}
	}
}

// newState is a fresh state for b, with room for out and lse.
func newState[T attn.Float](b *attn.Block[T]) (s attn.State[T], out, lse []T) {
	items := b.QSpans.Len() * b.QHeads
	s = attn.State[T]{Acc: make([]T, items*b.DV), M: make([]T, items), L: make([]T, items)}
	FreshState(s, b.DV, 0, items)
	return s, make([]T, items*b.DV), make([]T, items)
}

// forwardAll is the whole forward of one block.
func forwardAll[T attn.Float](b *attn.Block[T]) (out, lse []T) {
	s, out, lse := newState(b)
	var sc Scratch[T]
	for task := range ForwardTasks(b) {
		Forward(b, s, task, &sc)
	}
	Finalize(out, lse, s, nil, b.DV, 0, len(lse))
	return out, lse
}

// newGrad has delta computed, DQ zero, and NaN in DK and DV, which must be set.
func newGrad[T attn.Float](b *attn.Block[T], do, out, lse []T) attn.Grad[T, T] {
	keys := b.KSpans.Len() * b.KHeads
	g := attn.Grad[T, T]{
		DO: do, LSE: lse, Delta: make([]T, len(lse)), DQ: make([]T, len(b.Q)),
		DK: make([]T, keys*b.D), DV: make([]T, keys*b.DV),
	}
	fill(g.DK, T(math.NaN()))
	fill(g.DV, T(math.NaN()))
	Delta(g.Delta, do, out, b.DV, 0, len(lse))
	return g
}

// backwardAll is the whole backward of one block.
func backwardAll[T attn.Float](b *attn.Block[T], do, out, lse []T) attn.Grad[T, T] {
	g := newGrad(b, do, out, lse)
	var sc Scratch[T]
	for task := range BackwardTasks(b) {
		Backward(b, g, task, &sc)
	}
	return g
}

func fill[T any](a []T, x T) {
	for i := range a {
		a[i] = x
	}
}

// relative is rms(got - want) / rms(want), with divisor 1 for a want below 1e-6.
func relative[T attn.Float](got []T, want []float64) float64 {
	return relativeTo(got, want, 0)
}

// relativeTo is relative with a divisor of least or more. Equal infinities count as 0; a NaN on one
// side, or an infinity, gives +Inf.
func relativeTo[T attn.Float](got []T, want []float64, least float64) float64 {
	diff, size := 0.0, 0.0
	for i, w := range want {
		g := float64(got[i])
		if g == w && math.IsInf(w, 0) || math.IsNaN(g) && math.IsNaN(w) {
			continue
		}
		if math.IsNaN(g-w) || math.IsInf(g-w, 0) {
			return math.Inf(1)
		}
		diff += (g - w) * (g - w)
		size += w * w
	}
	n := float64(max(1, len(want)))
	divisor := max(math.Sqrt(size/n), least)
	if divisor < 1e-6 {
		divisor = 1
	}
	return math.Sqrt(diff/n) / divisor
}
