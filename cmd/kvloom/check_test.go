package main

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kvloom/kvloom"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/internal/tensors"
	"github.com/kvloom/kvloom/mesh"
	"pgregory.net/rapid"
)

// exact is a small problem with its oracle's results in place of a run's.
func exact(t *testing.T) (*request, kvloom.Inputs[float64], kvloom.Outputs[float64]) {
	t.Helper()
	r := &request{
		tokens: 40, heads: 4, kvHeads: 2, dim: 8, vDim: 8, dtype: tensors.F64, scale: 0.3, seed: 5,
		mask: attn.Causal(40, 40), mesh: mesh.Mesh{Head: 1, Ring: 1}, backward: true,
		check: checkAuto, sink: true, softCap: 3,
	}
	in, err := loadInputs[float64](r)
	if err != nil {
		t.Fatal(err)
	}
	p := &attn.Problem{
		QTokens: 40, KTokens: 40, QHeads: 4, KHeads: 2, D: 8, DV: 8, Scale: 0.3, SoftCap: r.softCap,
		Sink: in.Sink, Mask: attn.Causal(40, 40), Q: in.Q, K: in.K, V: in.V,
	}
	var out kvloom.Outputs[float64]
	out.Out, out.LSE = attn.Dense(p, nil)
	out.DQ, out.DK, out.DV, out.DSink = attn.DenseBackward(p, in.DO, out.Out, out.LSE, nil)
	return r, in, out
}

func TestCheckFindsWrongNumbers(t *testing.T) {
	r, in, out := exact(t)
	check := func() *verdict {
		v, err := checkResults(t.Context(), r, in, out, nil)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := check(); !v.Pass || v.problem() != nil || v.Sampled || v.Gate != attn.BaseF64 {
		t.Fatalf("the oracle's own numbers: %+v, %v", v, v.problem())
	}
	for name, data := range map[string][]float64{
		"out": out.Out, "lse": out.LSE, "dq": out.DQ, "dk": out.DK, "dv": out.DV,
		"dsink": out.DSink,
	} {
		for _, wrong := range []float64{data[3] + 1e-6, math.NaN(), math.Inf(1)} {
			right := data[3]
			data[3] = wrong
			v := check()
			data[3] = right
			if v.Pass || v.problem() == nil {
				t.Errorf("%s with %v for %v passes", name, wrong, right)
			}
			for _, c := range v.tensors() {
				if bad := !(c.Rel <= v.Gate); bad != (c.name == name) {
					t.Errorf("%s with %v: %s is judged bad: %v", name, wrong, c.name, bad)
				}
			}
		}
	}
	if v := check(); !v.Pass {
		t.Error("the numbers were not put back")
	}
}

func TestSamplesAgreeWithDense(t *testing.T) {
	r, in, out := exact(t)
	o := &oracle[float64]{
		problem: attn.Problem{
			QTokens: 40, KTokens: 40, QHeads: 4, KHeads: 2, D: 8, DV: 8, Scale: 0.3,
			SoftCap: r.softCap, Sink: in.Sink, Mask: r.mask, Q: in.Q, K: in.K, V: in.V,
		},
		do: in.DO, have: out, backward: true,
	}
	rows, keys := []int{3, 17, 39}, []int{0, 20}
	v := &verdict{}
	o.sampled(v, rows, keys)
	for _, c := range v.tensors() {
		if c.Rel != 0 || c.MaxAbs != 0 {
			t.Errorf("%s: a sample of the oracle is off by %v", c.name, c.Rel)
		}
	}
	if len(v.tensors()) != 6 {
		t.Errorf("%d tensors were compared, want 6", len(v.tensors()))
	}
	out.DSink[2]++
	out.DQ[17*4*8]++
	out.DV[20*2*8]++
	o.sampled(v, rows, keys)
	if v.DSink.Rel == 0 || v.DQ.Rel == 0 || v.DV.Rel == 0 || v.DK.Rel != 0 || v.Out.Rel != 0 {
		t.Errorf("wrong dq of row 17 and dv of key 20 give %+v %+v", *v.DQ, *v.DV)
	}
}

// TestGates: those of the contract, by dtype and tensor.
func TestGates(t *testing.T) {
	for _, c := range []struct {
		dtype        tensors.DType
		narrow       bool
		out, dq, dkv float64
	}{
		{tensors.F32, false, 1e-5, 1e-5, 1e-5}, {tensors.F32, true, 1e-5, 1e-5, 2e-2},
		{tensors.F64, false, 1e-12, 1e-12, 1e-12}, {tensors.BF16, false, 8e-3, 2e-2, 2e-2},
		{tensors.BF16, true, 8e-3, 2e-2, 2e-2},
	} {
		r := &request{dtype: c.dtype}
		r.options.NarrowDKV = c.narrow
		for name, want := range map[string]float64{"out": c.out, "lse": c.out, "dq": c.dq,
			"dk": c.dkv, "dv": c.dkv, "dsink": c.dq} {
			if got := r.gateOf(name); got != want {
				t.Errorf("%v, narrow %v: %s has the gate %v, want %v", c.dtype, c.narrow, name,
					got, want)
			}
		}
	}
	v := &verdict{Out: &tensorCheck{Rel: 0.009}, DQ: &tensorCheck{Rel: 0.019}}
	v.judge(&request{dtype: tensors.BF16}, 64)
	if v.Pass || v.Gate != 8e-3 || v.DQ.Gate != 2e-2 ||
		v.problem().Error() != "the check failed: outside the relative gate of 0.008: out is off "+
			"by 0.009" {
		t.Errorf("%+v: %v", v, v.problem())
	}
	v = &verdict{Out: &tensorCheck{Rel: 0.007}, DQ: &tensorCheck{Rel: 0.021}}
	v.judge(&request{dtype: tensors.BF16}, 64)
	if v.Pass || !strings.HasSuffix(v.problem().Error(), "dq is off by 0.021, its gate is 0.02") {
		t.Error(v.problem())
	}
	v.judge(&request{dtype: tensors.BF16}, 256)
	if !v.Pass || v.Gate != 16e-3 {
		t.Errorf("logits of 256: %+v", v)
	}
}

func TestWhenToSample(t *testing.T) {
	// 14 * 64 * 8 * S(S+1)/2 is 5e10 at S = 3735.
	r := &request{tokens: 3734, heads: 8, dim: 64, vDim: 64, mask: attn.Causal(3734, 3734),
		check: checkAuto}
	if r.samples() {
		t.Error("3734 tokens are sampled")
	}
	r.tokens, r.mask = 3735, attn.Causal(3735, 3735)
	if !r.samples() {
		t.Error("3735 tokens are not sampled")
	}
	r.check = checkFull
	if r.samples() {
		t.Error("a full check is sampled")
	}
}

func TestSample(t *testing.T) {
	if !slices.Equal(sample(1, 'r', 5, 8), []int{0, 1, 2, 3, 4}) {
		t.Error("five rows are not all taken")
	}
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		n := rapid.IntRange(65, 1<<20).Draw(t, "n")
		got := sample(seed, 'k', n, 64)
		distinct := slices.Compact(slices.Clone(got))
		if len(got) != 64 || len(distinct) != 64 || !slices.IsSorted(got) || got[0] < 0 ||
			got[63] >= n {
			t.Fatalf("of %d: %v", n, got)
		}
		if !slices.Equal(got, sample(seed, 'k', n, 64)) {
			t.Fatal("the same seed gives another sample")
		}
	})
}

