package attn

import (
	"fmt"
	"math"

	"github.com/kvloom/kvloom/mesh"
)

// Float is a type of accumulators, and of the elements of the exact paths. Narrower elements (BF16)
// come with accumulators of f32.
type Float interface{ ~float32 | ~float64 }

// Block is one KV block against the query rows at hand: what one ring step attends. All arrays
// are row-major without gaps; rows follow the spans' order, heads are the held ones.
//
//	Q [NQ, QHeads, D]    K [NK, KHeads, D]    V [NK, KHeads, DV]
//
// Held query head h is global head QHead0+h and reads global KV head (QHead0+h)/Group, which is
// held KV head (QHead0+h)/Group - KHead0. Mask speaks of global positions. The logit of a pair is
// Scale * q.k, capped as SoftCap of Problem says.
type Block[E Elem] struct {
	QSpans, KSpans mesh.Set
	QHeads, KHeads int // held
	QHead0, KHead0 int // global number of the first one held
	Group          int // query heads per KV head, globally
	D, DV          int
	Scale          float64
	SoftCap        float64 // 0: none
	Mask           Mask
	Q, K, V        []E
}

// KVHead is the held KV head that held query head h reads.
func (b *Block[E]) KVHead(h int) int { return (b.QHead0+h)/b.Group - b.KHead0 }

// State is the running softmax state of the query rows, carried from block to block: row maximum
// M and sum L [NQ, QHeads], unnormalised output Acc [NQ, QHeads, DV]. A fresh state has M = -Inf,
// L = 0, Acc = 0.
type State[T Float] struct{ Acc, M, L []T }

// Grad holds what backward reads and adds to, for one block. DQ is added to. DK and DV are set to
// the block's own partial or, with AddKV, it is added to them.
//
//	DO [NQ, QHeads, DV]   LSE, Delta [NQ, QHeads]   DQ [NQ, QHeads, D]
//	DK [NK, KHeads, D]    DV [NK, KHeads, DV]
type Grad[E Elem, T Float] struct {
	DO                     []E
	LSE, Delta, DQ, DK, DV []T
	AddKV                  bool
}

// Validate checks the block's sizes and lengths and that every held query head finds its KV head;
// the error names the first thing that is wrong. Blocks without rows or without keys are fine.
func (b *Block[E]) Validate() error {
	nq, nk := b.QSpans.Len(), b.KSpans.Len()
	if b.QHeads < 1 || b.KHeads < 1 || b.Group < 1 || b.D < 1 || b.DV < 1 {
		return fmt.Errorf("attn: block of %d query heads, %d KV heads, group %d, dim %d, "+
			"value dim %d: all must be 1 or more", b.QHeads, b.KHeads, b.Group, b.D, b.DV)
	}
	if lo, hi := b.KVHead(0), b.KVHead(b.QHeads-1); lo < 0 || hi >= b.KHeads {
		return fmt.Errorf("attn: block's query heads [%d,%d) read held KV heads %d to %d, "+
			"of which [0,%d) are there", b.QHead0, b.QHead0+b.QHeads, lo, hi, b.KHeads)
	}
	if len(b.Q) != nq*b.QHeads*b.D || len(b.K) != nk*b.KHeads*b.D ||
		len(b.V) != nk*b.KHeads*b.DV {
		return fmt.Errorf("attn: block's q, k, v have %d, %d, %d values, their shapes need "+
			"%d, %d, %d", len(b.Q), len(b.K), len(b.V),
			nq*b.QHeads*b.D, nk*b.KHeads*b.D, nk*b.KHeads*b.DV)
	}
	return Cap(b.SoftCap).validate()
}

// FreshState sets s to the state before any block.
func FreshState[T Float](s State[T]) {
	clear(s.Acc)
	clear(s.L)
	for r := range s.M {
		s.M[r] = negInf[T]()
	}
}

// tileKeys is how many keys Forward sums by themselves before it adds them to the state: one long
// running sum in float32 would lose more than 1e-6 over 4,096 keys.
const tileKeys = 64

// Forward folds the block into the state: m' = max(m, row maximum), l and acc rescaled by
// exp(m - m'), then the block's weights exp(s - m') added (Milakov and Gimelshein, Online
// normalizer calculation). Rows that see no key of the block stay as they are.
func Forward[T Float](b *Block[T], s State[T]) {
	w, part := make([]T, b.KSpans.Len()), make([]T, b.DV)
	b.eachRow(func(r, h int, runs []run) {
		x := r*b.QHeads + h
		top := logits(b, w, r, h, runs)
		if isNegInf(top) {
			return
		}
		acc := s.Acc[x*b.DV:][:b.DV]
		m := max(s.M[x], top)
		fade := exp(s.M[x] - m)
		for d := range acc {
			acc[d] *= fade
		}
		sum := s.L[x] * fade
		for _, run := range runs {
			for lo := run.lo; lo < run.hi; lo += tileKeys {
				clear(part)
				var partSum T
				for j := lo; j < min(lo+tileKeys, run.hi); j++ {
					p := exp(w[j] - m)
					partSum += p
					axpy(part, p, b.v(j, h))
				}
				sum += partSum
				Accumulate(acc, part)
			}
		}
		s.M[x], s.L[x] = m, sum
	})
}

