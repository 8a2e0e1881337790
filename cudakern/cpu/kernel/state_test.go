package kernel

import (
	"math"
	"slices"
	"testing"

	"github.com/kvloom/kvloom/attn"
)

func TestStateRanges(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	s := attn.State[float64]{
		Acc: []float64{9, 9, 2, 4, 5, 5, 7, 7}, M: []float64{9, 3, -inf, 9},
		L: []float64{9, 2, 0, 9},
	}
	lse := slices.Clone(s.L)
	Finalize(s.Acc, lse, s, nil, 2, 1, 3)
	if want := []float64{9, 9, 1, 2, 0, 0, 7, 7}; !slices.Equal(s.Acc, want) {
		t.Errorf("out in the place of acc: %v, want %v", s.Acc, want)
	}
	if want := []float64{9, 3 + math.Ln2, -inf, 9}; !slices.Equal(lse, want) {
		t.Errorf("lse %v, want %v", lse, want)
	}
	FreshState(s, 2, 1, 3)
	if want := []float64{9, 9, 0, 0, 0, 0, 7, 7}; !slices.Equal(s.Acc, want) {
		t.Errorf("fresh acc %v, want %v", s.Acc, want)
	}
	if !slices.Equal(s.M, []float64{9, -inf, -inf, 9}) ||
		!slices.Equal(s.L, []float64{9, 0, 0, 9}) {
		t.Errorf("fresh m %v l %v", s.M, s.L)
	}
	bad := attn.State[float64]{Acc: []float64{nan}, M: []float64{-inf}, L: []float64{nan}}
	Finalize(bad.Acc, lse[:1], bad, nil, 1, 0, 1)
	if !math.IsNaN(bad.Acc[0]) || !math.IsNaN(lse[0]) {
		t.Errorf("a NaN sum gave out %v, lse %v", bad.Acc[0], lse[0])
	}
}

func TestDeltaAndAccumulate(t *testing.T) {
	delta := []float32{9, 9, 9}
	Delta(delta, []float32{0, 0, 1, 2, 3, 4}, []float32{0, 0, 5, 6, 7, 8}, 2, 1, 2)
	if !slices.Equal(delta, []float32{9, 17, 9}) {
		t.Errorf("delta %v", delta)
	}
	dst := []float32{1, 2, 3, 4}
	Accumulate(dst, []float32{10, 20, 30, 40}, 1, 3)
	if !slices.Equal(dst, []float32{1, 22, 33, 4}) {
		t.Errorf("sum %v", dst)
	}
}
