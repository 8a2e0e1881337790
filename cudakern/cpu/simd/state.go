package simd

import (
	"math"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern/cpu/kernel"
)

// Finalize is kernel.Finalize, bit for bit.
func Finalize(isa ISA, out, lse []float32, s attn.State[float32], sink []float32, dv, lo, hi int) {
	for x := lo; x < hi; x++ {
		l, extra := s.L[x], math.Inf(-1)
		if sink != nil {
			extra = float64(sink[x%len(sink)])
		}
		if l == 0 {
			clear(out[x*dv : (x+1)*dv])
			lse[x] = float32(extra)
			continue
		}
		factor, sum := attn.Normalizer(float64(s.M[x]), float64(l), extra)
		isa.scale(&out[x*dv : (x+1)*dv][0], &s.Acc[x*dv : (x+1)*dv][0], dv, factor)
		lse[x] = float32(sum)
	}
}

// Delta is kernel.Delta, but for the order of the sum.
func Delta[E, O attn.Elem](isa ISA, delta []float32, do []E, out []O, dv, lo, hi int) {
	if lo == hi {
		return
	}
	a, wideDO := floats(do[lo*dv : hi*dv])
	b, wideOut := floats(out[lo*dv : hi*dv])
	switch {
	case wideDO && wideOut:
		isa.delta(&delta[lo:hi][0], &a[0], &b[0], hi-lo, dv)
	case dv > maxDim:
		kernel.Delta(delta, do, out, dv, lo, hi)
	default:
		var x, y [maxDim]float32
		for i := lo; i < hi; i++ {
			load(isa, x[:dv], do[i*dv:(i+1)*dv])
			load(isa, y[:dv], out[i*dv:(i+1)*dv])
			isa.delta(&delta[i], &x[0], &y[0], 1, dv)
		}
	}
}

// Accumulate is kernel.Accumulate, bit for bit.
func Accumulate(isa ISA, dst, src []float32, lo, hi int) {
	if lo < hi {
		isa.accumulate(&dst[lo:hi][0], &src[lo:hi][0], hi-lo)
	}
}
