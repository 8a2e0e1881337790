package simd

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern/cpu/kernel"
)

// path is one implementation under test: the kernels of an instruction set, or with Portable the
// slow twins, so that the suite also tests itself. Those of AVX512BF16 and AMX get each block of
// float32 rounded to bf16: with others they do what AVX512 does (TestPairsAreOfBF16).
type path struct {
	isa ISA
	sc  *Scratch
}

// eachPath runs test on all implementations that this machine has.
func eachPath(t *testing.T, test func(t *testing.T, p path)) {
	for _, isa := range pathsHere() {
		t.Run(isa.String(), func(t *testing.T) {
			if err := runs(isa); err != nil {
				t.Skip(err)
			}
			test(t, path{isa, &Scratch{}})
		})
	}
}

// fold runs tasks of forward in the given order, nil for the natural one.
func fold[E attn.Elem](p path, b *attn.Block[E], s attn.State[float32], order []int) {
	if small := p.small(b); small != nil {
		fold(p, small, s, order)
		return
	}
	n := ForwardTasks(b)
	if p.isa == Portable {
		n, order = kernel.ForwardTasks(b), nil
	}
	for i := range n {
		if order != nil {
			i = order[i]
		}
		if p.isa == Portable {
			kernel.Forward(b, s, i, &kernel.Scratch[float32]{})
			continue
		}
		Forward(p.isa, b, s, i, p.sc)
	}
}

// newState is a fresh state for b.
func newState[E attn.Elem](b *attn.Block[E]) attn.State[float32] {
	n := b.QSpans.Len() * b.QHeads
	s := attn.State[float32]{
		Acc: make([]float32, n*b.DV), M: make([]float32, n), L: make([]float32, n),
	}
	attn.FreshState(s)
	return s
}

// finish is out and lse of a state.
func finish(p path, s attn.State[float32], dv int) (out, lse []float32) {
	out, lse = make([]float32, len(s.Acc)), make([]float32, len(s.M))
	if p.isa == Portable {
		kernel.Finalize(out, lse, s, nil, dv, 0, len(lse))
	} else {
		Finalize(p.isa, out, lse, s, nil, dv, 0, len(lse))
	}
	return out, lse
}

// forwardAll is the whole forward of one block.
func forwardAll[E attn.Elem](p path, b *attn.Block[E]) (out, lse []float32) {
	s := newState(b)
	fold(p, b, s, nil)
	return finish(p, s, b.DV)
}

// newGrad has delta computed, DQ zero, and NaN in DK and DV, which must be set.
func newGrad[E attn.Elem](p path, b *attn.Block[E], do []E, out, lse []float32,
) attn.Grad[E, float32] {
	keys := b.KSpans.Len() * b.KHeads
	g := attn.Grad[E, float32]{
		DO: do, LSE: lse, Delta: make([]float32, len(lse)), DQ: make([]float32, len(b.Q)),
		DK: make([]float32, keys*b.D), DV: make([]float32, keys*b.DV),
	}
	fill(g.DK, float32(math.NaN()))
	fill(g.DV, float32(math.NaN()))
	switch {
	case p.isa == Portable:
		kernel.Delta(g.Delta, do, out, b.DV, 0, len(lse))
	case p.small(b) != nil:
		Delta(p.isa, g.Delta, smallGrad(g).DO, out, b.DV, 0, len(lse))
	default:
		Delta(p.isa, g.Delta, do, out, b.DV, 0, len(lse))
	}
	return g
}

// descend runs all tasks of backward.
func descend[E attn.Elem](p path, b *attn.Block[E], g attn.Grad[E, float32]) {
	if small := p.small(b); small != nil {
		descend(p, small, smallGrad(g))
		return
	}
	if p.isa == Portable {
		for i := range kernel.BackwardTasks(b) {
			kernel.Backward(b, g, i, &kernel.Scratch[float32]{})
		}
		return
	}
	for i := range BackwardTasks(b) {
		Backward(p.isa, b, g, i, p.sc)
	}
}

// backwardAll is the whole backward of one block.
func backwardAll[E attn.Elem](p path, b *attn.Block[E], do []E, out, lse []float32,
) attn.Grad[E, float32] {
	g := newGrad(p, b, do, out, lse)
	descend(p, b, g)
	return g
}

func fill[T any](a []T, x T) {
	for i := range a {
		a[i] = x
	}
}

// result is all that a block gives, by names.
type result struct{ out, lse, dq, dk, dv []float64 }

// exact is the block in float64, pair by pair, by package attn.
func exact(b *attn.Block[float32], do []float32) result {
	w := attn.Block[float64]{
		QSpans: b.QSpans, KSpans: b.KSpans, QHeads: b.QHeads, KHeads: b.KHeads,
		QHead0: b.QHead0, KHead0: b.KHead0, Group: b.Group, D: b.D, DV: b.DV,
		Scale: b.Scale, SoftCap: b.SoftCap, Mask: b.Mask, Q: wide(b.Q), K: wide(b.K), V: wide(b.V),
	}
	n := b.QSpans.Len() * b.QHeads
	s := attn.State[float64]{
		Acc: make([]float64, n*b.DV), M: make([]float64, n), L: make([]float64, n),
	}
	attn.FreshState(s)
	attn.Forward(&w, s)
	r := result{out: make([]float64, n*b.DV), lse: make([]float64, n)}
	kernel.Finalize(r.out, r.lse, s, nil, b.DV, 0, n)
	g := attn.Grad[float64, float64]{
		DO: wide(do), LSE: r.lse, Delta: make([]float64, n), DQ: make([]float64, len(b.Q)),
		DK: make([]float64, len(b.K)), DV: make([]float64, len(b.V)),
	}
	kernel.Delta(g.Delta, g.DO, r.out, b.DV, 0, n)
	attn.Backward(&w, g)
	r.dq, r.dk, r.dv = g.DQ, g.DK, g.DV
	return r
}

