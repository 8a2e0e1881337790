package kernel

import (
	"math"

	"github.com/kvloom/kvloom/attn"
)

// Arguments between which e^x is a normal number of single precision: ln 2^-126 and ln 2^128.
const (
	minArgument = -87.33654475055311
	maxArgument = 88.72283911167299
)

// roundToInt, added to a number below 2^51 in size, rounds it to an integer, which then lies in the
// low bits of the sum.
const roundToInt = 0x1.8p52

// 2^(f/64) = 1 + f(slope + f curve) for |f| <= 1/2: Taylor's terms, the third folded into the first
// by Chebyshev's polynomial of degree 3, which leaves a relative error of 7e-9.
const (
	powerStep  = math.Ln2 / powerSteps
	powerSlope = powerStep + powerStep*powerStep*powerStep/32
	powerCurve = powerStep * powerStep / 2
)

// powerSteps is the number of powers of 2 in a powers, as bits of their index.
const (
	powerBits  = 6
	powerSteps = 1 << powerBits
)

// powers holds 2^(i/powerSteps) as bits of a float64, with i in the place where the sum of indices
// is taken off again, so that adding k = 64 n + i there gives the bits of 2^(n+i/64).
type powers [powerSteps]uint64

// fill computes the table, once.
func (t *powers) fill() {
	if t[0] != 0 {
		return
	}
	for i := range t {
		power := math.Float64bits(math.Exp2(float64(i) / powerSteps))
		t[i] = power - uint64(i)<<(52-powerBits)
	}
}

// expBeyond is e^x in single precision for an x that is not in [minArgument, maxArgument]: 0 or
// +Inf; NaN stays.
func expBeyond(x float64) float64 {
	switch {
	case x < minArgument:
		return 0
	case x > maxArgument:
		return math.Inf(1)
	}
	return x
}

// isSingle reports whether T has single precision.
func isSingle[T attn.Float]() bool {
	var tiny T = 0x1p-30
	return 1+tiny == 1
}

// expOf is e^(x-base), with the error of expRow.
func expOf[T attn.Float](t *powers, x, base T) T {
	row := [1]T{x}
	return expRow(t, row[:], base)
}

// expRow turns each x of row into e^(x-base), the difference taken in double precision, and returns
// their sum. -Inf gives 0, NaN stays. In double precision it is math.Exp.
//
// In single precision a result is within 6.8e-8 of e^(x-base), relatively, and 0 below 2^-126,
// since arithmetic on subnormal numbers is slow:
//
//	e^x = 2^(k/64) 2^(f/64)   k an integer, |f| <= 1/2   2^(k/64) from the table
//
// (Tang, Table-driven implementation of the exponential function in IEEE floating-point arithmetic,
// 1989), computed in double precision, where x 64/ln 2 needs no second part. The loop is not cut
// into functions, as Go would not inline them.
func expRow[T attn.Float](t *powers, row []T, base T) (sum T) {
	shift := float64(base)
	if !isSingle[T]() {
		for i, x := range row {
			p := T(math.Exp(float64(x) - shift))
			row[i] = p
			sum += p
		}
		return sum
	}
	for i, x := range row {
		arg := float64(x) - shift
		if !(arg >= minArgument && arg <= maxArgument) {
			row[i] = T(expBeyond(arg))
			sum += row[i]
			continue
		}
		z := arg * (1 / powerStep)
		k := z + roundToInt
		f := z - (k - roundToInt)
		n := math.Float64bits(k)
		s := math.Float64frombits(t[n%powerSteps] + n<<(52-powerBits))
		p := T(s + s*(f*(powerSlope+f*powerCurve)))
		row[i] = p
		sum += p
	}
	return sum
}
