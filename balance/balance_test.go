package balance_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/balance"
	"github.com/kvloom/kvloom/mesh"
	"pgregory.net/rapid"
)

// documents is a causal mask inside each document, of at most left keys before the query.
func documents(starts []int, left int) attn.Mask {
	var m attn.Mask
	for d := 1; d < len(starts); d++ {
		lo, hi := starts[d-1], starts[d]
		m = append(m, attn.Slice{Q0: lo, Q1: hi, K0: lo, K1: hi, Lo: -left})
	}
	return m
}

// drawProblem draws a ring, and documents under one of several masks, or a mask of no documents.
func drawProblem(t *rapid.T) balance.Problem {
	tokens := rapid.IntRange(1, 700).Draw(t, "S")
	p := balance.Problem{QTokens: tokens, KTokens: tokens, Ring: rapid.IntRange(1, 16).Draw(t, "C")}
	starts := []int{0}
	for starts[len(starts)-1] < tokens {
		n := rapid.SampledFrom([]int{0, 1, 2, 7, 30, 200, 700}).Draw(t, "length")
		starts = append(starts, min(starts[len(starts)-1]+n, tokens))
	}
	switch rapid.IntRange(0, 5).Draw(t, "mask") {
	case 0:
		p.Mask = attn.Full(tokens, tokens)
	case 1:
		p.Mask = attn.Causal(tokens, tokens)
	case 2:
		p.Mask = documents(starts, rapid.IntRange(0, 40).Draw(t, "window"))
	case 3: // a prefix of all, then causal
		n := rapid.IntRange(0, tokens).Draw(t, "prefix")
		p.Mask = attn.Mask{{Q1: tokens, K1: n, Lo: -attn.Unbounded, Hi: attn.Unbounded},
			{Q0: n, Q1: tokens, K0: n, K1: tokens, Lo: -attn.Unbounded}}
	case 4: // queries of the second half see nothing
		p.Mask = attn.Mask{{Q1: tokens / 2, K1: tokens, Lo: -3, Hi: attn.Unbounded}}
	default:
		p.Mask = documents(starts, attn.Unbounded)
	}
	if rapid.IntRange(0, 3).Draw(t, "weighted") == 0 {
		for range p.Ring {
			w := rapid.SampledFrom([]float64{1, 0.5, 0.8, 3}).Draw(t, "weight")
			p.Weights = append(p.Weights, w)
		}
	}
	return p
}

// TestDealPartsTheTokens: any problem. Each token is dealt once in joined spans, the bound of
// tokens is kept, the report is what Measure says, and the same problem is dealt alike.
func TestDealPartsTheTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		l, report, err := balance.Deal(p)
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for c := range p.Ring {
			sum += weight(p, c)
		}
		seen := make([]bool, p.QTokens)
		for c := range p.Ring {
			set := l.Shard(p.QTokens, p.Ring, c)
			for i, s := range set {
				if s.Stride != 1 || s.Count < 1 || i > 0 && s.Start <= set[i-1].Last()+1 {
					t.Fatalf("shard %d: span %d of %v is empty or touches another", c, i, set)
				}
			}
			for _, at := range set.Positions() {
				if at >= p.QTokens || seen[at] {
					t.Fatalf("token %d of %d is dealt twice or is none", at, p.QTokens)
				}
				seen[at] = true
			}
			part := float64(p.QTokens) * weight(p, c) / sum
			if most := part + float64(p.QTokens)/float64(8*p.Ring) + 1; float64(set.Len()) > most {
				t.Fatalf("shard %d holds %d tokens, more than %v", c, set.Len(), most)
			}
		}
		if at := slices.Index(seen, false); at >= 0 {
			t.Fatalf("token %d is not dealt", at)
		}
		checkSame(t, p, l, report)
	})
}

func weight(p balance.Problem, c int) float64 {
	if p.Weights == nil {
		return 1
	}
	return p.Weights[c]
}

func checkSame(t *rapid.T, p balance.Problem, l mesh.Layout, report balance.Report) {
	again, _, err := balance.Deal(p)
	if err != nil || again.String() != l.String() {
		t.Fatalf("dealt again: %v, %v, was %v", again, err, l)
	}
	measured, err := balance.Measure(p, l)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprintf("%+v", report), fmt.Sprintf("%+v", measured); got != want {
		t.Fatalf("the deal reports %s, measured %s", got, want)
	}
}

