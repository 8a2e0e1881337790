package simd

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvloom/kvloom/attn"
)

// narrowed is a rounded to bf16.
func narrowed(a []float32) []attn.BF16 {
	n := make([]attn.BF16, len(a))
	attn.Narrow(n, a)
	return n
}

// narrow is the block with elements of bf16.
func narrow(b *attn.Block[float32]) *attn.Block[attn.BF16] {
	return &attn.Block[attn.BF16]{
		QSpans: b.QSpans, KSpans: b.KSpans, QHeads: b.QHeads, KHeads: b.KHeads,
		QHead0: b.QHead0, KHead0: b.KHead0, Group: b.Group, D: b.D, DV: b.DV, Scale: b.Scale,
		SoftCap: b.SoftCap, Mask: b.Mask, Q: narrowed(b.Q), K: narrowed(b.K), V: narrowed(b.V),
	}
}

// TestNarrowElements wants, for elements of bf16, the bits of the same numbers in f32.
func TestNarrowElements(t *testing.T) {
	eachVector(t, func(t *testing.T, p path) {
		if p.isa.dots() {
			t.Skip("it rounds weights, for bf16 alone")
		}
		rapid.Check(t, func(t *rapid.T) {
			b, do := drawBlock(t, 200)
			small, smallDO := narrow(b), narrowed(do)
			large, largeDO := attn.WidenBlock[float32](small), make([]float32, len(do))
			attn.Widen(largeDO, smallDO)
			out, lse := forwardAll(p, &large)
			g := backwardAll(p, &large, largeDO, out, lse)
			out2, lse2 := forwardAll(p, small)
			g2 := backwardAll(p, small, smallDO, out2, lse2)
			mustMatch(t, out, out2, lse, lse2, g.Delta, g2.Delta, g.DQ, g2.DQ, g.DK, g2.DK,
				g.DV, g2.DV)
		})
	})
}

// TestServes names what the kernels do not compute.
func TestServes(t *testing.T) {
	b := contiguous(4, 1, 1, 256, 256)
	if !Serves(b) || !Serves(narrow(b)) {
		t.Error("a plain block of f32 or bf16 is not served")
	}
	for limit, want := range map[float64]bool{
		1e-3: true, 30: true, 1e4: true, minCap: true, maxCap: true, minCap / 2: false,
		2 * maxCap: false, 5e-324: false, math.MaxFloat64: false,
	} {
		if b.SoftCap = limit; Serves(b) != want || Serves(narrow(b)) != want {
			t.Errorf("a soft cap of %v is served: %v", limit, !want)
		}
	}
	if b = contiguous(4, 1, 1, 257, 4); Serves(b) {
		t.Error("257 elements are served")
	}
	if b = contiguous(4, 1, 1, 4, 257); Serves(b) {
		t.Error("257 elements of a value are served")
	}
	if Serves(&attn.Block[float64]{D: 4, DV: 4}) {
		t.Error("f64 is served")
	}
}
