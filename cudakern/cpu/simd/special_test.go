package simd

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvloom/kvloom/attn"
)

// TestWeightlessRows has rows without weight, whose lse is -Inf, beside others that see all keys of
// their tiles, so that nothing is masked: such a row gets no gradient and gives none, whatever its
// q and do hold.
func TestWeightlessRows(t *testing.T) {
	eachPath(t, func(t *testing.T, p path) {
		const n, heads, d, dv = 130, 2, 16, 24
		for _, empty := range [][]int{{0}, {n - 1}, {3, 4, 47, 60, 100, n - 1}} {
			b := contiguous(n, heads, heads, d, dv)
			do := fillBlock(b, 1)
			p.fit(b, do)
			b.Mask = attn.Full(n, n)
			out, lse := forwardAll(path{isa: Portable}, b)
			for _, i := range empty {
				lse[i*heads] = float32(math.Inf(-1))
			}
			twin := path{isa: Portable}
			want := backwardAll(twin, b, do, out, lse)
			for _, i := range empty {
				fill(do[i*heads*dv:][:dv], float32(math.NaN()))
				b.Q[i*heads*d] = float32(math.Inf(1))
			}
			got := backwardAll(p, b, do, out, lse)
			for _, i := range empty {
				for _, x := range got.DQ[i*heads*d:][:d] {
					if x != 0 {
						t.Fatalf("row %d has no weight, but a gradient of %v", i, x)
					}
				}
			}
			pairs := [][2][]float32{{got.DQ, want.DQ}, {got.DK, want.DK}, {got.DV, want.DV}}
			for i, x := range pairs {
				if e := relative(wide(x[0]), wide(x[1]), 1); !(e <= p.bound(2+i, 2e-6)) {
					t.Errorf("rows %v without weight: %s is off by %.3g", empty, names[2+i], e)
				}
			}
		}
	})
}

// TestInfinitiesLikeTwin puts infinities into elements of one array, with signs that make logits
// -Inf and not NaN: each result is NaN, an infinity or a number where the portable kernels' is, and
// numbers agree. A weight of 0 times an infinite key is NaN for those that see it. Where a value is
// infinite, gradients are NaN or infinities, whichever: sums take in lanes of 0.
func TestInfinitiesLikeTwin(t *testing.T) {
	eachVector(t, func(t *testing.T, p path) {
		rapid.Check(t, func(t *rapid.T) {
			b, do := drawBlock(t, 150)
			p.fit(b, do)
			for i, x := range b.Q {
				b.Q[i] = 0.5 + float32(math.Abs(float64(x)))
			}
			p.fit(b, do)
			array := rapid.SampledFrom([]string{"k", "v"}).Draw(t, "array")
			into := b.V
			if array == "k" {
				into = b.K
			}
			if len(into) == 0 {
				t.Skip("no keys")
			}
			for range rapid.IntRange(1, 4).Draw(t, "infinities") {
				at := rapid.IntRange(0, len(into)-1).Draw(t, "at")
				if into[at] = float32(math.Inf(-1)); array == "v" && rapid.Bool().Draw(t, "above") {
					into[at] = float32(math.Inf(1))
				}
			}
			likeTwin(t, p, b, do, array == "v")
		})
	})
}

// TestInfinitiesOfRows is TestInfinitiesLikeTwin for elements of q and do, with lse and delta of
// finite rows, as an infinity would show in those: a query of -Inf has no weight with keys above 0,
// and gives them 0 times itself, which is NaN.
func TestInfinitiesOfRows(t *testing.T) {
	eachVector(t, func(t *testing.T, p path) {
		rapid.Check(t, func(t *rapid.T) {
			b, do := drawBlock(t, 150)
			for i, x := range b.K {
				b.K[i] = 0.5 + float32(math.Abs(float64(x)))
			}
			p.fit(b, do)
			twin := path{isa: Portable}
			out, lse := forwardAll(twin, b)
			want, got := newGrad(twin, b, do, out, lse), newGrad(p, b, do, out, lse)
			copy(got.Delta, want.Delta)
			into := do
			queries := rapid.Bool().Draw(t, "queries")
			if queries {
				into = b.Q
			}
			if len(into) == 0 {
				t.Skip("no rows")
			}
			for range rapid.IntRange(1, 4).Draw(t, "infinities") {
				into[rapid.IntRange(0, len(into)-1).Draw(t, "at")] = float32(math.Inf(-1))
			}
			descend(twin, b, want)
			descend(p, b, got)
			mustBeLike(t, p, b, "dq", got.DQ, want.DQ, !queries)
			mustBeLike(t, p, b, "dk", got.DK, want.DK, !queries)
			mustBeLike(t, p, b, "dv", got.DV, want.DV, !queries)
		})
	})
}

// likeTwin compares all results with the portable kernels', element by element.
func likeTwin(t *rapid.T, p path, b *attn.Block[float32], do []float32, loose bool) {
	twin := path{isa: Portable}
	wantOut, wantLSE := forwardAll(twin, b)
	want := backwardAll(twin, b, do, wantOut, wantLSE)
	out, lse := forwardAll(p, b)
	got := backwardAll(p, b, do, wantOut, wantLSE)
	mustBeLike(t, p, b, "out", out, wantOut, false)
	mustBeLike(t, path{isa: AVX2}, b, "lse", lse, wantLSE, false)
	mustBeLike(t, p, b, "dq", got.DQ, want.DQ, loose)
	mustBeLike(t, p, b, "dk", got.DK, want.DK, loose)
	mustBeLike(t, p, b, "dv", got.DV, want.DV, loose)
}

// mustBeLike compares element by element; with loose, what is no number may be any that is none.
func mustBeLike(t *rapid.T, p path, b *attn.Block[float32], name string, got, want []float32,
	loose bool,
) {
	limit := 1e-4 * math.Sqrt(float64(b.QSpans.Len()*b.Group*max(b.D, b.DV)))
	if p.isa.dots() {
		limit *= 300
	}
	for i, g := range got {
		w := want[i]
		switch {
		case g != g && w != w, g == w, loose && !isFinite(g) && !isFinite(w):
		case !isFinite(g) || !isFinite(w) || math.Abs(float64(g-w)) > limit:
			t.Fatalf("%s[%d] is %v, the portable kernels' is %v", name, i, g, w)
		}
	}
}

// TestFiniteRowsAreNotPatched wants no group to look for elements that are not finite where all
// are, whatever a Scratch held: that takes long.
func TestFiniteRowsAreNotPatched(t *testing.T) {
	eachVector(t, func(t *testing.T, p path) {
		b := contiguous(100, 2, 2, 20, 12)
		do := fillBlock(b, 1)
		out, lse := forwardAll(p, b)
		g, sc := newGrad(p, b, do, out, lse), dirty(b)
		p.backward(b, g, 0, sc)
		for i := range sc.groups {
			if sc.groups[i].odd {
				t.Errorf("group %d is taken for one with NaN or infinities", i)
			}
		}
	})
}
