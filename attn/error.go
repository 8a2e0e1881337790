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
	var e Error
	bad, top := false, 0.0
	for n, r := range ref {
		d := distance(float64(got[n]), r)
		if math.IsNaN(d) || math.IsInf(d, 0) {
			bad = true
			continue
		}
		e.MaxAbs = max(e.MaxAbs, d)
		top = max(top, finite(r))
	}
	if bad {
		e.Rel = math.NaN()
		return e
	}
	if len(ref) == 0 {
		return e
	}
	diff, rms := normUpTo(e.MaxAbs), normUpTo(top)
	for n, r := range ref {
		diff.add(distance(float64(got[n]), r))
		rms.add(finite(r))
	}
	e.Rel = diff.rms(len(ref))
	if size := rms.rms(len(ref)); size >= tinyRMS {
		e.Rel /= size
	}
	return e
}

// distance is |g - r|, 0 where both are -Inf.
func distance(g, r float64) float64 {
	if math.IsInf(g, -1) && math.IsInf(r, -1) {
		return 0
	}
	return math.Abs(g - r)
}

// finite is |r|, 0 where r is infinite.
func finite(r float64) float64 {
	if math.IsInf(r, 0) {
		return 0
	}
	return math.Abs(r)
}

// norm sums squares of numbers. They are divided by a power of two near the largest, which costs
// no bit, since the square of 1e200 is no float64.
type norm struct{ shrink, sum float64 }

func normUpTo(top float64) norm {
	_, exponent := math.Frexp(top)
	return norm{shrink: math.Ldexp(1, -max(exponent, -1000))} // finite for subnormal tops too
}

func (s *norm) add(x float64) {
	x *= s.shrink
	s.sum += x * x
}

// rms is the root of the mean of n squares.
func (s *norm) rms(n int) float64 {
	return math.Sqrt(s.sum/float64(n)) / s.shrink
}

// Gate is the gate for a problem whose largest |scale * q.k| is maxLogit: rounding in the exponent
// grows with the logit, so base holds up to 128 and grows in proportion above.
func Gate(base, maxLogit float64) float64 { return base * max(1, maxLogit/128) }
