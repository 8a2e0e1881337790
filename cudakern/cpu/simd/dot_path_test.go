package simd

import (
	"math"

	"github.com/kvloom/kvloom/attn"
)

// small is a block of float32 rounded for a path that is of bf16, else nil.
func (p path) small(b any) *attn.Block[attn.BF16] {
	if f, ok := b.(*attn.Block[float32]); ok && p.isa.dots() {
		return narrow(f)
	}
	return nil
}

// smallGrad is g, of float32, with do rounded.
func smallGrad[E attn.Elem](g attn.Grad[E, float32]) attn.Grad[attn.BF16, float32] {
	return attn.Grad[attn.BF16, float32]{
		DO: narrowed(any(g.DO).([]float32)), LSE: g.LSE, Delta: g.Delta,
		DQ: g.DQ, DK: g.DK, DV: g.DV, AddKV: g.AddKV,
	}
}

// forward is Forward of one task of a block of float32.
func (p path) forward(b *attn.Block[float32], s attn.State[float32], task int, sc *Scratch) {
	if small := p.small(b); small != nil {
		Forward(p.isa, small, s, task, sc)
		return
	}
	Forward(p.isa, b, s, task, sc)
}

// backward is Backward of one task of a block of float32.
func (p path) backward(b *attn.Block[float32], g attn.Grad[float32, float32], task int,
	sc *Scratch,
) {
	if small := p.small(b); small != nil {
		Backward(p.isa, small, smallGrad(g), task, sc)
		return
	}
	Backward(p.isa, b, g, task, sc)
}

// fit rounds the inputs to those that the path takes, in place.
func (p path) fit(b *attn.Block[float32], do []float32) {
	if !p.isa.dots() {
		return
	}
	for _, a := range [][]float32{b.Q, b.K, b.V, do} {
		attn.Widen(a, narrowed(a))
	}
}

// bound is the largest error of array i of a result where float32 may have the given one: that of
// bf16 outputs. TestPairs has what is usual.
func (p path) bound(i int, float float64) float64 {
	if !p.isa.dots() {
		return float
	}
	return max(float, [...]float64{8e-3, 0, 2e-2, 2e-2, 2e-2}[i])
}

// random is bound for a block that was drawn, where sums may cancel: not less than what rounding
// leaves of them, 2,000 times as much in bf16.
func (p path) random(b *attn.Block[float32], i int, float float64) float64 {
	left := noise(b, i)
	if p.isa.dots() {
		left *= 2000
	}
	return max(p.bound(i, float), left)
}

// spoil fills what a former task may have left with NaN.
func (x *dots) spoil() {
	nan := float32(math.NaN())
	fill(x.woven, nan)
	fill(x.ds, nan)
	for _, a := range [][]attn.BF16{x.few[0], x.few[1], x.clean} {
		fill(a, attn.ToBF16(nan))
	}
}
