package kernel

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
)

// check holds a result against the oracle: tol for out and lse, gradTol for the gradients.
func check[T attn.Float](t interface {
	Helper()
	Errorf(string, ...any)
}, want result, out, lse []T, g *attn.Grad[T, T], tol, gradTol float64,
) {
	t.Helper()
	type tensor struct {
		name string
		got  []T
		want []float64
		tol  float64

		least float64
	}
	tensors := []tensor{{"out", out, want.out, tol, 0.1}, {"lse", lse, want.lse, tol, 1}}
	if g != nil {
		// A key's gradients are sums over the rows that see it.
		rows := float64(len(want.out)) / float64(max(1, len(want.dv)))
		least := 0.3 * math.Sqrt(max(1, rows))
		tensors = append(tensors, tensor{"dq", g.DQ, want.dq, gradTol, 0.3},
			tensor{"dk", g.DK, want.dk, gradTol, least}, tensor{"dv", g.DV, want.dv, gradTol, 0.05})
	}
	for _, x := range tensors {
		// Few numbers may all but cancel, and then have no more digits than their terms.
		if e := relativeTo(x.got, x.want, x.least); !(e <= x.tol) {
			t.Errorf("%s: relative error %.3g, allowed %.3g", x.name, e, x.tol)
		}
	}
}

func TestAgainstDense(t *testing.T) {
	t.Run("f64", rapid.MakeCheck(func(t *rapid.T) {
		b, do := drawBlock[float64](t, 150)
		out, lse := forwardAll(b)
		g := backwardAll(b, do, out, lse)
		check(t, dense(b, do), out, lse, &g, 1e-13, 1e-13)
	}))
	t.Run("f32", rapid.MakeCheck(func(t *rapid.T) {
		b, do := drawBlock[float32](t, 150)
		out, lse := forwardAll(b)
		g := backwardAll(b, do, out, lse)
		check(t, dense(b, do), out, lse, &g, 1e-6, 5e-6)
	}))
}

// TestCarriedState cuts the keys of a problem into blocks in any way: forward carries its state
// over them, backward adds its DQ up and gives each block its own DK and DV.
func TestCarriedState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, do := drawBlock[float64](t, 150)
		want := dense(b, do)
		keys := b.KSpans.Len()
		cuts := []int{0}
		for range rapid.IntRange(0, 4).Draw(t, "cuts") {
			cuts = append(cuts, rapid.IntRange(cuts[len(cuts)-1], keys).Draw(t, "cut"))
		}
		cuts = append(cuts, keys)

		s, out, lse := newState(b)
		var sc Scratch[float64]
		for i, lo := range cuts[:len(cuts)-1] {
			part := keyRows(b, lo, cuts[i+1])
			for task := range ForwardTasks(part) {
				Forward(part, s, task, &sc)
			}
		}
		Finalize(out, lse, s, nil, b.DV, 0, len(lse))
		g := newGrad(b, do, out, lse)
		for i, lo := range cuts[:len(cuts)-1] {
			hi := cuts[i+1]
			part, share := keyRows(b, lo, hi), g
			share.DK = g.DK[lo*b.KHeads*b.D : hi*b.KHeads*b.D]
			share.DV = g.DV[lo*b.KHeads*b.DV : hi*b.KHeads*b.DV]
			for task := range BackwardTasks(part) {
				Backward(part, share, task, &sc)
			}
		}
		check(t, want, out, lse, &g, 1e-13, 1e-13)
	})
}

// contiguous is a causal block of heads query and kvHeads KV heads.
func contiguous[T attn.Float](tokens, heads, kvHeads, d, dv int) *attn.Block[T] {
	spans := mesh.Set{{Stride: 1, Count: tokens}}
	return &attn.Block[T]{
		QSpans: spans, KSpans: spans, QHeads: heads, KHeads: kvHeads, Group: heads / kvHeads,
		D: d, DV: dv, Scale: 1 / math.Sqrt(float64(d)), Mask: attn.Causal(tokens, tokens),
	}
}

func TestAccuracy(t *testing.T) {
	for _, c := range []struct {
		name              string
		tokens, heads, kv int
		d, dv             int
		full, longOnly    bool
	}{
		{name: "long", tokens: 4097, heads: 1, kv: 1, d: 16, dv: 16, longOnly: true},
		{name: "full", tokens: 1025, heads: 1, kv: 1, d: 64, dv: 64, full: true},
		{name: "grouped", tokens: 515, heads: 4, kv: 1, d: 16, dv: 16},
		{name: "wide", tokens: 130, heads: 2, kv: 2, d: 256, dv: 255},
		{name: "narrow", tokens: 1500, heads: 1, kv: 1, d: 1, dv: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.longOnly && testing.Short() {
				t.Skip("a float64 oracle of 4097 tokens")
			}
			b := contiguous[float32](c.tokens, c.heads, c.kv, c.d, c.dv)
			if c.full {
				b.Mask = attn.Full(c.tokens, c.tokens)
			}
			do := fillBlock(b, 3)
			out, lse := forwardAll(b)
			g := backwardAll(b, do, out, lse)
			want := dense(b, do)
			check(t, want, out, lse, &g, 1e-6, 5e-6)
			t.Logf("out %.2g lse %.2g dq %.2g dk %.2g dv %.2g", relative(out, want.out),
				relative(lse, want.lse), relative(g.DQ, want.dq), relative(g.DK, want.dk),
				relative(g.DV, want.dv))
		})
	}
}

// TestLargeLogits makes softmax all but one-hot: logits of some thousands. In f32 an error of
// |logit| 2^-24 stands in the exponent.
func TestLargeLogits(t *testing.T) {
	single, double := contiguous[float32](200, 2, 1, 16, 16), contiguous[float64](200, 2, 1, 16, 16)
	fillBlock(single, 5)
	do := fillBlock(double, 5)
	for i := range single.Q {
		single.Q[i] *= 40
		double.Q[i] = float64(single.Q[i])
	}
	for i := range single.K {
		single.K[i] *= 40
		double.K[i] = float64(single.K[i])
	}
	for i := range single.V {
		double.V[i] = float64(single.V[i])
	}
	small := make([]float32, len(do))
	for i := range do {
		small[i] = float32(do[i])
		do[i] = float64(small[i])
	}
	want := dense(double, do)
	out, lse := forwardAll(single)
	g := backwardAll(single, small, out, lse)
	check(t, want, out, lse, &g, 1e-4, 2e-3)
	out64, lse64 := forwardAll(double)
	g64 := backwardAll(double, do, out64, lse64)
	check(t, want, out64, lse64, &g64, 1e-12, 1e-11)
}
