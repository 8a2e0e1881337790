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
func Finalize[T attn.Float](out, lse []T, s attn.State[T], dv, lo, hi int) {
	for x := lo; x < hi; x++ {
		m, l := s.M[x], s.L[x]
		to, acc := out[x*dv:(x+1)*dv], s.Acc[x*dv:(x+1)*dv]
		if l == 0 {
			clear(to)
			lse[x] = T(math.Inf(-1))
			continue
		}
		inverse := 1 / float64(l)
		for i, a := range acc {
			to[i] = T(float64(a) * inverse)
		}
		lse[x] = T(float64(m) + math.Log(float64(l)))
	}
}

// Delta sets items [lo,hi) of delta to the sum of do * out over an item's dv values; backward
// subtracts it (Dao et al., FlashAttention, appendix B).
func Delta[T attn.Float](delta, do, out []T, dv, lo, hi int) {
	for x := lo; x < hi; x++ {
		a := do[x*dv : (x+1)*dv]
		b := out[x*dv:][:len(a)]
		sum := 0.0
		for i, v := range a {
			sum += float64(v) * float64(b[i])
		}
		delta[x] = T(sum)
	}
}

// Accumulate adds elements [lo,hi) of src to those of dst.
func Accumulate[T attn.Float](dst, src []T, lo, hi int) {
	to := dst[lo:hi]
	for i, x := range src[lo:hi] {
		to[i] += x
	}
}
