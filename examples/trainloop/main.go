// Command trainloop trains two small attention layers in a loop of its own, with kvloom for the
// attention and the sums over ranks. Two micro-batches are in flight at once: both go forward
// through both layers before the first goes backward. At one step a rank is lost; the loop opens a
// new session, does the step again, and the losses are those of an undisturbed run.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/kvloom/kvloom"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
)

const (
	tokens, embed  = 24, 8
	heads, kvHeads = 4, 2
	dim            = 4
	layers, micro  = 2, 2
	steps          = 20
	rate           = 0.1
)

func main() {
	if _, err := train(os.Stdout, mesh.Mesh{Head: 2, Ring: 2}, 7); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// train runs all steps and gives their losses. At step crashAt rank 1 is lost; -1 is never.
func train(w io.Writer, m mesh.Mesh, crashAt int) (losses []float64, err error) {
	ctx := context.Background()
	weights := newWeights()
	g, err := open(ctx, m)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.session.Close(ctx)) }()
	for step := 0; step < steps; step++ {
		if step == crashAt {
			crashAt = -1
			if err := g.session.Crash(min(1, m.Ranks()-1)); err != nil {
				return nil, err
			}
		}
		loss, grads, err := g.step(ctx, weights)
		var lost *kvloom.Error
		if errors.Is(err, kvloom.ErrPeerLost) && errors.As(err, &lost) {
			fmt.Fprintf(w, "step %2d  rank %d was lost: opening again\n", step, lost.Rank)
			if err := g.session.Close(ctx); err != nil {
				return nil, err
			}
			next, err := open(ctx, m)
			if err != nil {
				return nil, err
			}
			g = next
			step-- // its weights are as they were: do it again
			continue
		}
		if err != nil {
			return nil, err
		}
		for i := range weights {
			weights[i] -= rate * grads[i]
		}
		losses = append(losses, loss)
		fmt.Fprintf(w, "step %2d  loss %.6f\n", step, loss)
	}
	return losses, nil
}

// gang is a session, its layers, and what each rank holds of the data.
type gang struct {
	session *kvloom.Session[float64]
	layers  [layers]*kvloom.Attention[float64]
	shards  []kvloom.Shard
}

func open(ctx context.Context, m mesh.Mesh) (*gang, error) {
	s, err := kvloom.Open[float64](ctx, kvloom.Config{Mesh: m})
	if err != nil {
		return nil, err
	}
	g := &gang{session: s}
	for i := range g.layers {
		mask := attn.Causal(tokens, tokens)
		if i == 1 {
			mask = attn.Full(tokens, tokens)
		}
		g.layers[i], err = s.Attention(kvloom.Problem{
			Tokens: tokens, Heads: heads, KVHeads: kvHeads, Dim: dim,
			Scale: 1 / math.Sqrt(dim), Mask: mask})
		if err != nil {
			return nil, errors.Join(err, s.Close(ctx))
		}
	}
	for r := range s.Ranks() {
		g.shards = append(g.shards, g.layers[0].Shard(r))
	}
	return g, nil
}

// pass is one micro-batch on its way: by layer the state, and by layer and rank the inputs and
// outs.
type pass struct {
	states [layers]*kvloom.State[float64]
	x      [layers + 1][][]float64 // [rank][tokens, embed]
	out    [layers][]kvloom.Output[float64]
}

// step goes forward with all micro-batches, then backward with the last one first, and sums loss
// and gradients over ranks.
func (g *gang) step(ctx context.Context, w []float64) (loss float64, grads []float64, err error) {
	ranks := g.session.Ranks()
	sums := make([][]float64, ranks) // by rank: gradients, then the loss
	for r := range sums {
		sums[r] = make([]float64, len(w)+1)
	}
	var passes [micro]*pass
	defer func() {
		for _, p := range passes {
			p.release()
		}
	}()
	for b := range passes {
		passes[b] = &pass{}
		if err := g.forward(ctx, passes[b], b, w); err != nil {
			return 0, nil, err
		}
	}
	for b := micro - 1; b >= 0; b-- {
		if err := g.backward(ctx, passes[b], b, w, sums); err != nil {
			return 0, nil, err
		}
	}
	if err := g.session.AllReduce(ctx, kvloom.WorldAxis, sums); err != nil {
		return 0, nil, err
	}
	return sums[0][len(w)], sums[0][:len(w)], nil
}

func (g *gang) forward(ctx context.Context, p *pass, batch int, w []float64) (err error) {
	ranks := g.session.Ranks()
	for _, s := range g.shards {
		p.x[0] = append(p.x[0], kvloom.Take(s, input(batch), embed))
	}
	for i, layer := range g.layers {
		in := make([]kvloom.QKV[float64], ranks)
		for r, x := range p.x[i] {
			in[r] = kvloom.QKV[float64]{Q: mul(x, wq(w, i)), K: mul(x, wk(w, i)), V: mul(x, wv(w,
				i))}
		}
		p.states[i] = layer.Begin()
		if p.out[i], err = p.states[i].Forward(ctx, in); err != nil {
			return err
		}
		for r, x := range p.x[i] {
			p.x[i+1] = append(p.x[i+1], add(x, mul(p.out[i][r].Out, wo(w, i))))
		}
	}
	return nil
}

func (g *gang) backward(ctx context.Context, p *pass, batch int, w []float64,
	sums [][]float64) error {
	dx := make([][]float64, len(sums))
	for r, s := range g.shards {
		dx[r] = mse(p.x[layers][r], kvloom.Take(s, target(batch), embed), &sums[r][len(w)])
	}
	for i := layers - 1; i >= 0; i-- {
		do := make([][]float64, len(sums))
		for r := range do {
			do[r] = mulT(dx[r], wo(w, i))
			addOuter(wo(sums[r], i), p.out[i][r].Out, dx[r])
		}
		grads, err := p.states[i].Backward(ctx, do)
		if err != nil {
			return err
		}
		for r, x := range p.x[i] {
			d := grads[r]
			addOuter(wq(sums[r], i), x, d.DQ)
			addOuter(wk(sums[r], i), x, d.DK)
			addOuter(wv(sums[r], i), x, d.DV)
			dx[r] = add(dx[r], mulT(d.DQ, wq(w, i)), mulT(d.DK, wk(w, i)), mulT(d.DV, wv(w, i)))
		}
	}
	return nil
}

func (p *pass) release() {
	if p == nil {
		return
	}
	for _, st := range p.states {
		if st != nil {
			st.Release()
		}
	}
}
