package attn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kvloom/kvloom/mesh"
)

// results are the tensors of a problem, each in its own global shape.
type results[T Float] struct{ out, lse, dq, dk, dv, dsink []T }

// rounded gives the values of a in T, and puts the rounded values back into a, so that the oracle
// sees the same inputs.
func rounded[T Float](a []float64) []T {
	b := make([]T, len(a))
	for n, x := range a {
		b[n] = T(x)
		a[n] = float64(b[n])
	}
	return b
}

// gather takes heads [h0,h1) of the tokens of set out of a tensor [tokens, heads, dim].
func gather[T any](all []T, heads, dim int, set mesh.Set, h0, h1 int) []T {
	var part []T
	for _, i := range set.Positions() {
		part = append(part, all[(i*heads+h0)*dim:(i*heads+h1)*dim]...)
	}
	return part
}

// scatterAdd adds part, heads [h0,h1) of the tokens of set, to a tensor [tokens, heads, dim].
func scatterAdd[T Float](all, part []T, heads, dim int, set mesh.Set, h0, h1 int) {
	for r, i := range set.Positions() {
		Accumulate(all[(i*heads+h0)*dim:(i*heads+h1)*dim], part[r*(h1-h0)*dim:][:(h1-h0)*dim])
	}
}

// blockwise computes a problem in blocks: query sets x key sets, the keys in the order given, for
// each run of heads; out shares acc's place.
type blockwise[T Float] struct {
	p       *Problem
	q, k, v []T
	do      []T
	sink    []T
	qCuts   []mesh.Set
	kCuts   []mesh.Set
	heads   int // number of runs that the query heads are cut into
}

func (w *blockwise[T]) run(t *testing.T) results[T] {
	t.Helper()
	p := w.p
	res := results[T]{
		out: make([]T, len(w.do)), lse: make([]T, p.QTokens*p.QHeads),
		dq: make([]T, len(w.q)), dk: make([]T, len(w.k)), dv: make([]T, len(w.v)),
		dsink: make([]T, len(w.sink)),
	}
	for n := range w.heads {
		h0, h1 := mesh.CutEven(p.QHeads, w.heads, n)
		for _, qs := range w.qCuts {
			w.rows(t, qs, h0, h1, &res)
		}
	}
	return res
}

// rows computes one query set and one run of heads, as one rank would.
func (w *blockwise[T]) rows(t *testing.T, qs mesh.Set, h0, h1 int, res *results[T]) {
	t.Helper()
	p := w.p
	group := p.QHeads / p.KHeads
	g0, g1 := h0/group, (h1-1)/group+1
	size := qs.Len() * (h1 - h0)
	s := State[T]{Acc: make([]T, size*p.DV), M: make([]T, size), L: make([]T, size)}
	for n := range s.Acc {
		s.Acc[n] = T(math.NaN()) // slots are not zeroed for us
	}
	FreshState(s)
	blocks := make([]Block[T], len(w.kCuts))
	for n, ks := range w.kCuts {
		blocks[n] = Block[T]{
			QSpans: qs, KSpans: ks, QHeads: h1 - h0, KHeads: g1 - g0, QHead0: h0, KHead0: g0,
			Group: group, D: p.D, DV: p.DV, Scale: p.Scale, SoftCap: p.SoftCap, Mask: p.Mask,
			Q: gather(w.q, p.QHeads, p.D, qs, h0, h1),
			K: gather(w.k, p.KHeads, p.D, ks, g0, g1),
			V: gather(w.v, p.KHeads, p.DV, ks, g0, g1),
		}
		if err := blocks[n].Validate(); err != nil {
			t.Fatal(err)
		}
		Forward(&blocks[n], s)
	}
	out, lse := s.Acc, s.M
	var sink []T
	if w.sink != nil {
		sink = w.sink[h0:h1]
	}
	Finalize(p.DV, s, sink, out, lse)
	g := Grad[T, T]{
		DO: gather(w.do, p.QHeads, p.DV, qs, h0, h1), LSE: lse, Delta: make([]T, size),
		DQ: make([]T, size*p.D),
	}
	Delta(p.DV, g.DO, out, g.Delta)
	dsink := make([]T, len(sink))
	SinkGrad(lse, g.Delta, sink, dsink)
	if sink != nil {
		Accumulate(res.dsink[h0:h1], dsink)
	}
	for n := range blocks {
		b := &blocks[n]
		g.DK, g.DV = make([]T, len(b.K)), make([]T, len(b.V))
		for n := range g.DK {
			g.DK[n] = T(math.NaN()) // the partial is set, not added to
		}
		Backward(b, g)
		scatterAdd(res.dk, g.DK, p.KHeads, p.D, b.KSpans, g0, g1)
		scatterAdd(res.dv, g.DV, p.KHeads, p.DV, b.KSpans, g0, g1)
	}
	scatterAdd(res.out, out, p.QHeads, p.DV, qs, h0, h1)
	scatterAdd(res.lse, lse, p.QHeads, 1, qs, h0, h1)
	scatterAdd(res.dq, g.DQ, p.QHeads, p.D, qs, h0, h1)
}