func wide(a []float32) []float64 {
	w := make([]float64, len(a))
	for i, x := range a {
		w[i] = float64(x)
	}
	return w
}

// run is the block's result on a path.
func (p path) run(b *attn.Block[float32], do []float32) result {
	out, lse := forwardAll(p, b)
	g := backwardAll(p, b, do, out, lse)
	return result{wide(out), wide(lse), wide(g.DQ), wide(g.DK), wide(g.DV)}
}

// names are those of the arrays of a result.
var names = [...]string{"out", "lse", "dq", "dk", "dv"}

// errors are the relative errors of the arrays of a result.
func (r result) errors(want *result, least float64) (size []float64) {
	exact := [...][]float64{want.out, want.lse, want.dq, want.dk, want.dv}
	for i, got := range [...][]float64{r.out, r.lse, r.dq, r.dk, r.dv} {
		size = append(size, relative(got, exact[i], least))
	}
	return size
}

// relative is rms(got - want) / rms(want), or by least if that is more. Equal infinities count as
// 0; a NaN on one side, or an infinity, gives +Inf.
func relative(got, want []float64, least float64) float64 {
	diff, size := 0.0, 0.0
	for i, w := range want {
		g := got[i]
		if g == w && math.IsInf(w, 0) || math.IsNaN(g) && math.IsNaN(w) {
			continue
		}
		if math.IsNaN(g-w) || math.IsInf(g-w, 0) {
			return math.Inf(1)
		}
		diff += (g - w) * (g - w)
		size += w * w
	}
	n := float64(max(1, len(want)))
	return math.Sqrt(diff/n) / max(least, math.Sqrt(size/n))
}

// gap is how far a path's results are from exact ones, and the portable kernels' are.
func (p path) gap(b *attn.Block[float32], do []float32, least float64) (got, twin []float64) {
	p.fit(b, do)
	want := exact(b, do)
	r, t := p.run(b, do), path{isa: Portable}.run(b, do)
	return r.errors(&want, least), t.errors(&want, least)
}

// noise is what rounding leaves of a gradient that is exactly 0, as where a query sees one key: a
// sum of as many differences dP - delta as there are queries, each of DV products.
func noise(b *attn.Block[float32], array int) float64 {
	if array < 2 {
		return 0
	}
	return 3e-7 * math.Sqrt(float64(b.QSpans.Len()*b.Group*b.DV))
}

// TestRandomBlocks holds random blocks against float64. Inputs are normal, so 1 is the size of
// what a gradient is summed from; where few numbers cancel, the error of one path may be small by
// luck.
func TestRandomBlocks(t *testing.T) {
	eachPath(t, func(t *testing.T, p path) {
		rapid.Check(t, func(t *rapid.T) {
			b, do := drawBlock(t, 300)
			got, twin := p.gap(b, do, 1)
			for i, e := range got {
				if !(e <= p.random(b, i, 4*max(twin[i], 3e-6))) {
					t.Fatalf("%s: error %.3g, the portable kernels' is %.3g", names[i], e, twin[i])
				}
			}
		})
	})
}

// problem is one whose exact result is known, and how far the portable kernels' is from it.
type problem struct {
	name string
	b    *attn.Block[float32]
	do   []float32
	want result
	twin []float64
}

// problems have one shape each for some seeds. The logits of two kinds are 40 times as large; those
// that are capped are so near 0, about the cap, or far beyond it.
func problems(seeds uint64) (all []problem) {
	for _, c := range []struct{ n, d, dv int }{
		{160, 64, 64}, {120, 128, 128}, {100, 256, 40}, {100, 33, 97},
	} {
		for _, kind := range []string{
			"causal", "full", "large", "high cap", "cap", "low cap", "large cap"} {
			for seed := range seeds {
				p := problem{name: fmt.Sprintf("%v %s", c, kind)}
				p.b = contiguous(c.n, 2, 2, c.d, c.dv)
				p.do = fillBlock(p.b, seed)
				if kind != "causal" {
					p.b.Mask = attn.Full(c.n, c.n)
				}
				if strings.HasPrefix(kind, "large") {
					p.b.Scale *= 40
				}
				p.b.SoftCap = map[string]float64{
					"high cap": 30, "cap": 0.7, "low cap": 0.01, "large cap": 50}[kind]
				p.want = exact(p.b, p.do)
				p.twin = path{isa: Portable}.run(p.b, p.do).errors(&p.want, 0)
				all = append(all, p)
			}
		}
	}
	return all
}

// TestAccuracy wants errors at most twice those of the portable kernels, as an average over seeds.
func TestAccuracy(t *testing.T) {
	const seeds = 3
	all := problems(seeds)
	eachVector(t, func(t *testing.T, p path) {
		var got, twin [len(names)]float64
		worst := 0.0
		if p.isa.dots() {
			t.Skip("TestPairs has its bounds")
		}
		for i, x := range all {
			e := p.run(x.b, x.do).errors(&x.want, 0)
			for j := range e {
				got[j] += e[j] * e[j]
				twin[j] += x.twin[j] * x.twin[j]
			}
			if (i+1)%seeds != 0 {
				continue
			}
			for j, name := range names {
				ratio := math.Sqrt(got[j] / twin[j])
				worst = max(worst, ratio)
				if !(ratio <= 2) {
					t.Errorf("%s: the error of %s is %.2f times the portable kernels', %.2g",
						x.name, name, ratio, math.Sqrt(twin[j]/seeds))
				}
			}
			got, twin = [len(names)]float64{}, [len(names)]float64{}
		}
		t.Logf("at most %.2f times the portable kernels' errors", worst)
	})
}
