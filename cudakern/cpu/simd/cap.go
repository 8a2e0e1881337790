package simd

import "math"

// Caps between these are served: their inverse, and the rest of it that float32 does not hold, are
// normal numbers. Others are above or below all logits that anyone has.
const (
	minCap = 0x1p-60
	maxCap = 0x1p60
)

// servesCap reports whether the kernels know a soft cap, 0 for none.
func servesCap(limit float64) bool { return limit == 0 || minCap <= limit && limit <= maxCap }

// curve is a soft cap as the kernels take it, 2 log2(e) / cap and -cap, each in two parts. With
// u = 2^(-2|s|/cap log2(e)), and u-1 computed as a power of 2 less 1 and what the rest of the
// exponent adds to it, which loses no digits near 0:
//
//	tanh |s/cap| = -(u-1) / (2 + (u-1))    1 - tanh^2 = 4u / (2 + (u-1))^2
type curve struct {
	on   bool // there is a cap
	part [4]float32
}

// newCurve is the curve of a cap that is served.
func newCurve(limit float64) (c curve) {
	if c.on = limit != 0; c.on {
		top := float32(limit)
		c.part[0], c.part[1] = split(2 * math.Log2E / float64(top))
		c.part[2], c.part[3] = top, top/2
	}
	return c
}

// bow puts n rows of scores sc.s under the cap, if there is one.
func (sc *Scratch) bow(isa ISA, c *curve, n int) {
	if c.on {
		isa.cap(&sc.s[0], n, &c.part[0])
	}
}

// bend is bow in backward: the gradients of the capped scores, sc.dp less delta, become those of
// the scores, but for the weights. It returns what slopes has to take from them yet.
func (sc *Scratch) bend(isa ISA, c *curve, n int, delta *[maxLanes]float32) *float32 {
	if !c.on {
		return &delta[0]
	}
	isa.bend(&sc.s[0], &sc.dp[0], n, &delta[0], &c.part[0])
	return &sc.none[0]
}