// Finalize turns the state of rows*heads rows into out [rows, heads, dv] and lse [rows, heads]:
// out = acc / l, lse = m + log l; 0 and -Inf where l = 0. out may be s.Acc itself, lse s.M or s.L.
// A sink [heads] joins the sum here, once, as Normalizer says; nil is none.
func Finalize[T Float](dv int, s State[T], sink, out, lse []T) {
	for r, l := range s.L {
		o, acc, extra := out[r*dv:][:dv], s.Acc[r*dv:][:dv], math.Inf(-1)
		if sink != nil {
			extra = float64(sink[r%len(sink)])
		}
		if l == 0 {
			clear(o)
			lse[r] = T(extra)
			continue
		}
		factor, sum := Normalizer(float64(s.M[r]), float64(l), extra)
		for d := range o {
			o[d] = T(float64(acc[d]) * factor)
		}
		lse[r] = T(sum)
	}
}

// Delta is the row sum of do * out, both [rows, heads, dv], into delta [rows, heads]: what backward
// needs of out.
func Delta[T Float](dv int, do, out, delta []T) {
	for r := range delta {
		delta[r] = dot(do[r*dv:][:dv], out[r*dv:][:dv])
	}
}

// Backward gives the block's share of the gradients, by the formulas of DenseBackward: it adds to
// g.DQ and sets g.DK and g.DV, or adds to them. Rows with lse -Inf give nothing, whatever DO and
// Delta hold there.
func Backward[T Float](b *Block[T], g Grad[T, T]) {
	if !g.AddKV {
		clear(g.DK)
		clear(g.DV)
	}
	scale, softCap := T(b.Scale), Cap(b.SoftCap)
	b.eachRow(func(r, h int, runs []run) {
		x := r*b.QHeads + h
		lse, delta := g.LSE[x], g.Delta[x]
		if isNegInf(lse) {
			return
		}
		q, dq, do := b.q(r, h), g.DQ[x*b.D:][:b.D], g.DO[x*b.DV:][:b.DV]
		for _, run := range runs {
			for j := run.lo; j < run.hi; j++ {
				k := b.k(j, h)
				s := float64(scale * dot(q, k))
				p := exp(T(softCap.Of(s)) - lse)
				ds := p * (dot(do, b.v(j, h)) - delta) * scale * T(softCap.Slope(s))
				y := j*b.KHeads + b.KVHead(h)
				axpy(g.DV[y*b.DV:][:b.DV], p, do)
				axpy(g.DK[y*b.D:][:b.D], ds, q)
				axpy(dq, ds, k)
			}
		}
	})
}

// Accumulate adds src to dst: how a block's dK, dV partial joins the travelling sum. It panics when
// the lengths differ.
func Accumulate[T Float](dst, src []T) {
	mustBeAsLong("accumulate", len(dst), len(src))
	for n, x := range src {
		dst[n] += x
	}
}

// mustBeAsLong panics when what writes dst values from src values has another number of them.
func mustBeAsLong(what string, dst, src int) {
	if dst != src {
		panic(fmt.Sprintf("attn: %s %d values onto %d", what, src, dst))
	}
}

// eachRow visits every query row r and held head h with the runs of key rows that the row sees.
// Rows that see none are left out.
func (b *Block[E]) eachRow(visit func(r, h int, runs []run)) {
	var runs []run
	r := 0
	for _, span := range b.QSpans {
		for a := range span.Count {
			runs = b.Mask.keyRuns(runs[:0], b.KSpans, span.At(a))
			if len(runs) > 0 {
				for h := range b.QHeads {
					visit(r, h, runs)
				}
			}
			r++
		}
	}
}

// logits writes the logits of row r, head h to w, at the places of runs, and returns the largest.
// A NaN among them is the largest.
func logits[T Float](b *Block[T], w []T, r, h int, runs []run) T {
	top, scale, q := negInf[T](), T(b.Scale), b.q(r, h)
	softCap := Cap(b.SoftCap)
	for _, run := range runs {
		for j := run.lo; j < run.hi; j++ {
			w[j] = T(softCap.Of(float64(scale * dot(q, b.k(j, h)))))
			top = max(top, w[j])
		}
	}
	return top
}

// q is the query vector of row r, held head h.
func (b *Block[E]) q(r, h int) []E { return b.Q[(r*b.QHeads+h)*b.D:][:b.D] }

// k is the key vector of key row j that held query head h reads.
func (b *Block[E]) k(j, h int) []E { return b.K[(j*b.KHeads+b.KVHead(h))*b.D:][:b.D] }

// v is the value vector of key row j that held query head h reads.
func (b *Block[E]) v(j, h int) []E { return b.V[(j*b.KHeads+b.KVHead(h))*b.DV:][:b.DV] }
