package attn

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kvloom/kvloom/mesh"
)

func same[T any](t *testing.T, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestCap(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct{ cap, s, of, slope float64 }{
		{0, 3, 3, 1}, {0, -inf, -inf, 1}, {2, 0, 0, 1}, {2, inf, 2, 0}, {2, -inf, -2, 0},
		{50, 1, 50 * math.Tanh(0.02), 1 - math.Tanh(0.02)*math.Tanh(0.02)},
		{1e-300, 1, 1e-300, 0},
	} {
		of, slope := Cap(c.cap).Of(c.s), Cap(c.cap).Slope(c.s)
		if of != c.of || !(math.Abs(slope-c.slope) <= 1e-15) {
			t.Errorf("cap %v of %v: %v, slope %v; want %v, %v", c.cap, c.s, of, slope, c.of,
				c.slope)
		}
	}
	if of, slope := Cap(2).Of(math.NaN()), Cap(2).Slope(math.NaN()); of == of || slope == slope {
		t.Errorf("cap of NaN: %v, slope %v", of, slope)
	}
	// The slope keeps its digits where 1 - tanh^2 has none left.
	for s := 0.0; s < 60; s += 0.37 {
		want := 1 / (math.Cosh(s/3) * math.Cosh(s/3))
		for _, x := range []float64{s, -s} {
			if got := Cap(3).Slope(x); !(math.Abs(got/want-1) <= 1e-13) {
				t.Errorf("slope at %v is %v, want %v", x, got, want)
			}
		}
	}
}

// TestSinkJoinsOnce: blocks know nothing of the sink, in whatever number they come; of one state
// Finalize takes it in, of two that are merged one.
func TestSinkJoinsOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(41, 1))
	p := extras(newProblem(rng, 9, 12, 2, 1, 4, 3, Causal(9, 12)))["sink"]
	p.Sink[1] = 4
	wantOut, wantLSE := Dense(p, nil)
	var out, lse [2][]float64
	for n, at := range []int{0, 5} {
		keys := mesh.Set{{Start: at, Stride: 1, Count: []int{5, 7}[n]}}
		s := State[float64]{
			Acc: make([]float64, 54), M: make([]float64, 18), L: make([]float64, 18),
		}
		FreshState(s)
		Forward(&Block[float64]{
			QSpans: mesh.Set{{Stride: 1, Count: 9}}, KSpans: keys, QHeads: 2, KHeads: 1, Group: 2,
			D: 4, DV: 3, Scale: p.Scale, Mask: p.Mask, Q: p.Q, K: gather(p.K, 1, 4, keys, 0, 1),
			V: gather(p.V, 1, 3, keys, 0, 1),
		}, s)
		out[n], lse[n] = make([]float64, 54), make([]float64, 18)
		sink := p.Sink
		if n > 0 {
			sink = nil
		}
		Finalize(3, s, sink, out[n], lse[n])
	}
	Merge(out[0], lse[0], out[1], lse[1])
	within64(t, "out", out[0], wantOut, 1e-14)
	within64(t, "lse", lse[0], wantLSE, 1e-14)
}

