package kernel

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
)

// naiveForward is the triple loop for one head of contiguous rows: per query an inner product with
// each key, one accumulator, math.Exp, and a weighted sum of the values.
func naiveForward(out, lse, q, k, v, w []float32, tokens, d int, scale float32, causal bool) {
	for i := range tokens {
		keys := tokens
		if causal {
			keys = i + 1
		}
		top := float32(math.Inf(-1))
		for j := range keys {
			var s float32
			for x := range d {
				s += q[i*d+x] * k[j*d+x]
			}
			w[j] = s * scale
			top = max(top, w[j])
		}
		for x := range d {
			out[i*d+x] = 0
		}
		var sum float32
		for j := range keys {
			p := float32(math.Exp(float64(w[j] - top)))
			sum += p
			for x := range d {
				out[i*d+x] += p * v[j*d+x]
			}
		}
		for x := range d {
			out[i*d+x] /= sum
		}
		lse[i] = top + float32(math.Log(float64(sum)))
	}
}

// naiveForwardRows is naiveForward with rows cut out first, so that the compiler drops the index
// arithmetic and most bounds checks of the inner loops.
func naiveForwardRows(out, lse, q, k, v, w []float32, tokens, d int, scale float32, causal bool) {
	for i := range tokens {
		keys := tokens
		if causal {
			keys = i + 1
		}
		top := float32(math.Inf(-1))
		qi, o := q[i*d:(i+1)*d], out[i*d:(i+1)*d]
		for j := range keys {
			kj := k[j*d:][:len(qi)]
			var s float32
			for x, y := range qi {
				s += y * kj[x]
			}
			w[j] = s * scale
			if w[j] > top {
				top = w[j]
			}
		}
		clear(o)
		var sum float32
		for j := range keys {
			p := float32(math.Exp(float64(w[j] - top)))
			sum += p
			vj := v[j*d:][:len(o)]
			for x := range o {
				o[x] += p * vj[x]
			}
		}
		for x := range o {
			o[x] /= sum
		}
		lse[i] = top + float32(math.Log(float64(sum)))
	}
}

// naiveBackward is the loop over pairs for one head of contiguous rows.
func naiveBackward(g attn.Grad[float32, float32], q, k, v []float32, tokens, d int, scale float32,
	causal bool,
) {
	clear(g.DK)
	clear(g.DV)
	for i := range tokens {
		keys := tokens
		if causal {
			keys = i + 1
		}
		for j := range keys {
			var s, dp float32
			for x := range d {
				s += q[i*d+x] * k[j*d+x]
			}
			for x := range d {
				dp += g.DO[i*d+x] * v[j*d+x]
			}
			p := float32(math.Exp(float64(s*scale - g.LSE[i])))
			ds := p * (dp - g.Delta[i]) * scale
			for x := range d {
				g.DV[j*d+x] += p * g.DO[i*d+x]
				g.DQ[i*d+x] += ds * k[j*d+x]
				g.DK[j*d+x] += ds * q[i*d+x]
			}
		}
	}
}

// naiveBackwardRows is naiveBackward with rows cut out first.
func naiveBackwardRows(g attn.Grad[float32, float32], q, k, v []float32, tokens, d int,
	scale float32, causal bool,
) {
	clear(g.DK)
	clear(g.DV)
	for i := range tokens {
		keys := tokens
		if causal {
			keys = i + 1
		}
		qi := q[i*d : (i+1)*d]
		do, dq := g.DO[i*d:][:len(qi)], g.DQ[i*d:][:len(qi)]
		for j := range keys {
			kj, vj := k[j*d:][:len(qi)], v[j*d:][:len(qi)]
			dk, dv := g.DK[j*d:][:len(qi)], g.DV[j*d:][:len(qi)]
			var s, dp float32
			for x, y := range qi {
				s += y * kj[x]
				dp += do[x] * vj[x]
			}
			p := float32(math.Exp(float64(s*scale - g.LSE[i])))
			ds := p * (dp - g.Delta[i]) * scale
			for x, y := range qi {
				dv[x] += p * do[x]
				dq[x] += ds * kj[x]
				dk[x] += ds * y
			}
		}
	}
}

// benchBlock is one head of tokens contiguous rows.
func benchBlock(tokens, d int, causal bool) *attn.Block[float32] {
	rng := rand.New(rand.NewPCG(1, 2))
	normal := func() []float32 {
		a := make([]float32, tokens*d)
		for i := range a {
			a[i] = float32(rng.NormFloat64())
		}
		return a
	}
	spans := mesh.Set{{Stride: 1, Count: tokens}}
	b := &attn.Block[float32]{
		QSpans: spans, KSpans: spans, QHeads: 1, KHeads: 1, Group: 1, D: d, DV: d,
		Scale: 1 / math.Sqrt(float64(d)), Mask: attn.Full(tokens, tokens),
		Q: normal(), K: normal(), V: normal(),
	}
	if causal {
		b.Mask = attn.Causal(tokens, tokens)
	}
	return b
}

// eachBenchMask runs bench for both masks and reports the rate in real operations of the pass.
func eachBenchMask(b *testing.B, flopsPerTerm float64,
	bench func(b *testing.B, block *attn.Block[float32], causal bool),
) {
	const tokens, d = 2048, 64
	for _, causal := range []bool{false, true} {
		name, pairs := "full", float64(tokens*tokens)
		if causal {
			name, pairs = "causal", float64(tokens*(tokens+1)/2)
		}
		b.Run(name, func(b *testing.B) {
			bench(b, benchBlock(tokens, d, causal), causal)
			seconds := b.Elapsed().Seconds() / float64(b.N)
			b.ReportMetric(flopsPerTerm*d*pairs/seconds/1e9, "GFLOP/s")
		})
	}
}

