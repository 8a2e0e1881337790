package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvloom/kvloom/attn"
)

// narrowed is a block in BF16 and the same numbers in T.
func narrowed[T attn.Float](b *attn.Block[T]) (*attn.Block[attn.BF16], *attn.Block[T]) {
	small := &attn.Block[attn.BF16]{
		QSpans: b.QSpans, KSpans: b.KSpans, QHeads: b.QHeads, KHeads: b.KHeads, QHead0: b.QHead0,
		KHead0: b.KHead0, Group: b.Group, D: b.D, DV: b.DV, Scale: b.Scale, SoftCap: b.SoftCap,
		Mask: b.Mask, Q: narrow(b.Q), K: narrow(b.K), V: narrow(b.V),
	}
	wide := attn.WidenBlock[T](small)
	return small, &wide
}

func narrow[T attn.Float](a []T) []attn.BF16 {
	small := make([]attn.BF16, len(a))
	attn.Narrow(small, a)
	return small
}

func widened[T attn.Float](a []attn.BF16) []T {
	wide := make([]T, len(a))
	attn.Widen(wide, a)
	return wide
}

func TestNarrowIsTheWideBits(t *testing.T) {
	t.Run("f32", rapid.MakeCheck(narrowCheck[float32]))
	t.Run("f64", rapid.MakeCheck(narrowCheck[float64]))
}

// narrowCheck holds the kernels on BF16 inputs against those on the same numbers in T, bit for bit.
func narrowCheck[T attn.Float](t *rapid.T) {
	b, do := drawBlock[T](t, 120)
	small, wide := narrowed(b)
	smallDO := narrow(do)
	wideDO := widened[T](smallDO)
	wantOut, wantLSE := forwardAll(wide)
	want := backwardAll(wide, wideDO, wantOut, wantLSE)

	s, _, _ := newState(wide)
	sc := dirty(wide)
	for task := range ForwardTasks(small) {
		Forward(small, s, task, sc)
	}
	out := make([]attn.BF16, len(wantOut))
	FinalizeNarrow(out, s, nil, b.DV, 0, len(wantLSE))
	mustMatch(t, wantOut, s.Acc, wantLSE, s.M)
	if !slices.Equal(out, narrow(wantOut)) {
		t.Fatalf("out is not that of the wide kernel, rounded")
	}
	g := attn.Grad[attn.BF16, T]{
		DO: smallDO, LSE: s.M, Delta: make([]T, len(s.M)), DQ: make([]T, len(wide.Q)),
		DK: make([]T, len(wide.K)), DV: make([]T, len(wide.V)),
	}
	Delta(g.Delta, smallDO, s.Acc, b.DV, 0, len(s.M))
	mustMatch(t, want.Delta, g.Delta)
	for task := range BackwardTasks(small) {
		Backward(small, g, task, sc)
	}
	mustMatch(t, want.DQ, g.DQ, want.DK, g.DK, want.DV, g.DV)

	// delta of an out of BF16.
	Delta(want.Delta, wideDO, widened[T](out), b.DV, 0, len(s.M))
	Delta(g.Delta, smallDO, out, b.DV, 0, len(s.M))
	mustMatch(t, want.Delta, g.Delta)
}

// TestDeltaOfLongValues has items longer than what is widened at once.
func TestDeltaOfLongValues(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 1))
	const dv, items = 2*deltaStep + 3, 4
	do, out := make([]float64, dv*items), make([]float64, dv*items)
	for i := range do {
		do[i], out[i] = rng.NormFloat64(), rng.NormFloat64()
	}
	small := narrow(do)
	do = widened[float64](small)
	want, got, mixed := make([]float64, items), make([]float64, items), make([]float64, items)
	attn.Delta(dv, do, out, want)
	Delta(got, do, out, dv, 0, items)
	Delta(mixed, small, out, dv, 0, items)
	if !sameBits(got, want) || !sameBits(mixed, want) {
		t.Errorf("delta %v, with do in BF16 %v, want %v", got, mixed, want)
	}
}

// TestAgainstTwin holds the kernels against attn's, carried over two blocks, with DK and DV added
// to.
func TestAgainstTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, do := drawBlock[float64](t, 150)
		want, _, _ := newState(b)
		attn.Forward(b, want)
		s, _, _ := newState(b)
		var sc Scratch[float64]
		for task := range ForwardTasks(b) {
			Forward(b, s, task, &sc)
		}
		sink := make([]float64, b.QHeads)
		sinks := rapid.SampledFrom([]float64{math.Inf(-1), -1000, -1, 0, 2, 1000})
		for h := range sink {
			sink[h] = sinks.Draw(t, "sink")
		}
		if rapid.Bool().Draw(t, "no sink") {
			sink = nil
		}
		items := len(s.M)
		attn.Finalize(b.DV, want, sink, want.Acc, want.M)
		Finalize(s.Acc, s.M, s, sink, b.DV, 0, items)
		if e := relativeTo(s.Acc, want.Acc, 0.1); !(e <= 1e-13) {
			t.Fatalf("out: relative error %g", e)
		}
		if e := relativeTo(s.M, want.M, 1); !(e <= 1e-13) {
			t.Fatalf("lse: relative error %g", e)
		}

		g := newGrad(b, do, want.Acc, want.M)
		g.AddKV = true
		copyTo := func(n int) []float64 {
			a := make([]float64, n)
			for i := range a {
				a[i] = float64(i%7) - 3
			}
			return a
		}
		g.DK, g.DV = copyTo(len(g.DK)), copyTo(len(g.DV))
		twin := g
		twin.DQ, twin.DK, twin.DV = copyTo(len(g.DQ)), copyTo(len(g.DK)), copyTo(len(g.DV))
		g.DQ = copyTo(len(g.DQ))
		attn.Backward(b, twin)
		for task := range BackwardTasks(b) {
			Backward(b, g, task, &sc)
		}
		for name, pair := range map[string][2][]float64{
			"dq": {g.DQ, twin.DQ}, "dk": {g.DK, twin.DK}, "dv": {g.DV, twin.DV},
		} {
			if e := relativeTo(pair[0], pair[1], 0.3); !(e <= 1e-13) {
				t.Fatalf("%s: relative error %g", name, e)
			}
		}
		if sink == nil {
			return
		}
		dsink, wantSink := make([]float64, b.QHeads), make([]float64, b.QHeads)
		attn.SinkGrad(g.LSE, g.Delta, sink, wantSink)
		for h := range dsink {
			SinkGrad(dsink, g.LSE, g.Delta, sink, h, h+1)
		}
		if !sameBits(dsink, wantSink) {
			t.Fatalf("dsink %v, want %v", dsink, wantSink)
		}
	})
}