// TestSinksOfAnySize holds out and lse of a row with acc 6, l 2 and maximum m against the formula
// with a factor taken out.
func TestSinksOfAnySize(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct{ m, sink, out, lse float64 }{
		{5, -inf, 3, 5 + math.Ln2},
		{5, 5, 2, 5 + math.Log(3)},
		{0, 1, 6 / (2 + math.E), math.Log(2 + math.E)},
		{0, -1, 6 / (2 + 1/math.E), math.Log(2 + 1/math.E)},
		{-1e4, -1e4 - 1, 6 / (2 + 1/math.E), -1e4 + math.Log(2+1/math.E)},
		{1e4, -1e4, 3, 1e4 + math.Ln2},
		{-1e4, 1e4, 0, 1e4},
		{0, 1e300, 0, 1e300},
		{1e300, 0, 3, 1e300},
		{0, -1e300, 3, math.Ln2},
	} {
		s := State[float64]{Acc: []float64{6}, M: []float64{c.m}, L: []float64{2}}
		Finalize(1, s, []float64{c.sink}, s.Acc, s.M)
		out, lse := s.Acc[0], s.M[0]
		if !(math.Abs(out-c.out) <= 1e-15) || !(math.Abs(lse-c.lse) <= 1e-16*math.Abs(c.lse)) {
			t.Errorf("m %v, sink %v: out %v, lse %v, want %v, %v", c.m, c.sink, out, lse, c.out,
				c.lse)
		}
	}
	// Row 1 of each head has seen no key.
	s := State[float64]{
		Acc: make([]float64, 4), M: []float64{1, 1, -inf, -inf}, L: []float64{1, 1, 0, 0},
	}
	out, lse := []float64{9, 9, 9, 9}, make([]float64, 4)
	Finalize(1, s, []float64{-3, -inf}, out, lse)
	if out[2] != 0 || out[3] != 0 || lse[2] != -3 || !math.IsInf(lse[3], -1) {
		t.Errorf("rows without keys: out %v, lse %v", out[2:], lse[2:])
	}
	nan := math.NaN()
	for _, m := range []float64{-inf, 0, nan} {
		s := State[float64]{Acc: []float64{nan}, M: []float64{m}, L: []float64{nan}}
		Finalize(1, s, []float64{2}, s.Acc, s.M)
		if !math.IsNaN(s.Acc[0]) || !math.IsNaN(s.M[0]) {
			t.Errorf("m %v, l NaN: out %v, lse %v", m, s.Acc[0], s.M[0])
		}
	}
}

// TestSinkRowsWithoutKeys: a row without keys has the sink as its lse and no gradient, whatever do
// holds there.
func TestSinkRowsWithoutKeys(t *testing.T) {
	rng := rand.New(rand.NewPCG(42, 1))
	p := newProblem(rng, 3, 3, 2, 1, 2, 2, Mask{{1, 3, 0, 2, -Unbounded, Unbounded}})
	p.Sink = []float64{-2, math.Inf(-1)}
	do := normal(rng, 12, 1)
	clean := append([]float64{}, do...)
	for n := range 4 {
		do[n] = math.NaN()
		clean[n] = 0
	}
	out, lse := Dense(p, nil)
	if out[0] != 0 || out[3] != 0 || lse[0] != -2 || !math.IsInf(lse[1], -1) {
		t.Errorf("out %v, lse %v", out[:4], lse[:2])
	}
	dq, dk, dv, dsink := DenseBackward(p, do, out, lse, nil)
	wantDQ, wantDK, wantDV, wantDSink := DenseBackward(p, clean, out, lse, nil)
	same(t, wantDQ, dq)
	same(t, wantDK, dk)
	same(t, wantDV, dv)
	same(t, wantDSink, dsink)
	if dsink[0] == 0 || dsink[1] != 0 {
		t.Errorf("dsink %v, want 0 for the second alone", dsink)
	}
}

// TestBackwardAddsKV: with AddKV a block's share is added to what DK and DV hold.
func TestBackwardAddsKV(t *testing.T) {
	rng := rand.New(rand.NewPCG(43, 1))
	span := mesh.Set{{Stride: 1, Count: 6}}
	b := Block[float64]{
		QSpans: span, KSpans: span, QHeads: 2, KHeads: 1, Group: 2, D: 3, DV: 2, Scale: 0.5,
		SoftCap: 2, Mask: Causal(6, 6), Q: normal(rng, 36, 1), K: normal(rng, 18, 1),
		V: normal(rng, 12, 1),
	}
	s := State[float64]{Acc: make([]float64, 24), M: make([]float64, 12), L: make([]float64, 12)}
	FreshState(s)
	Forward(&b, s)
	Finalize(2, s, nil, s.Acc, s.M)
	g := Grad[float64, float64]{
		DO: normal(rng, 24, 1), LSE: s.M, Delta: make([]float64, 12), DQ: make([]float64, 36),
		DK: make([]float64, 18), DV: make([]float64, 12),
	}
	Delta(2, g.DO, s.Acc, g.Delta)
	Backward(&b, g)
	sum := g
	sum.AddKV, sum.DK, sum.DV = true, normal(rng, 18, 1), normal(rng, 12, 1)
	wantDK, wantDV := append([]float64{}, sum.DK...), append([]float64{}, sum.DV...)
	Accumulate(wantDK, g.DK)
	Accumulate(wantDV, g.DV)
	Backward(&b, sum)
	within64(t, "dk", sum.DK, wantDK, 1e-15)
	within64(t, "dv", sum.DV, wantDV, 1e-15)
}
