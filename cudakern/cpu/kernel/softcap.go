package kernel

import (
	"math"

	"github.com/kvloom/kvloom/attn"
)

// smallTanh is the argument below which tanh x and its slope are sums of powers of x.
const smallTanh = 0.125

// tanh x = x + x (t3 x^2 + t5 x^4 + ...), Taylor's terms: the next one is 1.3e-9 of tanh x at
// smallTanh.
const (
	tanh3 = -1.0 / 3
	tanh5 = 2.0 / 15
	tanh7 = -17.0 / 315
)

// capRow puts each score s of row under the soft cap: s becomes c tanh(s/c), and slope, where it is
// not nil, 1 - tanh^2(s/c). NaN stays, infinities become the cap. In double precision it is
// attn.Cap; in single precision a capped score is within 1e-7 of itself, relatively, a slope within
// 1.3e-7:
//
//	tanh|x| = (1-e)/(1+e)   1 - tanh^2 x = 4e/(1+e)^2   e = e^(-2|x|) as expRow has it
//
// computed in double precision; for small x, where 1-e has no digits left, by powers of x.
func capRow[T attn.Float](t *powers, row, slope []T, limit float64) {
	if !isSingle[T]() {
		for i, s := range row {
			row[i] = T(attn.Cap(limit).Of(float64(s)))
			if slope != nil {
				slope[i] = T(attn.Cap(limit).Slope(float64(s)))
			}
		}
		return
	}
	inverse := 1 / limit
	for i, s := range row {
		x := math.Abs(float64(s)) * inverse
		var tanh, steep float64
		if x < smallTanh {
			y := x * x
			tanh = x + x*y*(tanh3+y*(tanh5+y*tanh7))
			steep = 1 - tanh*tanh
		} else {
			e := expWide(t, -2*x)
			near := 1 / (1 + e)
			tanh = (1 - e) * near
			steep = 4 * e * near * near
		}
		row[i] = T(math.Copysign(limit*tanh, float64(s)))
		if slope != nil {
			slope[i] = T(steep)
		}
	}
}

// expWide is e^x for x <= 0 with expRow's relative error but for its last rounding, 7e-9, and 0
// below 2^-126.
func expWide(t *powers, x float64) float64 {
	if !(x >= minArgument) {
		return expBeyond(x)
	}
	z := x * (1 / powerStep)
	k := z + roundToInt
	f := z - (k - roundToInt)
	n := math.Float64bits(k)
	s := math.Float64frombits(t[n%powerSteps] + n<<(52-powerBits))
	return s + s*(f*(powerSlope+f*powerCurve))
}
