package attn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
)

// newProblem draws a problem with scale 1/sqrt(d) and N(0,1) inputs.
func newProblem(rng *rand.Rand, q, k, heads, kvHeads, d, dv int, m Mask) *Problem {
	return &Problem{
		QTokens: q, KTokens: k, QHeads: heads, KHeads: kvHeads, D: d, DV: dv,
		Scale: 1 / math.Sqrt(float64(d)), Mask: m,
		Q: normal(rng, q*heads*d, 1), K: normal(rng, k*kvHeads*d, 1),
		V: normal(rng, k*kvHeads*dv, 1),
	}
}

// testMasks are masks for q queries and k keys: some leave rows or keys out altogether.
func testMasks(q, k int) map[string]Mask {
	const u = Unbounded
	return map[string]Mask{
		"full":   Full(q, k),
		"causal": Causal(q, k),
		"band":   {{0, q, 0, k, -3, 1}},
		"late":   {{q / 2, q, k / 3, k, -u, u}},
		"none":   nil,
		"documents": {
			{0, q / 3, 0, k / 3, -u, 0},
			{q / 3, q, k / 3, k, -u, 0},
			{q / 3, q, 0, k / 3, -u, -q / 2},
		},
		"inverse": {{0, q, 0, k, 0, u}},
	}
}

// extras are a problem with and without a soft cap and sinks, one of which is none.
func extras(p *Problem) map[string]*Problem {
	all := map[string]*Problem{"plain": p}
	sink := make([]float64, p.QHeads)
	for h := range sink {
		sink[h] = float64(h) - 1.5
	}
	if len(sink) > 1 {
		sink[len(sink)-1] = math.Inf(-1)
	}
	for _, c := range []struct {
		name string
		cap  float64
		sink []float64
	}{{"capped", 0.8, nil}, {"sink", 0, sink}, {"capped, sink", 1.3, sink}} {
		with := *p
		with.SoftCap, with.Sink = c.cap, c.sink
		all[c.name] = &with
	}
	return all
}

// definition is attention read off the formula, one number at a time, to hold Dense against.
func definition(p *Problem) (out, lse []float64) {
	out, lse = make([]float64, p.QTokens*p.QHeads*p.DV), make([]float64, p.QTokens*p.QHeads)
	for i := range p.QTokens {
		for h := range p.QHeads {
			g, x, sum := h*p.KHeads/p.QHeads, i*p.QHeads+h, 0.0
			if p.Sink != nil {
				sum = math.Exp(p.Sink[h])
			}
			for j := range p.KTokens {
				if !p.Mask.Allows(i, j) {
					continue
				}
				s := 0.0
				for d := range p.D {
					s += p.Q[x*p.D+d] * p.K[(j*p.KHeads+g)*p.D+d]
				}
				s *= p.Scale
				if p.SoftCap != 0 {
					s = p.SoftCap * math.Tanh(s/p.SoftCap)
				}
				w := math.Exp(s)
				sum += w
				for d := range p.DV {
					out[x*p.DV+d] += w * p.V[(j*p.KHeads+g)*p.DV+d]
				}
			}
			lse[x] = math.Log(sum)
			for d := range p.DV {
				if sum > 0 {
					out[x*p.DV+d] /= sum
				}
			}
		}
	}
	return out, lse
}

func TestDenseEqualsTheDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, size := range [][2]int{{1, 1}, {2, 5}, {7, 3}, {31, 31}} {
		for name, m := range testMasks(size[0], size[1]) {
			for _, heads := range [][2]int{{1, 1}, {6, 3}, {8, 1}} {
				plain := newProblem(rng, size[0], size[1], heads[0], heads[1], 5, 3, m)
				for extra, p := range extras(plain) {
					if err := p.Validate(); err != nil {
						t.Fatalf("%v %s %s: %v", size, name, extra, err)
					}
					out, lse := Dense(p, nil)
					wantOut, wantLSE := definition(p)
					id := fmt.Sprint(size, name, heads, extra)
					within64(t, id+" out", out, wantOut, 1e-14)
					within64(t, id+" lse", lse, wantLSE, 1e-14)
				}
			}
		}
	}
}

