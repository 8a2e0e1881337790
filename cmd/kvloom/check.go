package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/kvloom/kvloom"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/internal/tensors"
)

// What --check=auto does: dense up to denseFlops, samples above.
const (
	denseFlops  = 5e10
	sampledRows = 256
	sampledKeys = 64
)

// verdict is what the check found.
type verdict struct {
	Out     *tensorCheck `json:"out"`
	LSE     *tensorCheck `json:"lse"`
	DQ      *tensorCheck `json:"dq,omitempty"`
	DK      *tensorCheck `json:"dk,omitempty"`
	DV      *tensorCheck `json:"dv,omitempty"`
	DSink   *tensorCheck `json:"dsink,omitempty"`
	Gate    number       `json:"gate"`
	Sampled bool         `json:"sampled"`
	Pass    bool         `json:"pass"`

	spoiled string // where an input is NaN or infinite, for the message of a check that failed
}

// tensorCheck is one tensor's distance from the oracle.
type tensorCheck struct {
	MaxAbs number `json:"max_abs"`
	Rel    number `json:"rel"`
	Gate   number `json:"gate,omitempty"` // where it is another than the verdict's
}

// namedCheck is a tensor's distance with its name.
type namedCheck struct {
	name string
	*tensorCheck
}

// tensors are the distances that were measured, in a fixed order.
func (v *verdict) tensors() []namedCheck {
	all := []namedCheck{{"out", v.Out}, {"lse", v.LSE}, {"dq", v.DQ}, {"dk", v.DK}, {"dv", v.DV},
		{"dsink", v.DSink}}
	return slices.DeleteFunc(all, func(c namedCheck) bool { return c.tensorCheck == nil })
}

// gate is the gate of a tensor.
func (v *verdict) gate(t namedCheck) number {
	if t.Gate != 0 {
		return t.Gate
	}
	return v.Gate
}

// problem is an error when a tensor lies outside the gate.
func (v *verdict) problem() error {
	if v.Pass {
		return nil
	}
	var none, bad, why []string
	for _, t := range v.tensors() {
		gate := v.gate(t)
		switch {
		case t.Rel <= gate:
		case math.IsNaN(float64(t.Rel)):
			none = append(none, t.name)
		case gate == v.Gate || math.IsNaN(float64(gate)):
			bad = append(bad, fmt.Sprintf("%s is off by %.2g", t.name, float64(t.Rel)))
		default:
			bad = append(bad, fmt.Sprintf("%s is off by %.2g, its gate is %.2g", t.name,
				float64(t.Rel), float64(gate)))
		}
	}
	if len(none) > 0 && v.spoiled != "" {
		why = append(why, "there is no error to measure in "+listed(none, "and"))
	} else if len(none) > 0 {
		why = append(why, "NaN, or infinity where the oracle has another value, is in "+
			listed(none, "and"))
	}
	if len(bad) > 0 {
		why = append(why, fmt.Sprintf("outside the relative gate of %.2g: %s", float64(v.Gate),
			strings.Join(bad, ", ")))
	}
	if v.spoiled != "" {
		return &checkError{fmt.Sprintf("the check failed because %s: %s", v.spoiled,
			strings.Join(why, "; "))}
	}
	return &checkError{"the check failed: " + strings.Join(why, "; ")}
}

// parallel runs items on as many goroutines as the process has cores to use. When ctx ends it
// skips what is left: the caller asks ctx before it uses a result.
func parallel(ctx context.Context, s *stage) attn.Parallel {
	return func(n int, do func(i int)) {
		s.expect(int64(n))
		var next atomic.Int64
		var wait sync.WaitGroup
		for range min(runtime.GOMAXPROCS(0), n) {
			wait.Go(func() {
				for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; {
					do(i)
					s.add(1)
					i = int(next.Add(1)) - 1
				}
			})
		}
		wait.Wait()
	}
}

// oracle holds a problem in float64 beside the results of a run.
type oracle[T attn.Float] struct {
	problem  attn.Problem
	do       []float64
	have     kvloom.Outputs[T]
	backward bool
	par      attn.Parallel
}