// cuts gives four ways to cut n tokens: whole, runs in reverse, zigzag pairs, interleaved stripes.
func cuts(n int) [][]mesh.Set {
	var runs, zigzag, stripes []mesh.Set
	for c := range 4 {
		if lo, hi := mesh.CutEven(n, 4, 3-c); lo < hi {
			runs = append(runs, mesh.Set{{Start: lo, Stride: 1, Count: hi - lo}})
		}
		var pair mesh.Set
		for _, chunk := range []int{c, 7 - c} {
			if lo, hi := mesh.CutEven(n, 8, chunk); lo < hi {
				pair = append(pair, mesh.Span{Start: lo, Stride: 1, Count: hi - lo})
			}
		}
		zigzag = append(zigzag, pair) // may be empty: a rank that owns nothing
		if c < 3 && c < n {
			stripes = append(stripes, mesh.Set{{Start: c, Stride: 3, Count: (n-1-c)/3 + 1}})
		}
	}
	return [][]mesh.Set{{{{Start: 0, Stride: 1, Count: n}}}, runs, zigzag, stripes}
}

// gates are the largest relative errors of out, lse and of dq, dk, dv.
type gates struct{ out, grad float64 }

func checkBlocks[T Float](t *testing.T, rng *rand.Rand, p *Problem, ways int, gate gates) {
	t.Helper()
	w := blockwise[T]{
		p: p, q: rounded[T](p.Q), k: rounded[T](p.K), v: rounded[T](p.V),
		do: rounded[T](normal(rng, p.QTokens*p.QHeads*p.DV, 1)),
	}
	do := make([]float64, len(w.do))
	for n, x := range w.do {
		do[n] = float64(x)
	}
	if p.Sink != nil {
		w.sink = rounded[T](p.Sink)
	}
	out, lse := Dense(p, nil)
	dq, dk, dv, dsink := DenseBackward(p, do, out, lse, nil)
	for way := range ways {
		qs, ks := cuts(p.QTokens), cuts(p.KTokens)
		w.qCuts, w.kCuts = qs[way%len(qs)], ks[(way+way/len(qs))%len(ks)]
		w.heads = min(1+way%3, p.QHeads)
		res := w.run(t)
		name := fmt.Sprintf("%dx%d tokens, heads %d/%d, cut %d, %d head runs: ",
			p.QTokens, p.KTokens, p.QHeads, p.KHeads, way, w.heads)
		within64(t, name+"out", res.out, out, gate.out)
		within64(t, name+"lse", res.lse, lse, gate.out)
		within64(t, name+"dq", res.dq, dq, gate.grad)
		within64(t, name+"dk", res.dk, dk, gate.grad)
		within64(t, name+"dv", res.dv, dv, gate.grad)
		within64(t, name+"dsink", res.dsink, dsink, gate.grad)
	}
}

var testHeads = [][2]int{{8, 2}, {6, 3}, {5, 5}, {8, 1}}

func TestBlocksEqualDenseF64(t *testing.T) {
	rng := rand.New(rand.NewPCG(20, 1))
	gate := gates{1e-13, 1e-13}
	for n, s := range []int{1, 2, 5, 31, 97} {
		for name, m := range testMasks(s, s) {
			heads := testHeads[(n+len(name))%len(testHeads)]
			p := newProblem(rng, s, s, heads[0], heads[1], 4, 3, m)
			checkBlocks[float64](t, rng, p, 8, gate)
			checkBlocks[float64](t, rng, extras(p)["capped"], 3, gate)
			checkBlocks[float64](t, rng, extras(p)["sink"], 3, gate)
		}
	}
	for _, heads := range testHeads {
		p := newProblem(rng, 13, 29, heads[0], heads[1], 3, 5, Causal(13, 29))
		checkBlocks[float64](t, rng, p, 16, gate)
	}
}