func BenchmarkForward(b *testing.B) {
	type pass = func(out, lse, q, k, v, w []float32, tokens, d int, scale float32, causal bool)
	naive := func(b *testing.B, run pass) {
		eachBenchMask(b, 4, func(b *testing.B, p *attn.Block[float32], causal bool) {
			n := p.QSpans.Len()
			out, lse, w := make([]float32, n*p.D), make([]float32, n), make([]float32, n)
			for b.Loop() {
				run(out, lse, p.Q, p.K, p.V, w, n, p.D, float32(p.Scale), causal)
			}
		})
	}
	b.Run("naive", func(b *testing.B) { naive(b, naiveForward) })
	b.Run("naive-rows", func(b *testing.B) { naive(b, naiveForwardRows) })
	b.Run("tiled", func(b *testing.B) {
		eachBenchMask(b, 4, func(b *testing.B, p *attn.Block[float32], _ bool) {
			s, out, lse := newState(p)
			var sc Scratch[float32]
			for b.Loop() {
				FreshState(s, p.DV, 0, len(lse))
				for task := range ForwardTasks(p) {
					Forward(p, s, task, &sc)
				}
				Finalize(out, lse, s, nil, p.DV, 0, len(lse))
			}
		})
	})
}

// BenchmarkVariants is the tiled passes on BF16, under a soft cap, and on 256 and 1,024 packed
// documents, each next to the plain one.
func BenchmarkVariants(b *testing.B) {
	const tokens, d = 2048, 64
	documents := func(tokens, length int) attn.Mask {
		var starts []int
		for at := 0; at <= tokens; at += length {
			starts = append(starts, at)
		}
		mask, err := attn.Documents(starts, func(n int) attn.Mask { return attn.Causal(n, n) })
		if err != nil {
			b.Fatal(err)
		}
		return mask
	}
	plain, capped := benchBlock(tokens, d, true), benchBlock(tokens, d, true)
	capped.SoftCap = 50
	small, _ := narrowed(plain)
	short, long := benchBlock(16384, d, true), benchBlock(65536, d, true)
	short.Mask, long.Mask = documents(16384, 64), documents(65536, 64)
	b.Run("plain", func(b *testing.B) { benchPasses(b, plain, plain.V) })
	b.Run("capped", func(b *testing.B) { benchPasses(b, capped, capped.V) })
	b.Run("bf16", func(b *testing.B) { benchPasses(b, small, small.V) })
	b.Run("256 documents", func(b *testing.B) { benchPasses(b, short, short.V) })
	b.Run("1024 documents", func(b *testing.B) { benchPasses(b, long, long.V) })
}

// benchPasses measures both passes over one block, with accumulators of f32.
func benchPasses[E attn.Elem](b *testing.B, p *attn.Block[E], do []E) {
	n := p.QSpans.Len()
	s := attn.State[float32]{
		Acc: make([]float32, n*p.DV), M: make([]float32, n), L: make([]float32, n),
	}
	g := attn.Grad[E, float32]{
		DO: do, LSE: s.M, Delta: make([]float32, n), DQ: make([]float32, n*p.D),
		DK: make([]float32, n*p.D), DV: make([]float32, n*p.DV),
	}
	var sc Scratch[float32]
	rate := func(b *testing.B, flops float64) {
		flops *= float64(p.D) * float64(p.Mask.TotalPairs())
		b.ReportMetric(flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
	}
	b.Run("forward", func(b *testing.B) {
		for b.Loop() {
			FreshState(s, p.DV, 0, n)
			for task := range ForwardTasks(p) {
				Forward(p, s, task, &sc)
			}
			Finalize(s.Acc, s.M, s, nil, p.DV, 0, n)
		}
		rate(b, 4)
	})
	Delta(g.Delta, do, s.Acc, p.DV, 0, n)
	b.Run("backward", func(b *testing.B) {
		for b.Loop() {
			for task := range BackwardTasks(p) {
				Backward(p, g, task, &sc)
			}
		}
		rate(b, 10)
	})
}

func BenchmarkBackward(b *testing.B) {
	type pass = func(g attn.Grad[float32, float32], q, k, v []float32, tokens, d int, scale float32,
		causal bool)
	grads := func(p *attn.Block[float32]) attn.Grad[float32, float32] {
		out, lse := forwardAll(p)
		do := make([]float32, len(out))
		for i := range do {
			do[i] = p.V[len(do)-1-i]
		}
		return newGrad(p, do, out, lse)
	}
	naive := func(b *testing.B, run pass) {
		eachBenchMask(b, 10, func(b *testing.B, p *attn.Block[float32], causal bool) {
			g := grads(p)
			for b.Loop() {
				clear(g.DQ)
				run(g, p.Q, p.K, p.V, p.QSpans.Len(), p.D, float32(p.Scale), causal)
			}
		})
	}
	b.Run("naive", func(b *testing.B) { naive(b, naiveBackward) })
	b.Run("naive-rows", func(b *testing.B) { naive(b, naiveBackwardRows) })
	b.Run("tiled", func(b *testing.B) {
		eachBenchMask(b, 10, func(b *testing.B, p *attn.Block[float32], _ bool) {
			g := grads(p)
			var sc Scratch[float32]
			for b.Loop() {
				clear(g.DQ)
				for task := range BackwardTasks(p) {
					Backward(p, g, task, &sc)
				}
			}
		})
	})
}