// checkResults compares results with the float64 oracle on the inputs that the ranks had.
func checkResults[T attn.Float](ctx context.Context, r *request, in kvloom.Inputs[T],
	out kvloom.Outputs[T], par attn.Parallel,
) (*verdict, error) {
	o := &oracle[T]{
		problem: attn.Problem{
			QTokens: r.tokens, KTokens: r.tokens, QHeads: r.heads, KHeads: r.kvHeads,
			D: r.dim, DV: r.vDim, Scale: r.scale, SoftCap: r.softCap, Mask: r.mask,
			Sink: sinksOf(in), Q: widen(in.Q), K: widen(in.K), V: widen(in.V),
		},
		do: widen(in.DO), have: out, backward: r.backward, par: par,
	}
	if err := o.problem.Validate(); err != nil {
		return nil, err
	}
	v := &verdict{Sampled: r.samples()}
	rows, keys := all(r.tokens), []int(nil)
	if v.Sampled {
		rows = sample(r.seed, 'r', r.tokens, sampledRows)
		keys = sample(r.seed, 'k', r.tokens, sampledKeys)
		o.sampled(v, rows, keys)
	} else {
		o.dense(v)
	}
	logit := o.largestLogit(rows, keys)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	v.judge(r, logit)
	if !v.Pass {
		v.spoiled = spoiled(r, in)
	}
	return v, nil
}

// judge holds each tensor against its gate.
func (v *verdict) judge(r *request, logit float64) {
	v.Gate, v.Pass = number(attn.Gate(r.gateOf("out"), logit)), true
	for _, t := range v.tensors() {
		gate := attn.Gate(r.gateOf(t.name), logit)
		if number(gate) != v.Gate && !math.IsNaN(gate) {
			t.Gate = number(gate)
		}
		v.Pass = v.Pass && attn.Error{Rel: float64(t.Rel)}.OK(gate)
	}
}

// gateOf is the base gate of a tensor. Gradients of bf16 have a wider one, and so have dk and dv
// when they travel as bf16.
func (r *request) gateOf(tensor string) float64 {
	forward := tensor == "out" || tensor == "lse"
	switch {
	case r.dtype == tensors.F64:
		return attn.BaseF64
	case r.dtype == tensors.BF16 && forward:
		return attn.BaseBF16
	case r.dtype == tensors.BF16, r.options.NarrowDKV && (tensor == "dk" || tensor == "dv"):
		return attn.BaseBF16Grad
	}
	return attn.BaseF32
}

// sinksOf are the sink logits in float64, nil when there are none.
func sinksOf[T attn.Float](in kvloom.Inputs[T]) []float64 {
	if in.Sink == nil {
		return nil
	}
	return widen(in.Sink)
}

// spoiled names the first element of the inputs that is NaN or infinite; it is empty when none is.
// No result survives such a one, so it is the reason when a check fails.
func spoiled[T attn.Float](r *request, in kvloom.Inputs[T]) string {
	for _, x := range []struct {
		name       string
		data       []T
		heads, dim int
	}{
		{"q", in.Q, r.heads, r.dim}, {"k", in.K, r.kvHeads, r.dim}, {"v", in.V, r.kvHeads, r.vDim},
		{"do", in.DO, r.heads, r.vDim},
	} {
		for i, value := range x.data {
			if f := float64(value); math.IsNaN(f) || math.IsInf(f, 0) {
				return fmt.Sprintf("the input %s is %v at token %d, head %d, element %d (counted "+
					"from 0)", x.name, f, i/x.dim/x.heads, i/x.dim%x.heads, i%x.dim)
			}
		}
	}
	return ""
}

// samples tells whether the check leaves most rows out. A dense one costs a forward and a backward
// pass: 14 operations an element of each allowed pair.
func (r *request) samples() bool {
	flops := 7 * float64(r.dim+r.vDim) * float64(r.mask.TotalPairs()) * float64(r.heads)
	return r.check == checkAuto && flops > denseFlops
}

// dense compares every number.
func (o *oracle[T]) dense(v *verdict) {
	out, lse := attn.Dense(&o.problem, o.par)
	v.Out, v.LSE = measure(o.have.Out, out), measure(o.have.LSE, lse)
	if o.backward {
		dq, dk, dv, dsink := attn.DenseBackward(&o.problem, o.do, out, lse, o.par)
		v.DQ, v.DK, v.DV = measure(o.have.DQ, dq), measure(o.have.DK, dk), measure(o.have.DV, dv)
		if dsink != nil {
			v.DSink = measure(o.have.DSink, dsink)
		}
	}
}

