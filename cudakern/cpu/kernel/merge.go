package kernel

import (
	"math"

	"github.com/kvloom/kvloom/attn"
)

// MergePart folds items [lo,hi) of a finished part of other keys, out and its lse, into the state.
// A part stands for one key of logit lse and value out (attn.Merge is the same of two parts):
//
//	m' = max(m, lse)   l = l e^(m-m') + e^(lse-m')   acc = acc e^(m-m') + out e^(lse-m')
//
// Where lse is -Inf the state stays as it is and out is not read; where the state is fresh, the
// part takes its place. A NaN on either side stays (a NaN logit leaves m at -Inf and l NaN).
func MergePart[T attn.Float](s attn.State[T], out, lse []T, dv, lo, hi int) {
	for x := lo; x < hi; x++ {
		acc, o := s.Acc[x*dv:(x+1)*dv], out[x*dv:(x+1)*dv]
		m, b := s.M[x], lse[x]
		if math.IsInf(float64(b), -1) {
			continue
		}
		if math.IsInf(float64(m), -1) && s.L[x] == 0 {
			copy(acc, o)
			s.M[x], s.L[x] = b, 1
			continue
		}
		top := max(m, b)
		fade, weight := T(math.Exp(float64(m)-float64(top))), T(math.Exp(float64(b)-float64(top)))
		for i, a := range acc {
			acc[i] = a*fade + o[i]*weight
		}
		s.M[x], s.L[x] = top, s.L[x]*fade+weight
	}
}

// AccumulateNarrow adds elements [lo,hi) of src to those of dst.
func AccumulateNarrow[T attn.Float](dst []T, src []attn.BF16, lo, hi int) {
	to := dst[lo:hi]
	for i, x := range src[lo:hi] {
		to[i] += T(x.Float32())
	}
}
