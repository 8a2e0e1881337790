package kernel

import (
	"math"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"pgregory.net/rapid"
)

// TestMergePart is the field's case [merge]: a state that was finished as (out, lse) and a part
// (2, b), or one that saw nothing and holds NaN.
func TestMergePart(t *testing.T) {
	t.Run("f32", testMergePart[float32])
	t.Run("f64", testMergePart[float64])
}

func testMergePart[T attn.Float](t *testing.T) {
	nan, none := T(math.NaN()), T(math.Inf(-1))
	for _, c := range []struct{ out, lse, partOut, partLSE, wantOut, wantLSE T }{
		{1, 0, 2, 88, 2, 88},
		{1, 0, 2, 89, 2, 89},
		{1, 0, 2, 200, 2, 200},
		{0, none, 2, 1, 2, 1},
		{1, 1, nan, none, 1, 1},
		{0, none, nan, none, 0, none},
		{1, 200, 2, 0, 1, 200},
		{1, 3, 2, 3, 1.5, 3 + T(math.Log(2))},
	} {
		s := attn.State[T]{Acc: []T{c.out}, M: []T{c.lse}, L: []T{1}}
		if c.lse == none {
			s.L[0] = 0
		}
		MergePart(s, []T{c.partOut}, []T{c.partLSE}, 1, 0, 1)
		out, lse := []T{nan}, []T{nan}
		Finalize(out, lse, s, nil, 1, 0, 1)
		if out[0] != c.wantOut || lse[0] != c.wantLSE {
			t.Errorf("(%v, %v) with (%v, %v): (%v, %v), want (%v, %v)", c.out, c.lse, c.partOut,
				c.partLSE, out[0], lse[0], c.wantOut, c.wantLSE)
		}
	}
}

// TestMergePartIsMerge draws rows, some of which saw nothing, and compares with attn.Merge of two
// parts. Rows outside [lo,hi) stay as they are.
func TestMergePartIsMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const rows, dv = 5, 3
		lse := rapid.OneOf(rapid.Just(math.Inf(-1)), rapid.Float64Range(-300, 300))
		draw := func(name string) (out, sums []float64) {
			for range rows {
				sums = append(sums, lse.Draw(t, name))
				for range dv {
					out = append(out, rapid.Float64Range(-2, 2).Draw(t, "value"))
				}
			}
			return out, sums
		}
		wantOut, wantLSE := draw("lse")
		out, sums := draw("part's lse")
		s := attn.State[float64]{L: make([]float64, rows)}
		for r, x := range wantLSE {
			s.L[r] = 1 // as m and l stand for any lse: m + log l
			shift := 0.0
			if math.IsInf(x, -1) {
				s.L[r] = 0
				clear(wantOut[r*dv:][:dv])
			} else {
				shift = math.Log(2)
				s.L[r] = 2
			}
			s.M = append(s.M, x-shift)
		}
		for i, x := range wantOut {
			s.Acc = append(s.Acc, x*s.L[i/dv])
		}
		lo := rapid.IntRange(0, rows).Draw(t, "lo")
		hi := rapid.IntRange(lo, rows).Draw(t, "hi")
		MergePart(s, out, sums, dv, lo, hi)
		attn.Merge(wantOut[lo*dv:hi*dv], wantLSE[lo:hi], out[lo*dv:hi*dv], sums[lo:hi])
		gotOut, gotLSE := make([]float64, rows*dv), make([]float64, rows)
		Finalize(gotOut, gotLSE, s, nil, dv, 0, rows)
		for i := range gotOut {
			if math.Abs(gotOut[i]-wantOut[i]) > 1e-14 {
				t.Fatalf("out %v, want %v", gotOut, wantOut)
			}
		}
		for r := range gotLSE {
			if gotLSE[r] != wantLSE[r] && !(math.Abs(gotLSE[r]-wantLSE[r]) < 1e-12) {
				t.Fatalf("lse %v, want %v", gotLSE, wantLSE)
			}
		}
	})
}

// TestAccumulateNarrow adds BF16 to f32: exact, and nothing outside the range.
func TestAccumulateNarrow(t *testing.T) {
	dst := []float32{1, 2, 3, 4}
	src := []attn.BF16{attn.ToBF16(5), attn.ToBF16(0.25), attn.ToBF16(-3), attn.ToBF16(9)}
	AccumulateNarrow(dst, src, 1, 3)
	for i, want := range []float32{1, 2.25, 0, 4} {
		if dst[i] != want {
			t.Errorf("sum %d is %v, want %v", i, dst[i], want)
		}
	}
}

// TestMergePartKeepsNaN: a row that has met a NaN logit (m -Inf, l NaN) stays NaN, and so does one
// that a NaN part is merged into.
func TestMergePartKeepsNaN(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	s := attn.State[float64]{Acc: []float64{nan, 3}, M: []float64{-inf, 1}, L: []float64{nan, 2}}
	MergePart(s, []float64{2, nan}, []float64{1, nan}, 1, 0, 2)
	for i, x := range append(append([]float64{}, s.Acc...), s.L...) {
		if !math.IsNaN(x) {
			t.Errorf("value %d of the merged state is %v, want NaN", i, x)
		}
	}
}
