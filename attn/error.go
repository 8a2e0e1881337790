package attn

import (
	"fmt"
	"math"
)

// Base gates of the relative error, by element type: what correct code stays under for logits up
// to 128. Gate widens them for larger ones.
const (
	BaseF32      = 1e-5
	BaseF64      = 1e-12
	BaseBF16     = 8e-3 // out and lse
	BaseBF16Grad = 2e-2
)

// tinyRMS is the rms of a reference below which errors are absolute.
const tinyRMS = 1e-6

// Error is how far a tensor is from its reference. Rel is rms(got-ref) / rms(ref), with divisor 1
// when rms(ref) < 1e-6; it is NaN when a value is NaN or infinite where its reference is not.
// MaxAbs is the largest difference among the finite places.
type Error struct{ MaxAbs, Rel float64 }

// OK reports whether the error is inside the gate; an error of NaN never is.
func (e Error) OK(gate float64) bool { return e.Rel <= gate }

// Compare measures got against ref. A place where both are -Inf (the lse of a row without keys)
// counts as 0 in both norms. It panics when the lengths differ.
func Compare[T Float](got []T, ref []float64) Error {
	if len(got) != len(ref) {
		panic(fmt.Sprintf("attn: compare %d values with %d of the reference", len(got), len(ref)))
	}
	var diff2, ref2 float64
	var e Error
	bad := false
	for n, r := range ref {
		g := float64(got[n])
		if math.IsInf(g, -1) && math.IsInf(r, -1) {
			continue
		}
		d := math.Abs(g - r)
		if math.IsNaN(d) || math.IsInf(d, 0) {
			bad = true
			continue
		}
		e.MaxAbs = max(e.MaxAbs, d)
		diff2 += d * d
		ref2 += r * r
	}
	if bad {
		e.Rel = math.NaN()
		return e
	}
	if len(ref) == 0 {
		return e
	}
	count := float64(len(ref))
	e.Rel = math.Sqrt(diff2 / count)
	if rms := math.Sqrt(ref2 / count); rms >= tinyRMS {
		e.Rel /= rms
	}
	return e
}

// Gate is the gate for a problem whose largest |scale * q.k| is maxLogit: rounding in the exponent
// grows with the logit, so base holds up to 128 and grows in proportion above.
func Gate(base, maxLogit float64) float64 { return base * max(1, maxLogit/128) }