func TestBlocksEqualDenseF32(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 1))
	gate := gates{1e-6, 5e-6}
	for n, s := range []int{1, 2, 5, 31, 97} {
		for _, name := range []string{"causal", "full", "late", "none"} {
			heads := testHeads[(n+len(name))%len(testHeads)]
			p := newProblem(rng, s, s, heads[0], heads[1], 16, 8, testMasks(s, s)[name])
			checkBlocks[float32](t, rng, p, 4, gate)
			checkBlocks[float32](t, rng, extras(p)["capped, sink"], 2, gate)
		}
	}
	checkBlocks[float32](t, rng, newProblem(rng, 512, 512, 2, 1, 16, 16, Causal(512, 512)), 3, gate)
}

// TestLongRowsStayExactF32: the error of out does not grow with the keys of a block.
func TestLongRowsStayExactF32(t *testing.T) {
	rng := rand.New(rand.NewPCG(25, 1))
	p := newProblem(rng, 8, 8192, 2, 1, 8, 8, Full(8, 8192))
	checkBlocks[float32](t, rng, p, 1, gates{6e-7, 5e-6})
}

// TestFieldLargeLogits is [merge] "q, k scaled by 40": finite, and inside the gate that grows with
// the logits. Softmax is nearly one-hot here and dq nearly 0 but in rows whose two best keys all
// but tie, one in some 500: with fewer rows than these, its norm says nothing.
func TestFieldLargeLogits(t *testing.T) {
	rng := rand.New(rand.NewPCG(22, 1))
	for _, m := range []Mask{Causal(257, 257), Full(257, 257)} {
		p := newProblem(rng, 257, 257, 8, 2, 16, 16, m)
		for n := range p.Q {
			p.Q[n] *= 40
		}
		for n := range p.K {
			p.K[n] *= 40
		}
		top := MaxLogit(p, nil)
		if top < 1000 {
			t.Fatalf("largest logit %v: the case is too tame", top)
		}
		gate := gates{Gate(BaseF32, top), Gate(BaseF32, top)}
		checkBlocks[float32](t, rng, p, 3, gate)
		gate = gates{Gate(BaseF64, top), Gate(BaseF64, top)}
		checkBlocks[float64](t, rng, p, 2, gate)
	}
}

// TestPartialsMergeToTheState: finished partials of blocks, merged, are what one state carried
// through them finishes as.
func TestPartialsMergeToTheState(t *testing.T) {
	rng := rand.New(rand.NewPCG(23, 1))
	p := newProblem(rng, 31, 31, 4, 2, 8, 6, Causal(31, 31))
	wantOut, wantLSE := Dense(p, nil)
	whole := mesh.Set{{Start: 0, Stride: 1, Count: 31}}
	size := 31 * 4
	out, lse := make([]float64, size*6), make([]float64, size)
	for n := range lse {
		lse[n] = math.Inf(-1)
	}
	for _, ks := range cuts(31)[1] {
		s := State[float64]{
			Acc: make([]float64, size*6), M: make([]float64, size), L: make([]float64, size),
		}
		FreshState(s)
		Forward(&Block[float64]{
			QSpans: whole, KSpans: ks, QHeads: 4, KHeads: 2, Group: 2, D: 8, DV: 6, Scale: p.Scale,
			Mask: p.Mask, Q: p.Q, K: gather(p.K, 2, 8, ks, 0, 2), V: gather(p.V, 2, 6, ks, 0, 2),
		}, s)
		blockOut, blockLSE := make([]float64, size*6), make([]float64, size)
		Finalize(6, s, nil, blockOut, blockLSE)
		Merge(out, lse, blockOut, blockLSE)
	}
	within64(t, "out", out, wantOut, 1e-14)
	within64(t, "lse", lse, wantLSE, 1e-14)
}

// TestBlockKeepsNaN: a NaN that is attended reaches the result, one that is masked does not.
func TestBlockKeepsNaN(t *testing.T) {
	nan := math.NaN()
	span := mesh.Set{{Start: 0, Stride: 1, Count: 2}}
	b := Block[float64]{
		QSpans: span, KSpans: span, QHeads: 1, KHeads: 1, Group: 1, D: 1, DV: 1, Scale: 1,
		Mask: Causal(2, 2), Q: []float64{1, 1}, K: []float64{1, nan}, V: []float64{1, 1},
	}
	s := State[float64]{Acc: make([]float64, 2), M: make([]float64, 2), L: make([]float64, 2)}
	FreshState(s)
	Forward(&b, s)
	Finalize(1, s, nil, s.Acc, s.M)
	if s.Acc[0] != 1 || s.M[0] != 1 {
		t.Errorf("row 0 is %v, lse %v: it may not see key 1", s.Acc[0], s.M[0])
	}
	if !math.IsNaN(s.Acc[1]) || !math.IsNaN(s.M[1]) {
		t.Errorf("row 1 is %v, lse %v: the NaN of key 1 was swallowed", s.Acc[1], s.M[1])
	}
}

