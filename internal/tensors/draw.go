package tensors

import (
	"fmt"
	"math"
)

// gamma is SplitMix64's step, the odd number nearest 2^64 over the golden ratio.
const gamma = 0x9e3779b97f4a7c15

// Draw gives values 0..n-1 of the tensor called name under seed: independent N(0,1), by the
// formula in the package comment, rounded to T. It panics when n is negative.
func Draw[T Float](seed uint64, name string, n int) []T {
	dst := make([]T, n)
	DrawRange(seed, name, 0, n, dst)
	return dst
}

// DrawRange sets dst to values lo..hi-1 of the tensor called name under seed, the same as
// Draw(seed, name, n)[lo:hi] for any n >= hi. For a tensor [S, heads, D] the index is row-major
// over the whole tensor, so a rank draws its own rows and heads and no others. It panics when
// the range is not 0 <= lo <= hi or dst is not hi-lo long.
func DrawRange[T Float](seed uint64, name string, lo, hi int, dst []T) {
	if lo < 0 || hi < lo || len(dst) != hi-lo {
		panic(fmt.Sprintf("tensors: DrawRange of [%d,%d) into %d places", lo, hi, len(dst)))
	}
	key := drawKey(seed, name)
	i, at := lo, 0
	if i < hi && i&1 == 1 {
		_, z := normalPair(key, uint64(i>>1))
		dst[0], i, at = T(z), i+1, 1
	}
	for ; i+1 < hi; i, at = i+2, at+2 {
		y, z := normalPair(key, uint64(i>>1))
		dst[at], dst[at+1] = T(y), T(z)
	}
	if i < hi {
		y, _ := normalPair(key, uint64(i>>1))
		dst[at] = T(y)
	}
}

// drawKey folds the seed and the name into the start of a stream. The seed goes through mix
// first, so that near seeds and near names do not meet.
func drawKey(seed uint64, name string) uint64 {
	const offset, prime = 0xcbf29ce484222325, 0x100000001b3 // FNV-1a, 64 bits
	h := uint64(offset)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * prime
	}
	return mix(mix(seed+gamma) ^ h)
}

// mix is SplitMix64's output function, a bijection of 64-bit words.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// normalPair is values 2p and 2p+1 of the stream that starts at key.
func normalPair(key, p uint64) (float64, float64) {
	w := key + (2*p+1)*gamma
	u := float64(mix(w)>>11+1) * 0x1p-53
	sin, cos := sinCosTurn(mix(w+gamma) >> 11)
	r := math.Sqrt(-2 * logUnit(u))
	return r * cos, r * sin
}

// logUnit is ln u for 0 < u <= 1, u not subnormal, by the series of atanh: with u = 2^e m, m in
// [1/sqrt 2, sqrt 2] and s = (m-1)/(m+1), ln m = 2 (s + s^3/3 + s^5/5 + ...). |s| <= 0.172, so
// the term of s^25 is below 2^-60 of the sum. Conversions around products forbid fusing.
func logUnit(u float64) float64 {
	const exponentOne = 1023
	b := math.Float64bits(u)
	e := int(b>>52) - exponentOne
	m := math.Float64frombits(b&(1<<52-1) | exponentOne<<52)
	if m > math.Sqrt2 {
		m, e = m/2, e+1
	}
	s := (m - 1) / (m + 1)
	z := s * s
	p := float64(z*(1.0/23)) + 1.0/21
	p = float64(z*p) + 1.0/19
	p = float64(z*p) + 1.0/17
	p = float64(z*p) + 1.0/15
	p = float64(z*p) + 1.0/13
	p = float64(z*p) + 1.0/11
	p = float64(z*p) + 1.0/9
	p = float64(z*p) + 1.0/7
	p = float64(z*p) + 1.0/5
	p = float64(z*p) + 1.0/3
	p = float64(z*p) + 1
	return float64(float64(e)*math.Ln2) + float64(2*s*p)
}

// sinCosTurn is sin and cos of 2 pi k / 2^53 for k < 2^53, by Taylor's series of the angle from
// the nearest quarter turn, |x| <= pi/4: the first terms left out, x^19/19! and x^18/18!, are
// below 2^-58. The quarter is found in whole numbers, so that no bit is lost.
func sinCosTurn(k uint64) (sin, cos float64) {
	quarter := (k + 1<<50) >> 51
	x := float64(float64(int64(k)-int64(quarter<<51)) * (0x1p-51 * math.Pi / 2))
	z := x * x
	s := float64(z*(1.0/355687428096000)) - 1.0/1307674368000
	s = float64(z*s) + 1.0/6227020800
	s = float64(z*s) - 1.0/39916800
	s = float64(z*s) + 1.0/362880
	s = float64(z*s) - 1.0/5040
	s = float64(z*s) + 1.0/120
	s = float64(z*s) - 1.0/6
	s = float64(x*float64(z*s)) + x
	c := float64(z*(1.0/20922789888000)) - 1.0/87178291200
	c = float64(z*c) + 1.0/479001600
	c = float64(z*c) - 1.0/3628800
	c = float64(z*c) + 1.0/40320
	c = float64(z*c) - 1.0/720
	c = float64(z*c) + 1.0/24
	c = float64(z*c) - 1.0/2
	c = float64(z*c) + 1
	switch quarter & 3 {
	case 1:
		return c, -s
	case 2:
		return -s, -c
	case 3:
		return -c, s
	}
	return s, c
}
