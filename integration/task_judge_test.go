package integration

import (
	"fmt"
	"math"

	kvloom "github.com/kvloom/kvloom"
	"github.com/kvloom/kvloom/attn"
)

// verdict is an output against its reference.
type verdict struct {
	name     string
	got, ref []float64
	gate     float64
	rel, abs float64 // the errors, relative and largest
}

// verdicts compares all outputs with the oracle's.
func verdicts[T attn.Float](c *task, got kvloom.Outputs[T], ref *answer) []verdict {
	forward, backward, keys := c.gatesOf(ref.maxLogit)
	out := []verdict{
		{name: "out", got: wide(got.Out), ref: ref.Out, gate: forward},
		{name: "lse", got: wide(got.LSE), ref: ref.LSE, gate: forward},
		{name: "dq", got: wide(got.DQ), ref: ref.DQ, gate: backward},
		{name: "dk", got: wide(got.DK), ref: ref.DK, gate: keys},
		{name: "dv", got: wide(got.DV), ref: ref.DV, gate: keys},
		{name: "dsink", got: wide(got.DSink), ref: ref.DSink, gate: backward},
	}
	for i := range out {
		e := attn.Compare(out[i].got, out[i].ref)
		out[i].rel, out[i].abs = e.Rel, e.MaxAbs
	}
	return out
}

// judge gives an error when an output is outside its gate. Where terms cancel, as in the gradient
// of a row that sees one key, rounding is not small beside what is left: then the error's norm is
// held against that of the terms, with the same gate. cancelled is true when it was.
func judge[T attn.Float](c *task, in kvloom.Inputs[T], got kvloom.Outputs[T], ref *answer) (
	cancelled bool, err error) {
	var all [][]float64
	for i, v := range verdicts(c, got, ref) {
		if v.rel <= v.gate {
			continue
		}
		if all == nil && !math.IsNaN(v.rel) {
			if all, err = sizes(c, widened(in), ref); err != nil {
				return true, err
			}
			cancelled = true
		}
		of := math.NaN()
		if all != nil {
			of = distanceOf(v.got, v.ref) / normOf(all[i])
		}
		if !(of <= v.gate) {
			return cancelled, fmt.Errorf("%s has a relative error of %.3g (largest %.3g; beside "+
				"the terms it is summed of %.3g), the gate is %g", v.name, v.rel, v.abs, of, v.gate)
		}
	}
	return cancelled, nil
}

// normOf is the root of the sum of squares.
func normOf(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v * v
	}
	return math.Sqrt(sum)
}

// distanceOf is the norm of the difference, 0 where both are -Inf.
func distanceOf(got, ref []float64) float64 {
	diff := make([]float64, len(ref))
	for i, r := range ref {
		if !math.IsInf(r, -1) || !math.IsInf(got[i], -1) {
			diff[i] = got[i] - r
		}
	}
	return normOf(diff)
}

// sizes are the sums of the absolute values of the terms of out, lse, dq, dk, dv and dsink.
func sizes(c *task, in kvloom.Inputs[float64], ref *answer) ([][]float64, error) {
	mask, err := c.mask()
	if err != nil {
		return nil, err
	}
	out := make([][]float64, 6)
	for i, x := range [][]float64{ref.Out, ref.LSE, ref.DQ, ref.DK, ref.DV, ref.DSink} {
		out[i] = make([]float64, len(x))
	}
	limit := attn.Cap(c.softCap)
	for i := range c.tokens {
		for h := range c.heads {
			x := i*c.heads + h
			q, do := row(in.Q, x, c.dim), row(in.DO, x, c.vdim)
			delta := dotSize(do, row(ref.Out, x, c.vdim))
			if c.sink && delta > 0 {
				out[5][h] += math.Exp(in.Sink[h]-ref.LSE[x]) * delta
			}
			for j := range c.keys {
				if !mask.Allows(i, j) {
					continue
				}
				y := j*c.kvHeads + h/(c.heads/c.kvHeads)
				k, v := row(in.K, y, c.dim), row(in.V, y, c.vdim)
				dot := 0.0
				for n := range q {
					dot += q[n] * k[n]
				}
				s := c.logitScale() * dot
				p := math.Exp(limit.Of(s) - ref.LSE[x])
				ds := p * (dotSize(do, v) + delta) * c.logitScale() * limit.Slope(s)
				out[1][x] = max(out[1][x], 1, c.logitScale()*dotSize(q, k))
				addSize(row(out[0], x, c.vdim), v, p)
				addSize(row(out[2], x, c.dim), k, ds)
				addSize(row(out[3], y, c.dim), q, ds)
				addSize(row(out[4], y, c.vdim), do, p)
			}
		}
	}
	return out, nil
}

func row(x []float64, i, width int) []float64 { return x[i*width:][:width] }

// dotSize is the sum of |x y|.
func dotSize(x, y []float64) float64 {
	sum := 0.0
	for n := range x {
		sum += math.Abs(x[n] * y[n])
	}
	return sum
}

// addSize adds |x| times factor.
func addSize(to, x []float64, factor float64) {
	for n := range to {
		to[n] += math.Abs(x[n]) * factor
	}
}
