package attn

import (
	"math"
	"testing"
)

func TestCompare(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	cases := []struct {
		name        string
		got, ref    []float64
		maxAbs, rel float64
	}{
		{"equal", []float64{1, 2}, []float64{1, 2}, 0, 0},
		{"relative to the norm", []float64{3, 4.5}, []float64{3, 4}, 0.5, 0.1},
		{"tiny reference: divisor 1", []float64{2e-7, 0}, []float64{0, 0}, 2e-7, math.Sqrt2 * 1e-7},
		{"small reference: divisor 1", []float64{9e-7}, []float64{8e-7}, 1e-7, 1e-7},
		{"rows without keys count 0", []float64{-inf, 1}, []float64{-inf, 2}, 1, 0.5},
		{"NaN", []float64{nan, 1}, []float64{0, 1}, 0, nan},
		{"NaN in the reference", []float64{0, 1}, []float64{nan, 1}, 0, nan},
		{"NaN on both sides", []float64{nan}, []float64{nan}, 0, nan},
		{"inf on one side", []float64{-inf, 1}, []float64{0, 1.5}, 0.5, nan},
		{"inf in the reference", []float64{0, 1}, []float64{-inf, 1}, 0, nan},
		{"opposite inf", []float64{inf}, []float64{-inf}, 0, nan},
		{"plus inf on both sides", []float64{inf}, []float64{inf}, 0, nan},
		{"nothing", nil, nil, 0, 0},
		{"subnormal numbers", []float64{1e-310}, []float64{0}, 1e-310, 1e-310},
	}
	for _, c := range cases {
		e := Compare(c.got, c.ref)
		if !(math.Abs(e.MaxAbs-c.maxAbs) <= 1e-15) {
			t.Errorf("%s: max abs %v, want %v", c.name, e.MaxAbs, c.maxAbs)
		}
		if math.IsNaN(c.rel) {
			if !math.IsNaN(e.Rel) || e.OK(inf) {
				t.Errorf("%s: rel %v, OK(inf) %v, want NaN and not OK", c.name, e.Rel, e.OK(inf))
			}
			continue
		}
		if !(math.Abs(e.Rel-c.rel) <= 1e-15) {
			t.Errorf("%s: rel %v, want %v", c.name, e.Rel, c.rel)
		}
		if !e.OK(c.rel+1e-15) || c.rel > 0 && e.OK(c.rel*0.99) {
			t.Errorf("%s: OK does not turn at %v", c.name, c.rel)
		}
	}
	if e := Compare([]float32{1.5}, []float64{1}); e.MaxAbs != 0.5 || e.Rel != 0.5 {
		t.Errorf("f32: %+v", e)
	}
}

// TestCompareLargeNumbers has values whose squares are no float64: rel must be what it is for the
// same numbers made small, and a wrong one must be seen.
func TestCompareLargeNumbers(t *testing.T) {
	small, ref := []float64{3, -4.5, 0, 12}, []float64{3, -4, 1, 12}
	want := Compare(small, ref)
	for _, factor := range []float64{0x1p400, 0x1p664, 0x1p1019} {
		got, large := make([]float64, len(ref)), make([]float64, len(ref))
		for n := range ref {
			got[n], large[n] = small[n]*factor, ref[n]*factor
		}
		e := Compare(got, large)
		if e.Rel != want.Rel || e.MaxAbs != want.MaxAbs*factor {
			t.Errorf("times %g: %+v, want rel %v", factor, e, want.Rel)
		}
		if e := Compare(large, large); e.Rel != 0 || e.MaxAbs != 0 {
			t.Errorf("times %g: equal numbers differ by %+v", factor, e)
		}
	}
	if e := Compare([]float64{1e200, 1}, []float64{1, 1}); !(e.Rel > 7e199 && e.Rel < 8e199) {
		t.Errorf("1e200 for 1: %+v", e)
	}
	if e := Compare([]float64{1e200, 1e-12}, []float64{1e200, 0}); !(e.Rel < 1e-200) {
		t.Errorf("1e-12 beside 1e200: %+v", e)
	}
}

func TestGate(t *testing.T) {
	for _, c := range []struct{ maxLogit, want float64 }{{0, 1e-5}, {128, 1e-5}, {256, 2e-5}} {
		if got := Gate(BaseF32, c.maxLogit); got != c.want {
			t.Errorf("Gate(1e-5, %v) = %v, want %v", c.maxLogit, got, c.want)
		}
	}
	if (Error{}).OK(Gate(BaseF32, math.NaN())) {
		t.Error("a gate of NaN lets an error through")
	}
}