func TestGateGrowsWithLogits(t *testing.T) {
	r, in, out := exact(t)
	o := &oracle[float64]{problem: attn.Problem{
		QTokens: 40, KTokens: 40, QHeads: 4, KHeads: 2, D: 8, DV: 8, Scale: 0.3,
		Mask: r.mask, Q: in.Q, K: in.K, V: in.V,
	}}
	small := o.largestLogit(all(40), nil)
	if exact := attn.MaxLogit(&o.problem, nil); small < exact || small > 128 {
		t.Errorf("the bound %v is below the largest logit %v, or widens the gate", small, exact)
	}
	o.problem.Scale = 300
	if got, want := o.largestLogit(all(40), nil), attn.MaxLogit(&o.problem, nil); got != want {
		t.Errorf("largest logit %v, want %v", got, want)
	}
	r.scale, r.softCap = 300, 0
	v, err := checkResults(t.Context(), r, in, out, nil)
	if err != nil || !(v.Gate > attn.BaseF64) || v.Pass {
		t.Errorf("another scale: %+v, %v", v, err)
	}
}

// TestGateOfASample: the logit of a sample is the largest of its rows and its keys' columns, each
// with all that the mask allows them, and so never above that of all pairs.
func TestGateOfASample(t *testing.T) {
	r, in, _ := exact(t)
	for _, backward := range []bool{true, false} {
		o := &oracle[float64]{backward: backward, problem: attn.Problem{
			QTokens: 40, KTokens: 40, QHeads: 4, KHeads: 2, D: 8, DV: 8, Scale: 300,
			Mask: r.mask, Q: in.Q, K: in.K, V: in.V,
		}}
		logit := func(i, h, j int) float64 {
			sum := 0.0
			for d := range 8 {
				sum += in.Q[(i*4+h)*8+d] * in.K[(j*2+h/2)*8+d]
			}
			return math.Abs(300 * sum)
		}
		rows, keys := []int{3, 17}, []int{0, 20, 39}
		want := 0.0
		for i := range 40 {
			for j := range i + 1 {
				sampled := slices.Contains(rows, i) || backward && slices.Contains(keys, j)
				for h := 0; sampled && h < 4; h++ {
					want = max(want, logit(i, h, j))
				}
			}
		}
		got := o.largestLogit(rows, keys)
		if math.Abs(got-want) > 1e-9*want || got > attn.MaxLogit(&o.problem, nil) {
			t.Errorf("backward %v: largest logit %v, want %v", backward, got, want)
		}
		if onlyRows := attn.MaxLogitRows(&o.problem, rows, nil); backward && !(got > onlyRows) {
			t.Fatalf("the columns hold no logit above %v of the rows: take others", onlyRows)
		}
	}
}