// TestMeasureCounts: areas and steps are those of the definition, pair by pair, for runs, for spans
// with strides, and where keys are a sequence of their own.
func TestMeasureCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		p.QTokens = min(p.QTokens, 60)
		p.KTokens = p.QTokens
		left := rapid.IntRange(0, 60).Draw(t, "left")
		p.Mask = documents([]int{0, p.QTokens / 3, p.QTokens}, left)
		if rapid.Bool().Draw(t, "cross") {
			p.KTokens += 5
			p.Mask = attn.Causal(p.QTokens, p.KTokens)
		}
		l := rapid.SampledFrom([]mesh.Layout{mesh.Zigzag, mesh.Contiguous, mesh.Striped{Size: 1},
			mesh.Striped{Size: 3}}).Draw(t, "layout")
		got, err := balance.Measure(p, l)
		if err != nil {
			t.Fatal(err)
		}
		owner := make([]int, p.QTokens)
		for c := range p.Ring {
			for _, at := range l.Shard(p.QTokens, p.Ring, c).Positions() {
				owner[at] = c
			}
		}
		area, steps := make([]int64, p.Ring), make([][]float64, p.Ring)
		for s := range steps {
			steps[s] = make([]float64, p.Ring)
		}
		sum := 0.0
		for c := range p.Ring {
			sum += weight(p, c)
		}
		for i := range p.QTokens {
			for j := range p.KTokens {
				if c := owner[i]; p.Mask.Allows(i, j) {
					area[c]++
					if p.KTokens == p.QTokens {
						step := (c - owner[j] + p.Ring) % p.Ring
						steps[step][c] += sum / (weight(p, c) * float64(p.Ring))
					}
				}
			}
		}
		if !slices.Equal(got.Area, area) {
			t.Fatalf("%v: areas %v, want %v", l, got.Area, area)
		}
		if p.KTokens != p.QTokens {
			if got.Steps != nil || got.StepImbalance != 1 {
				t.Fatalf("keys of their own have steps: %+v", got)
			}
			return
		}
		for s, loads := range steps {
			if want := slices.Max(loads); math.Abs(got.Steps[s].Largest-want) > 1e-6*(1+want) {
				t.Fatalf("%v, step %d: largest %v, want %v", l, s, got.Steps[s].Largest, want)
			}
		}
	})
}

// batch draws document lengths log-uniform from 16 to half of the tokens.
func batch(seed uint64, tokens int) []int {
	rng := rand.New(rand.NewPCG(seed, 5))
	starts := []int{0}
	for {
		n := int(16 * math.Exp(rng.Float64()*math.Log(float64(tokens)/2/16)))
		end := starts[len(starts)-1] + n
		if end >= tokens {
			return append(starts, tokens)
		}
		starts = append(starts, end)
	}
}

// figures gathers largest over mean of many batches.
type figures struct{ worst, sum, worstSteps, spans float64 }

func (f *figures) add(r balance.Report) {
	f.worst, f.worstSteps = max(f.worst, r.Imbalance), max(f.worstSteps, r.StepImbalance)
	f.sum, f.spans = f.sum+r.Imbalance, f.spans+float64(r.Spans)
}

// TestPackedDocumentsAreEven: 50 packed batches on 8 ranks; the other layouts stand beside.
func TestPackedDocumentsAreEven(t *testing.T) {
	const tokens, ring, batches = 8192, 8, 50
	names := []string{"balanced", "zigzag", "contiguous", "doc-zigzag", "whole-doc", "striped:1"}
	for _, left := range []int{attn.Unbounded, 512, 64} {
		all, name := make([]figures, len(names)), fmt.Sprintf("window:%-3d", left)
		if left == attn.Unbounded {
			name = "causal    "
		}
		for seed := range batches {
			starts := batch(uint64(seed), tokens)
			p := balance.Problem{QTokens: tokens, KTokens: tokens, Ring: ring,
				Mask: documents(starts, left)}
			l, _, err := balance.Deal(p)
			if err != nil {
				t.Fatal(err)
			}
			whole, err := mesh.NewWholeDoc(starts, tokens, ring)
			if err != nil {
				t.Fatal(err)
			}
			for n, l := range []mesh.Layout{l, mesh.Zigzag, mesh.Contiguous,
				mesh.DocZigzag{Starts: starts}, whole, mesh.Striped{Size: 1}} {
				r, err := balance.Measure(p, l)
				if err != nil {
					t.Fatal(err)
				}
				all[n].add(r)
				if n == 0 && r.Imbalance > 1.05 {
					t.Errorf("%s, batch %d: %v of the mean", name, seed, r.Imbalance)
				}
			}
		}
		for n, f := range all {
			t.Logf("%s  %-10s  worst %.3f  mean %.3f  steps, worst %.3f  spans %.0f",
				name, names[n], f.worst, f.sum/batches, f.worstSteps, f.spans/batches)
		}
	}
}

// TestWeights: work in proportion, within 5%, above and below.
func TestWeights(t *testing.T) {
	const tokens = 8192
	weights := []float64{1, 1, 0.5, 1, 1, 0.8, 1, 1}
	for seed := range 50 {
		for _, left := range []int{attn.Unbounded, 512} {
			p := balance.Problem{QTokens: tokens, KTokens: tokens, Ring: len(weights),
				Mask: documents(batch(uint64(seed), tokens), left), Weights: weights}
			_, r, err := balance.Deal(p)
			if err != nil {
				t.Fatal(err)
			}
			total := int64(0)
			for _, n := range r.Area {
				total += n
			}
			for c, n := range r.Area {
				want := float64(total) * weights[c] / 7.3
				if math.Abs(float64(n)/want-1) > 0.05 {
					t.Errorf("window %d, batch %d: shard %d of weight %v has %.3f of its part",
						left, seed, c, weights[c], float64(n)/want)
				}
			}
		}
	}
}