// within64 fails the test when got is further than gate from ref.
func within64[T Float](t *testing.T, name string, got []T, ref []float64, gate float64) {
	t.Helper()
	if e := Compare(got, ref); !e.OK(gate) {
		t.Errorf("%s: %+v, gate %g", name, e, gate)
	}
}

// TestBackwardEqualsFiniteDifferences takes central differences of sum(do * out) in every element.
func TestBackwardEqualsFiniteDifferences(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for name, m := range testMasks(5, 6) {
		plain := newProblem(rng, 5, 6, 4, 2, 3, 2, m)
		for extra, p := range extras(plain) {
			checkDifferences(t, name+" "+extra, p, normal(rng, p.QTokens*p.QHeads*p.DV, 1))
		}
	}
}

func checkDifferences(t *testing.T, name string, p *Problem, do []float64) {
	t.Helper()
	out, lse := Dense(p, nil)
	dq, dk, dv, dsink := DenseBackward(p, do, out, lse, nil)
	if (dsink == nil) != (p.Sink == nil) {
		t.Errorf("%s: dsink %v for sinks %v", name, dsink, p.Sink)
	}
	for _, v := range []struct {
		name    string
		x, grad []float64
	}{{"dq", p.Q, dq}, {"dk", p.K, dk}, {"dv", p.V, dv}, {"dsink", p.Sink, dsink}} {
		diff := make([]float64, len(v.x))
		for n, x := range v.x {
			const step = 1e-5
			v.x[n] = x + step
			up, _ := Dense(p, nil)
			v.x[n] = x - step
			down, _ := Dense(p, nil)
			v.x[n] = x
			diff[n] = (dot(do, up) - dot(do, down)) / (2 * step)
		}
		within64(t, name+" "+v.name, v.grad, diff, 1e-8)
	}
}

func TestSamplesAreTheDenseBits(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for name, m := range testMasks(40, 37) {
		p := extras(newProblem(rng, 40, 37, 6, 3, 5, 4, m))["capped, sink"]
		do := normal(rng, p.QTokens*p.QHeads*p.DV, 1)
		out, lse := Dense(p, nil)
		dq, dk, dv, _ := DenseBackward(p, do, out, lse, nil)
		rows, keys := []int{39, 0, 17, 16, 20}, []int{36, 5, 0}
		rowOut, rowLSE := DenseRows(p, rows, nil)
		rowDQ := RowsBackward(p, do, rowOut, rowLSE, rows, nil)
		keyDK, keyDV := KeysBackward(p, do, out, lse, keys, nil)
		sameRows(t, name+" out", rowOut, out, rows)
		sameRows(t, name+" lse", rowLSE, lse, rows)
		sameRows(t, name+" dq", rowDQ, dq, rows)
		sameRows(t, name+" dk", keyDK, dk, keys)
		sameRows(t, name+" dv", keyDV, dv, keys)
	}
}

// sameRows fails unless part holds exactly the named rows of all.
func sameRows(t *testing.T, name string, part, all []float64, rows []int) {
	t.Helper()
	width := len(part) / len(rows)
	for n, r := range rows {
		for d := range width {
			if got, want := part[n*width+d], all[r*width+d]; got != want {
				t.Fatalf("%s: row %d, place %d is %v, dense has %v", name, r, d, got, want)
			}
		}
	}
}