// TestBlockLogitsBelowFloat32: logits that overflow to -Inf leave a row without weight, as if it
// saw no key, and backward then reads nothing of it.
func TestBlockLogitsBelowFloat32(t *testing.T) {
	nan := float32(math.NaN())
	span := mesh.Set{{Start: 0, Stride: 1, Count: 1}}
	b := Block[float32]{
		QSpans: span, KSpans: span, QHeads: 1, KHeads: 1, Group: 1, D: 1, DV: 1, Scale: 1,
		Mask: Full(1, 1), Q: []float32{-1e30}, K: []float32{1e30}, V: []float32{1},
	}
	s := State[float32]{Acc: make([]float32, 1), M: make([]float32, 1), L: make([]float32, 1)}
	FreshState(s)
	Forward(&b, s)
	out, lse := []float32{nan}, []float32{nan}
	Finalize(1, s, nil, out, lse)
	if out[0] != 0 || !math.IsInf(float64(lse[0]), -1) {
		t.Errorf("out %v, lse %v, want 0 and -inf", out[0], lse[0])
	}
	g := Grad[float32, float32]{
		DO: []float32{nan}, LSE: lse, Delta: []float32{nan}, DQ: []float32{3},
		DK: []float32{nan}, DV: []float32{nan},
	}
	Backward(&b, g)
	if g.DQ[0] != 3 || g.DK[0] != 0 || g.DV[0] != 0 {
		t.Errorf("dq %v, dk %v, dv %v, want 3 as it was, 0 and 0", g.DQ[0], g.DK[0], g.DV[0])
	}
}

// TestWrongLengthsPanic: the caller's mistakes are named, never read past or cut short.
func TestWrongLengthsPanic(t *testing.T) {
	p := newProblem(rand.New(rand.NewPCG(24, 1)), 2, 2, 1, 1, 1, 1, Full(2, 2))
	two, one := make([]float64, 2), make([]float64, 1)
	calls := map[string]func(){
		"accumulate":       func() { Accumulate(two, one) },
		"widen":            func() { Widen(two, []BF16{1}) },
		"narrow":           func() { Narrow([]BF16{1}, two) },
		"compare":          func() { Compare(two, one) },
		"merge rows":       func() { Merge(two, two, one, one) },
		"merge no rows":    func() { Merge(one, nil, one, nil) },
		"rows backward":    func() { RowsBackward(p, two, two, two, []int{0}, nil) },
		"keys backward":    func() { KeysBackward(p, two, one, one, []int{0}, nil) },
		"backward without": func() { DenseBackward(p, nil, two, two, nil) },
	}
	for name, call := range calls {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, "attn: ") {
					t.Errorf("%s: panic %q, want one that begins with attn:", name, text)
				}
			}()
			call()
		}()
	}
	Merge([]float64{}, nil, nil, nil)
}

func TestBlockErrors(t *testing.T) {
	good := func() *Block[float32] {
		return &Block[float32]{
			QSpans: mesh.Set{{Start: 0, Stride: 1, Count: 2}}, QHeads: 3, QHead0: 3, KHeads: 2,
			KHead0: 0, Group: 4, D: 2, DV: 1, Q: make([]float32, 12),
		}
	}
	cases := []struct {
		want   string
		change func(b *Block[float32])
	}{
		{"", func(*Block[float32]) {}},
		{"query heads [3,6) read held KV heads 0 to 1, of which [0,1)",
			func(b *Block[float32]) { b.KHeads = 1 }},
		{"read held KV heads -1 to 0", func(b *Block[float32]) { b.KHead0 = 1 }},
		{"group 0", func(b *Block[float32]) { b.Group = 0 }},
		{"soft cap is -2", func(b *Block[float32]) { b.SoftCap = -2 }},
		{"q, k, v have 11, 0, 0 values", func(b *Block[float32]) { b.Q = b.Q[:11] }},
		{"shapes need 12, 4, 2", func(b *Block[float32]) {
			b.KSpans = mesh.Set{{Start: 5, Stride: 1, Count: 1}}
		}},
	}
	for _, c := range cases {
		b := good()
		c.change(b)
		err := b.Validate()
		if c.want == "" && err != nil {
			t.Errorf("valid block refused: %v", err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}
