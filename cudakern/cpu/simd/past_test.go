package simd

import (
	"testing"

	"pgregory.net/rapid"
)

// lying is a copy of a that begins off floats past a multiple of 64 bytes.
func lying(a []float32, off int) []float32 {
	var b []float32
	grow(&b, len(a)+16)
	copy(b[off:], a)
	return b[off : off+len(a)]
}

// TestPast: sums that go past the caches are the same, wherever the arrays lie.
func TestPast(t *testing.T) {
	eachVector(t, func(t *testing.T, p path) {
		rapid.Check(t, func(t *rapid.T) {
			b, do := drawBlock(t, 150)
			if rapid.Bool().Draw(t, "whole lines") {
				lines := rapid.IntRange(1, 4)
				b.D, b.DV = 16*lines.Draw(t, "d"), 16*lines.Draw(t, "v")
				do = fillBlock(b, 1)
			}
			off := rapid.SampledFrom([]int{0, 0, 1, 8}).Draw(t, "off")
			var acc, dq [2][]float32
			for i := range 2 {
				s := newState(b)
				s.Acc = lying(s.Acc, off)
				p.sc.Past = i == 1
				fold(p, b, s, nil)
				out, lse := finish(p, s, b.DV)
				g := newGrad(p, b, do, out, lse)
				g.DQ = lying(g.DQ, off)
				descend(p, b, g)
				acc[i], dq[i] = s.Acc, g.DQ
			}
			p.sc.Past = false
			mustMatch(t, acc[0], acc[1], dq[0], dq[1])
		})
	})
}