func TestParallelGivesTheSameBits(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	p := newProblem(rng, 61, 61, 4, 2, 8, 8, Causal(61, 61))
	do := normal(rng, p.QTokens*p.QHeads*p.DV, 1)
	items := 0
	par := func(n int, do func(i int)) {
		items += n
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() { do(n - 1 - i) })
		}
		wg.Wait()
	}
	out, lse := Dense(p, nil)
	dq, dk, dv, _ := DenseBackward(p, do, out, lse, nil)
	parOut, parLSE := Dense(p, par)
	parDQ, parDK, parDV, _ := DenseBackward(p, do, parOut, parLSE, par)
	all := firstN(61)
	sameRows(t, "out", parOut, out, all)
	sameRows(t, "lse", parLSE, lse, all)
	sameRows(t, "dq", parDQ, dq, all)
	sameRows(t, "dk", parDK, dk, all)
	sameRows(t, "dv", parDV, dv, all)
	if a, b := MaxLogit(p, par), MaxLogit(p, nil); a != b || a == 0 {
		t.Errorf("largest logit %v in parallel, %v alone", a, b)
	}
	if items != 4*4 {
		t.Errorf("ran %d items, want 4 calls of 4", items)
	}
}

func TestRowsWithoutKeys(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	// Rows 0 to 3 and keys 5 to 7 are left out, and hold NaN everywhere.
	p := newProblem(rng, 8, 8, 2, 1, 4, 3, Mask{{4, 8, 0, 5, -Unbounded, Unbounded}})
	do := normal(rng, p.QTokens*p.QHeads*p.DV, 1)
	nan := math.NaN()
	for _, a := range [][]float64{p.Q[:4*2*4], p.K[5*4:], p.V[5*3:], do[:4*2*3]} {
		for n := range a {
			a[n] = nan
		}
	}
	out, lse := Dense(p, nil)
	dq, dk, dv, _ := DenseBackward(p, do, out, lse, nil)
	for n, x := range lse[:4*2] {
		if !math.IsInf(x, -1) {
			t.Errorf("lse[%d] = %v, want -inf", n, x)
		}
	}
	zero := func(name string, a []float64) {
		for n, x := range a {
			if x != 0 {
				t.Errorf("%s[%d] = %v, want 0", name, n, x)
			}
		}
	}
	zero("out", out[:4*2*3])
	zero("dq", dq[:4*2*4])
	zero("dk", dk[5*4:])
	zero("dv", dv[5*3:])
	for _, a := range [][]float64{out, dq, dk, dv, lse[4*2:], {MaxLogit(p, nil)}} {
		for _, x := range a {
			if math.IsNaN(x) {
				t.Fatal("a NaN that nobody may see came through")
			}
		}
	}
}

// TestLogitsBelowFloat64: logits that overflow to -Inf leave a row without weight, as if it saw no
// key, and backward then reads nothing of it.
func TestLogitsBelowFloat64(t *testing.T) {
	p := &Problem{
		QTokens: 1, KTokens: 1, QHeads: 1, KHeads: 1, D: 1, DV: 1, Scale: 1, Mask: Full(1, 1),
		Q: []float64{-1e200}, K: []float64{1e200}, V: []float64{1},
	}
	out, lse := Dense(p, nil)
	if out[0] != 0 || !math.IsInf(lse[0], -1) {
		t.Errorf("out %v, lse %v, want 0 and -inf", out[0], lse[0])
	}
	dq, dk, dv, _ := DenseBackward(p, []float64{math.NaN()}, out, lse, nil)
	if dq[0] != 0 || dk[0] != 0 || dv[0] != 0 {
		t.Errorf("dq %v, dk %v, dv %v, want 0", dq[0], dk[0], dv[0])
	}
}

