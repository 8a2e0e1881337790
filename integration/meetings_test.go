package integration

import (
	"context"
	"fmt"
	"math"

	kvloom "github.com/kvloom/kvloom"
	"github.com/kvloom/kvloom/internal/tensors"
)

// meetings counts, from what a run gives, how often each query met each key: [queries][keys],
// forward, and backward.
type meetings struct{ forward, backward [][]float64 }

// meet runs the task such that its numbers are counts: all logits are 0, so that a row's weights
// are all 1/n, its lse is log n, and values and dO are unit vectors, one for each token. Then
//
//	out[i][j] = dv[j][i] = (times that i met j) / n
func meet(ctx context.Context, c task) (*meetings, error) {
	c.keys = max(c.keys, c.tokens)
	c.vdim = max(c.keys, c.tokens)
	c.dtype = tensors.F64
	c = c.full()
	cfg, err := c.config()
	if err != nil {
		return nil, err
	}
	cfg.Problems[0].Scale = 0
	in := taskInputs[float64](&c)
	clear(in.V)
	clear(in.DO)
	for j := range c.keys {
		for h := range c.kvHeads {
			in.V[(j*c.kvHeads+h)*c.vdim+j] = 1
		}
	}
	group := c.heads / c.kvHeads
	for i := range c.tokens {
		for h := 0; h < c.heads; h += group { // one query head of each KV head brings its gradient
			in.DO[(i*c.heads+h)*c.vdim+i] = 1
		}
	}
	var r *ran[float64]
	if c.live {
		r, err = runLive(ctx, cfg, in)
	} else {
		r, err = runSimulated(cfg, in, c.world)
	}
	if err != nil {
		return nil, err
	}
	return countMeetings(&c, r.Outputs)
}

// countMeetings reads the counts of all heads, which must agree.
func countMeetings(c *task, out kvloom.Outputs[float64]) (*meetings, error) {
	m := &meetings{}
	for i := range c.tokens {
		forward, backward := make([]float64, c.keys), make([]float64, c.keys)
		for h := range c.heads {
			x := i*c.heads + h
			n, kv := math.Exp(out.LSE[x]), h/(c.heads/c.kvHeads)
			for j := range c.keys {
				f := out.Out[x*c.vdim+j] * n
				b := out.DV[(j*c.kvHeads+kv)*c.vdim+i] * n
				if h == 0 {
					forward[j], backward[j] = f, b
				}
				if math.Abs(f-forward[j])+math.Abs(b-backward[j]) > countSlack {
					return nil, fmt.Errorf("query %d met key %d %g times forward and %g backward "+
						"with head %d, %g and %g with head 0", i, j, f, b, h, forward[j],
						backward[j])
				}
			}
		}
		m.forward, m.backward = append(m.forward, forward), append(m.backward, backward)
	}
	return m, nil
}

// countSlack is for the rounding of counts.
const countSlack = 1e-9

// once gives an error unless each query met each key that it may see once, and no other.
func (m *meetings) once(c task) error {
	c = c.full()
	mask, err := c.mask()
	if err != nil {
		return err
	}
	for i := range m.forward {
		for j := range m.forward[i] {
			want := 0.0
			if mask.Allows(i, j) {
				want = 1
			}
			f, b := m.forward[i][j], m.backward[i][j]
			if math.Abs(f-want) > countSlack || math.Abs(b-want) > countSlack {
				return fmt.Errorf("query %d met key %d %g times forward and %g backward, want %g",
					i, j, f, b, want)
			}
		}
	}
	return nil
}

// meetsOnce is meet and once.
func meetsOnce(ctx context.Context, c task) error {
	m, err := meet(ctx, c)
	if err != nil {
		return err
	}
	return m.once(c)
}
