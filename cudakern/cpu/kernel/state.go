package kernel

import (
	"math"

	"github.com/kvloom/kvloom/attn"
)

// FreshState makes items [lo,hi) of s the state before any block: M = -Inf, L = 0, Acc = 0. An item
// is one query row of one head, row*QHeads+head; dv is the number of its values.
func FreshState[T attn.Float](s attn.State[T], dv, lo, hi int) {
	m := s.M[lo:hi]
	for i := range m {
		m[i] = T(math.Inf(-1))
	}
	clear(s.L[lo:hi])
	clear(s.Acc[lo*dv : hi*dv])
}

// Finalize sets items [lo,hi) of out and lse from the state: out = Acc / L, lse = M + ln L. An item
// that has seen no key has out 0 and lse -Inf. out may be s.Acc itself, and lse may be s.M or s.L.
//
// A sink, one logit for each held query head, joins the sum here and so exactly once, whatever the
// number of blocks; nil is none, and -Inf none for its head:
//
//	out = Acc / (L + e^(sink-M))   lse = M + ln(L + e^(sink-M))
//
// and out 0, lse = sink for an item that has seen no key (Xiao et al., Efficient streaming language
// models with attention sinks, 2023, with a learned logit in the place of a key).
func Finalize[T attn.Float](out, lse []T, s attn.State[T], sink []T, dv, lo, hi int) {
	for x := lo; x < hi; x++ {
		to, acc := out[x*dv:(x+1)*dv], s.Acc[x*dv:(x+1)*dv]
		l, extra := s.L[x], math.Inf(-1)
		if sink != nil {
			extra = float64(sink[x%len(sink)])
		}
		if l == 0 {
			clear(to)
			lse[x] = T(extra)
			continue
		}
		factor, sum := attn.Normalizer(float64(s.M[x]), float64(l), extra)
		for i, a := range acc {
			to[i] = T(float64(a) * factor)
		}
		lse[x] = T(sum)
	}
}

// FinalizeNarrow is Finalize in the place of the state, and out rounded to BF16 elsewhere besides:
// Acc holds out before it was rounded, M the lse.
func FinalizeNarrow[T attn.Float](out []attn.BF16, s attn.State[T], sink []T, dv, lo, hi int) {
	Finalize(s.Acc, s.M, s, sink, dv, lo, hi)
	attn.Narrow(out[lo*dv:hi*dv], s.Acc[lo*dv:hi*dv])
}

// Delta sets items [lo,hi) of delta to the sum of do * out over an item's dv values; backward
// subtracts it (Dao et al., FlashAttention, appendix B). do and out are of T or of BF16, each for
// itself.
func Delta[E, O attn.Elem, T attn.Float](delta []T, do []E, out []O, dv, lo, hi int) {
	var wideDO, wideOut [deltaStep]T
	for x := lo; x < hi; x++ {
		sum := 0.0
		for at := x * dv; at < (x+1)*dv; at += deltaStep {
			n := min(deltaStep, (x+1)*dv-at)
			a := headRows(wideDO[:], do[at:at+n], 0, 1, 1, 0, n)
			b := headRows(wideOut[:], out[at:at+n], 0, 1, 1, 0, n)
			for i, v := range a {
				sum += float64(v) * float64(b[i])
			}
		}
		delta[x] = T(sum)
	}
}

// deltaStep is how many values of an item Delta widens at once, on its stack.
const deltaStep = 64

// SinkGrad sets dsink of heads [lo,hi) to the gradient of their sinks over all rows of lse and
// delta, both [rows, heads], where heads is len(sink): minus the sum of e^(sink-lse) * delta, taken
// in the order of the rows. A sink of -Inf has gradient 0. Rows without a key have delta 0 and add
// nothing.
func SinkGrad[T attn.Float](dsink, lse, delta, sink []T, lo, hi int) {
	for h := lo; h < hi; h++ {
		s, sum := float64(sink[h]), 0.0
		for x := h; x < len(lse) && !math.IsInf(s, -1); x += len(sink) {
			sum -= math.Exp(s-float64(lse[x])) * float64(delta[x])
		}
		dsink[h] = T(sum)
	}
}

// Accumulate adds elements [lo,hi) of src to those of dst.
func Accumulate[T attn.Float](dst, src []T, lo, hi int) {
	to := dst[lo:hi]
	for i, x := range src[lo:hi] {
		to[i] += x
	}
}
