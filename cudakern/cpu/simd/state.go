package simd

import (
	"math"
	"unsafe"

	"github.com/kvloom/kvloom/attn"
)

// callFloats is the floats that one call takes at most of a long array, so that it ends soon.
const callFloats = 1 << 14

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

// FinalizeNarrow is kernel.FinalizeNarrow, bit for bit.
func FinalizeNarrow(isa ISA, out []attn.BF16, s attn.State[float32], sink []float32,
	dv, lo, hi int,
) {
	Finalize(isa, s.Acc, s.M, s, sink, dv, lo, hi)
	Narrow(isa, out[lo*dv:hi*dv], s.Acc[lo*dv:hi*dv])
}

// Narrow is attn.Narrow, bit for bit. dst and src have the same length.
func Narrow(isa ISA, dst []attn.BF16, src []float32) {
	dst = dst[:len(src)]
	for len(src) > 0 {
		n := min(len(src), callFloats)
		whole := n &^ 15
		if whole > 0 {
			isa.narrow((*uint16)(unsafe.Pointer(&dst[0])), &src[0], whole)
		}
		for i := whole; i < n; i++ {
			dst[i] = attn.ToBF16(src[i])
		}
		dst, src = dst[n:], src[n:]
	}
}

// Delta is kernel.Delta, but for the order of the sum. With elements of bf16 dv is at most 256.
func Delta[E, O attn.Elem](isa ISA, delta []float32, do []E, out []O, dv, lo, hi int) {
	step := max(1, callFloats/dv)
	for ; lo < hi; lo += step {
		n := min(step, hi-lo)
		deltaRows(isa, delta[lo:lo+n], do[lo*dv:(lo+n)*dv], out[lo*dv:(lo+n)*dv], dv)
	}
}

// deltaRows is Delta of all rows of delta.
func deltaRows[E, O attn.Elem](isa ISA, delta []float32, do []E, out []O, dv int) {
	a, wideDO := floats(do)
	b, wideOut := floats(out)
	if wideDO && wideOut {
		isa.delta(&delta[0], &a[0], &b[0], len(delta), dv)
		return
	}
	var x, y [maxDim]float32
	for i := range delta {
		loadRow(isa, x[:dv], do[i*dv:(i+1)*dv])
		loadRow(isa, y[:dv], out[i*dv:(i+1)*dv])
		isa.delta(&delta[i], &x[0], &y[0], 1, dv)
	}
}

// Accumulate is kernel.Accumulate, bit for bit.
func Accumulate(isa ISA, dst, src []float32, lo, hi int) {
	for ; lo < hi; lo += callFloats {
		n := min(callFloats, hi-lo)
		isa.accumulate(&dst[lo : lo+n][0], &src[lo : lo+n][0], n)
	}
}

// MultiplyAdds does rounds rounds, at least 1, of multiply-adds on registers alone and returns
// their floating-point operations: what a core can do at most, of float32, and for AMX of tiles of
// bf16. A thousand rounds take some 50 us.
func MultiplyAdds(isa ISA, rounds int) (flops float64) {
	switch {
	case isa == AMX:
		peakAMX(rounds)
		return float64(rounds) * 6 * amxRows * amxRows * stepDims * 2
	case isa >= AVX512:
		isa.peak(rounds)
		return float64(rounds) * 8 * 24 * 16 * 2
	}
	isa.peak(rounds)
	return float64(rounds) * 8 * 12 * 8 * 2
}
