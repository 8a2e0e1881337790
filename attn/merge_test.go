package attn

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestFieldMerge(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	cases := []struct {
		name                    string
		out, lse, block, b      float64
		wantOut, wantLSE, slack float64
	}{
		{"[merge] block 88", 1, 0, 2, 88, 2, 88, 0},
		{"[merge] block 89", 1, 0, 2, 89, 2, 89, 0},
		{"[merge] block 200", 1, 0, 2, 200, 2, 200, 0},
		{"[merge] nothing so far", 0, -inf, 2, 1, 2, 1, 0},
		{"[merge] nothing in the block, its out NaN", 1, 1, nan, -inf, 1, 1, 0},
		{"[merge] nothing at all", 0, -inf, 2, -inf, 0, -inf, 0},
		{"[merge] nothing at all, both out NaN", nan, -inf, nan, -inf, 0, -inf, 0},
		{"[merge] nothing so far, its out NaN", nan, -inf, 2, 1, 2, 1, 0},
		{"[merge] running 200 above", 2, 200, 1, 0, 2, 200, 0},
		{"[merge] equal weights", 1, 3, 2, 3, 1.5, 3 + math.Ln2, 3e-7},
		{"[merge] very negative", 1, -1e4, 3, -1e4, 2, -1e4 + math.Ln2, 1e-3},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			out, lse := []float64{c.out}, []float64{c.lse}
			Merge(out, lse, []float64{c.block}, []float64{c.b})
			checkMerged(t, "f64", out[0], lse[0], c.wantOut, c.wantLSE, c.slack)
			out32, lse32 := []float32{float32(c.out)}, []float32{float32(c.lse)}
			Merge(out32, lse32, []float32{float32(c.block)}, []float32{float32(c.b)})
			o, l := float64(out32[0]), float64(lse32[0])
			checkMerged(t, "f32", o, l, c.wantOut, c.wantLSE, c.slack)
		})
	}
}

func checkMerged(t *testing.T, dtype string, out, lse, wantOut, wantLSE, slack float64) {
	t.Helper()
	if lse != wantLSE && !(math.Abs(lse-wantLSE) <= slack) {
		t.Errorf("%s: lse %v, want %v", dtype, lse, wantLSE)
	}
	if !(math.Abs(out-wantOut) <= slack) {
		t.Errorf("%s: out %v, want %v", dtype, out, wantOut)
	}
}

func TestMergeKeepsNaNOfRowsThatCount(t *testing.T) {
	out, lse := []float64{1, 1}, []float64{0, math.NaN()}
	Merge(out, lse, []float64{math.NaN(), 2}, []float64{0, 1})
	if !math.IsNaN(out[0]) || !math.IsNaN(out[1]) || !math.IsNaN(lse[1]) {
		t.Errorf("NaN swallowed: out %v, lse %v", out, lse)
	}
}

func TestMergeIsAssociativeWithinRounding(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		const rows, dv = 5, 3
		var out, lse [3][]float64
		for n := range out {
			out[n], lse[n] = normal(rng, rows*dv, 1), normal(rng, rows, 30)
			lse[n][rng.IntN(rows)] = math.Inf(-1)
		}
		leftOut, leftLSE := append([]float64{}, out[0]...), append([]float64{}, lse[0]...)
		Merge(leftOut, leftLSE, out[1], lse[1])
		Merge(leftOut, leftLSE, out[2], lse[2])
		Merge(out[2], lse[2], out[1], lse[1]) // the other order and the other bracketing
		Merge(out[0], lse[0], out[2], lse[2])
		for n, x := range leftOut {
			if d := math.Abs(x - out[0][n]); !(d <= 4e-15) {
				t.Fatalf("out %v against %v", x, out[0][n])
			}
		}
		for n, x := range leftLSE {
			if x != lse[0][n] && !(math.Abs(x-lse[0][n]) <= 3e-14) {
				t.Fatalf("lse %v against %v", x, lse[0][n])
			}
		}
	}
}

// normal draws n values of N(0, scale^2).
func normal(rng *rand.Rand, n int, scale float64) []float64 {
	a := make([]float64, n)
	for i := range a {
		a[i] = scale * rng.NormFloat64()
	}
	return a
}