// TestPlainMasks: without documents the coarsest cuts are taken: contiguous runs for a full mask,
// zigzag's chunks for a causal one.
func TestPlainMasks(t *testing.T) {
	const tokens, ring = 4096, 8
	for _, tc := range []struct {
		mask attn.Mask
		like mesh.Layout
	}{
		{attn.Full(tokens, tokens), mesh.Contiguous},
		{attn.Causal(tokens, tokens), mesh.Zigzag},
	} {
		p := balance.Problem{QTokens: tokens, KTokens: tokens, Mask: tc.mask, Ring: ring}
		l, _, err := balance.Deal(p)
		if err != nil {
			t.Fatal(err)
		}
		var got, want []string
		for c := range ring {
			got = append(got, fmt.Sprint(l.Shard(tokens, ring, c)))
			want = append(want, fmt.Sprint(tc.like.Shard(tokens, ring, c)))
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("dealt %v, want the shards of %v", got, tc.like)
		}
	}
}

// TestQueriesOfTheirOwn: with keys of another length queries are dealt alone.
func TestQueriesOfTheirOwn(t *testing.T) {
	p := balance.Problem{QTokens: 1000, KTokens: 3000, Ring: 4, Mask: attn.Causal(1000, 3000)}
	l, r, err := balance.Deal(p)
	if err != nil {
		t.Fatal(err)
	}
	if r.Imbalance > 1.02 || r.Steps != nil {
		t.Errorf("%+v", r)
	}
	if err := l.Validate(3000, 4); err == nil || !strings.Contains(err.Error(), "deal these anew") {
		t.Errorf("keys of another length: %v", err)
	}
}

// thousand is 1,000 documents on 64 ranks.
func thousand() balance.Problem {
	const tokens = 64 << 10
	rng := rand.New(rand.NewPCG(1, 7))
	starts := []int{0, tokens}
	for range 999 {
		starts = append(starts, rng.IntN(tokens))
	}
	slices.Sort(starts)
	return balance.Problem{QTokens: tokens, KTokens: tokens, Ring: 64,
		Mask: documents(starts, attn.Unbounded)}
}

// TestManyDocuments: 1,000 documents on 64 ranks are even, also step by step, and are dealt in
// about 0.1 s of CPU time (BenchmarkDeal). The limit is for searches without end: it leaves room
// for the race detector on a machine that is busy.
func TestManyDocuments(t *testing.T) {
	start := time.Now()
	_, r, err := balance.Deal(thousand())
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
	if r.Imbalance > 1.01 || r.StepImbalance > 1.05 {
		t.Errorf("%v of the mean, %v in steps", r.Imbalance, r.StepImbalance)
	}
	t.Logf("%.4f of the mean, %.4f in steps, %d spans", r.Imbalance, r.StepImbalance, r.Spans)
}

func BenchmarkDeal(b *testing.B) {
	p := thousand()
	for b.Loop() {
		if _, _, err := balance.Deal(p); err != nil {
			b.Fatal(err)
		}
	}
}

func TestDealRefuses(t *testing.T) {
	good := balance.Problem{QTokens: 8, KTokens: 8, Ring: 2, Mask: attn.Causal(8, 8)}
	for _, tc := range []struct {
		change func(p *balance.Problem)
		want   string
	}{
		{func(p *balance.Problem) { p.Ring = 0 }, "ring degree 0: use 1 to 65536"},
		{func(p *balance.Problem) { p.Chunks = -1 }, "chunks -1: use 1 to the 8 tokens"},
		{func(p *balance.Problem) { p.Chunks = 9 }, "chunks 9: use 1 to the 8 tokens"},
		{func(p *balance.Problem) { p.Weights = []float64{1} }, "1 weights for a ring of 2"},
		{func(p *balance.Problem) { p.Weights = []float64{1, 0} }, "weight 0 of ring shard 1"},
		{func(p *balance.Problem) { p.Weights = []float64{-1, 1} }, "weight -1 of ring shard 0"},
		{func(p *balance.Problem) { p.Weights = []float64{1, math.NaN()} }, "weight NaN"},
		{func(p *balance.Problem) { p.Weights = []float64{math.Inf(1), 1} }, "weight +Inf"},
		{func(p *balance.Problem) { p.Weights = []float64{1, 1e-6} }, "1/1024 of the largest"},
		{func(p *balance.Problem) { p.Mask = attn.Causal(9, 8) }, "its queries must be a range"},
	} {
		p := good
		tc.change(&p)
		_, _, err := balance.Deal(p)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("refused with %v, want %q", err, tc.want)
		}
		if _, err := balance.Measure(p, mesh.Zigzag); err == nil {
			t.Errorf("measured what is refused: %q", tc.want)
		}
	}
	if _, err := balance.Measure(good, mesh.Striped{}); err == nil {
		t.Error("measured a layout that refuses the problem")
	}
	for _, chunks := range []int{1, 2, 8} {
		p := good
		p.Chunks = chunks
		if _, r, err := balance.Deal(p); err != nil || r.Tokens[0]+r.Tokens[1] != 8 {
			t.Errorf("%d chunks: %+v, %v", chunks, r, err)
		}
	}
}