func TestMaxLogit(t *testing.T) {
	p := &Problem{
		QTokens: 2, KTokens: 2, QHeads: 1, KHeads: 1, D: 1, DV: 1, Scale: 0.5, Mask: Causal(2, 2),
		Q: []float64{3, -4}, K: []float64{2, 10}, V: []float64{0, 0},
	}
	if got := MaxLogit(p, nil); got != 20 {
		t.Errorf("largest logit %v, want |0.5 * -4 * 10|", got)
	}
	if got := MaxLogitRows(p, []int{0}, nil); got != 3 {
		t.Errorf("largest logit of row 0 is %v, want 3: key 1 is masked", got)
	}
	p.SoftCap, p.Sink = 5, []float64{math.Inf(-1)}
	if got := MaxLogit(p, nil); got != 20 {
		t.Errorf("largest logit %v, want 20, as before the cap", got)
	}
	p.Sink[0] = -21
	if got := MaxLogit(p, nil); got != 21 {
		t.Errorf("largest logit %v, want that of the sink, 21", got)
	}
	p.SoftCap, p.Sink = 0, nil
	p.K[0] = math.NaN()
	if got := MaxLogit(p, nil); !math.IsNaN(got) {
		t.Errorf("largest logit %v, want NaN", got)
	}
}

func TestProblemErrors(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	cases := []struct {
		want   string
		change func(p *Problem)
	}{
		{"", func(*Problem) {}},
		{"0 query tokens", func(p *Problem) { p.QTokens = 0 }},
		{"-1 key tokens", func(p *Problem) { p.KTokens = -1 }},
		{"0 dim", func(p *Problem) { p.D = 0 }},
		{"0 value dim", func(p *Problem) { p.DV = 0 }},
		{"0 KV heads", func(p *Problem) { p.KHeads = 0 }},
		{"3 KV heads do not divide 4 query heads", func(p *Problem) { p.KHeads = 3 }},
		{"scale is NaN", func(p *Problem) { p.Scale = math.NaN() }},
		{"scale is +Inf", func(p *Problem) { p.Scale = math.Inf(1) }},
		{"q has 3 values, its shape needs 40", func(p *Problem) { p.Q = p.Q[:3] }},
		{"k has", func(p *Problem) { p.K = nil }},
		{"v has", func(p *Problem) { p.V = append(p.V, 0) }},
		{"soft cap is -1: it must be finite", func(p *Problem) { p.SoftCap = -1 }},
		{"soft cap is NaN", func(p *Problem) { p.SoftCap = math.NaN() }},
		{"soft cap is +Inf", func(p *Problem) { p.SoftCap = math.Inf(1) }},
		{"3 sinks for 4 query heads", func(p *Problem) { p.Sink = make([]float64, 3) }},
		{"0 sinks for 4 query heads", func(p *Problem) { p.Sink = []float64{} }},
		{"sink of head 2 is NaN", func(p *Problem) { p.Sink = []float64{0, 0, math.NaN(), 0} }},
		{"sink of head 0 is +Inf", func(p *Problem) { p.Sink = []float64{math.Inf(1), 0, 0, 0} }},
		{"", func(p *Problem) { p.SoftCap, p.Sink = 30, []float64{0, math.Inf(-1), -9, 9} }},
		{"slice 0", func(p *Problem) { p.Mask = Full(6, 5) }},
	}
	for _, c := range cases {
		p := newProblem(rng, 5, 5, 4, 2, 2, 2, Full(5, 5))
		c.change(p)
		err := p.Validate()
		if c.want == "" && err != nil {
			t.Errorf("valid problem refused: %v", err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}

func BenchmarkDense(b *testing.B) {
	rng := rand.New(rand.NewPCG(15, 16))
	p := newProblem(rng, 1024, 1024, 8, 2, 64, 64, Causal(1024, 1024))
	do := normal(rng, p.QTokens*p.QHeads*p.DV, 1)
	out, lse := Dense(p, nil)
	madds := float64(p.Mask.TotalPairs()) * float64(p.QHeads*p.D)
	b.Run("forward", func(b *testing.B) {
		for b.Loop() {
			Dense(p, nil)
		}
		b.ReportMetric(4*madds*float64(b.N)/b.Elapsed().Seconds()/1e9, "gflops")
	})
	b.Run("backward", func(b *testing.B) {
		for b.Loop() {
			DenseBackward(p, do, out, lse, nil)
		}
		b.ReportMetric(10*madds*float64(b.N)/b.Elapsed().Seconds()/1e9, "gflops")
	})
}