// sampled compares some query rows and some keys. The keys' gradients are taken from the run's own
// out and lse, for which the rows vouch: those of all rows would cost a dense check.
func (o *oracle[T]) sampled(v *verdict, rows, keys []int) {
	p := &o.problem
	out, lse := attn.DenseRows(p, rows, o.par)
	v.Out = measure(pick(o.have.Out, rows, p.QHeads*p.DV), out)
	v.LSE = measure(pick(o.have.LSE, rows, p.QHeads), lse)
	if !o.backward {
		return
	}
	dq := attn.RowsBackward(p, o.do, out, lse, rows, o.par)
	v.DQ = measure(pick(o.have.DQ, rows, p.QHeads*p.D), dq)
	wideOut, wideLSE := widen(o.have.Out), widen(o.have.LSE)
	dk, dv := attn.KeysBackward(p, o.do, wideOut, wideLSE, keys, o.par)
	v.DK = measure(pick(o.have.DK, keys, p.KHeads*p.D), dk)
	v.DV = measure(pick(o.have.DV, keys, p.KHeads*p.DV), dv)
	if p.Sink != nil {
		v.DSink = measure(o.have.DSink, attn.SinkBackward(p, o.do, wideOut, wideLSE))
	}
}

// largestLogit is the largest |scale * q.k|, before a cap, or |sink|, where it matters
// to the gate, above 128: when the lengths of q and k bound it for all pairs (Cauchy, Schwarz),
// their bound is as good. Otherwise it is that of the rows, and of the columns of the keys if there
// are any: a sample's. Every number that is compared comes from these, and since they are some of
// the allowed pairs the gate is never wider than that of all of them.
func (o *oracle[T]) largestLogit(rows, keys []int) float64 {
	p := &o.problem
	bound := math.Abs(p.Scale) * longest(p.Q, p.D) * longest(p.K, p.D)
	for _, x := range p.Sink {
		if !math.IsInf(x, -1) {
			bound = max(bound, math.Abs(x))
		}
	}
	if attn.Gate(1, bound) == 1 {
		return bound
	}
	top := attn.MaxLogitRows(p, rows, o.par)
	if len(keys) > 0 && o.backward {
		top = max(top, o.largestOfKeys(keys))
	}
	return top
}

// largestOfKeys is the largest |scale * q.k| of some keys and all the rows that see them: that of
// a problem which has no other keys.
func (o *oracle[T]) largestOfKeys(keys []int) float64 {
	p := o.problem
	p.KTokens, p.K = len(keys), pick(p.K, keys, p.KHeads*p.D)
	p.Mask = nil
	for n, key := range keys {
		for _, s := range o.problem.Mask {
			if lo, hi := s.QueryRange(key); lo < hi {
				p.Mask = append(p.Mask, attn.Slice{Q0: lo, Q1: hi, K0: n, K1: n + 1,
					Lo: -attn.Unbounded, Hi: attn.Unbounded})
			}
		}
	}
	return attn.MaxLogit(&p, o.par)
}

// longest is the largest length of the vectors of dim numbers in data.
func longest(data []float64, dim int) float64 {
	top := 0.0
	for ; len(data) > 0; data = data[dim:] {
		sum := 0.0
		for _, x := range data[:dim] {
			sum += x * x
		}
		top = max(top, sum)
	}
	return math.Sqrt(top)
}

func measure[T attn.Float](have []T, want []float64) *tensorCheck {
	e := attn.Compare(have, want)
	return &tensorCheck{MaxAbs: number(e.MaxAbs), Rel: number(e.Rel)}
}

// widen is data in float64, without a copy when it is already.
func widen[T attn.Float](data []T) []float64 {
	if same, ok := any(data).([]float64); ok {
		return same
	}
	wide := make([]float64, len(data))
	for i, x := range data {
		wide[i] = float64(x)
	}
	return wide
}

// pick is the rows of a tensor of width elements a row.
func pick[T attn.Float](data []T, rows []int, width int) []T {
	out := make([]T, 0, len(rows)*width)
	for _, r := range rows {
		out = append(out, data[r*width:(r+1)*width]...)
	}
	return out
}

func all(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// sample draws count of n numbers, in rising order: the same for the same seed.
func sample(seed, stream uint64, n, count int) []int {
	if n <= count {
		return all(n)
	}
	draw := rand.New(rand.NewPCG(seed, stream))
	seen := make(map[int]bool, count)
	for len(seen) < count {
		seen[draw.IntN(n)] = true
	}
	out := make([]int, 0, count)
	for i := range seen {
		out = append(out, i)
	}
	slices.Sort(out)
	return out
}