func TestSpoiled(t *testing.T) {
	inf := math.Inf(-1)
	r := &request{heads: 4, kvHeads: 2, dim: 3, vDim: 5}
	at := func(i int, x float64) []float64 {
		data := make([]float64, 80)
		data[i], data[79] = x, x
		return data
	}
	for _, c := range []struct {
		in   kvloom.Inputs[float64]
		want string
	}{
		{kvloom.Inputs[float64]{Q: []float64{1}, K: []float64{2}}, ""},
		{kvloom.Inputs[float64]{Q: at(12+3*2+1, math.NaN()), K: at(0, inf)},
			"the input q is NaN at token 1, head 2, element 1 (counted from 0)"},
		{kvloom.Inputs[float64]{K: at(3*6+3+2, inf)},
			"the input k is -Inf at token 3, head 1, element 2 (counted from 0)"},
		{kvloom.Inputs[float64]{V: at(2*10+5+4, inf), DO: at(0, inf)},
			"the input v is -Inf at token 2, head 1, element 4 (counted from 0)"},
		{kvloom.Inputs[float64]{DO: at(20+3*5, -inf)},
			"the input do is +Inf at token 1, head 3, element 0 (counted from 0)"},
	} {
		if got := spoiled(r, c.in); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestSaysNaNOnce: a NaN among the inputs makes all results and the gate NaN, which is said once.
func TestSaysNaNOnce(t *testing.T) {
	r, in, out := exact(t)
	in.Q[7*4*8] = math.NaN() // row 7
	for i := range 4 * 8 {
		out.Out[7*4*8+i], out.DQ[7*4*8+i] = math.NaN(), math.NaN()
	}
	for _, data := range [][]float64{out.LSE[7*4:], out.DK, out.DV, out.DSink} {
		data[0] = math.NaN()
	}
	v, err := checkResults(t.Context(), r, in, out, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := "the check failed because the input q is NaN at token 7, head 0, element 0 (counted " +
		"from 0): there is no error to measure in out, lse, dq, dk, dv and dsink"
	if v.Pass || v.problem() == nil || v.problem().Error() != want {
		t.Errorf("%v", v.problem())
	}
	v.spoiled = ""
	if want = "the check failed: NaN, or infinity where the oracle has another value, is in out, " +
		"lse, dq, dk, dv and dsink"; v.problem().Error() != want {
		t.Error(v.problem())
	}
	text, err := json.Marshal(v)
	if err != nil || strings.Count(string(text), `"gate":null`) != 1 {
		t.Errorf("%s, %v", text, err)
	}
}

func TestParallel(t *testing.T) {
	p := &progress{}
	s := p.stage("check", 0)
	defer s.end()
	var count [1000]atomic.Int32
	parallel(t.Context(), s)(len(count), func(i int) { count[i].Add(1) })
	for i := range count {
		if n := count[i].Load(); n != 1 {
			t.Fatalf("item %d was done %d times", i, n)
		}
	}
	if s.done.Load() != 1000 || s.total.Load() != 1000 {
		t.Errorf("%d of %d items counted", s.done.Load(), s.total.Load())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	parallel(ctx, s)(len(count), func(i int) { t.Errorf("item %d was done after the end", i) })
	r, in, out := exact(t)
	if _, err := checkResults(ctx, r, in, out, parallel(ctx, s)); err == nil {
		t.Error("an interrupted check has a verdict")
	}
}
