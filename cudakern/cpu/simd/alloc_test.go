package simd

import (
	"math"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
)

// TestNoAllocations wants none of any pass, with a Scratch that NewScratch made and that has served
// nothing yet: with whole tiles and ends of tiles, a tile of few keys, dims that fill no vector and
// odd ones, queries of several heads, many spans and slices, and numbers that are not finite.
func TestNoAllocations(t *testing.T) {
	eachVector(t, func(t *testing.T, p path) {
		for _, c := range []struct{ n, heads, group, d, dv int }{
			{450, 1, 1, 16, 8}, {450, 4, 1, 16, 8}, {450, 4, 4, 16, 8}, {5, 2, 2, 256, 256},
			{200, 3, 3, 20, 100}, {200, 2, 1, 33, 7}, {97, 2, 1, 64, 64}, {2, 1300, 1300, 4, 4},
		} {
			for _, odd := range []bool{false, true} {
				b := contiguous(c.n, c.heads, c.group, c.d, c.dv)
				if c.n > 100 {
					b.KSpans = mesh.Set{
						{Stride: 1, Count: 30}, {Start: 30, Stride: 2, Count: 35},
						{Start: 31, Stride: 2, Count: 35},
						{Start: 100, Stride: 1, Count: c.n - 100},
					}
					b.Mask = append(attn.Window(c.n, c.n/2, 50, 9), attn.Slice{
						Q0: 0, Q1: c.n, K0: c.n / 2, K1: c.n, Lo: -attn.Unbounded, Hi: 0})
				}
				do := fillBlock(b, 1)
				if odd {
					for _, a := range [][]float32{b.Q, b.K, b.V, do} {
						a[len(a)/2] = float32(math.Inf(1))
					}
				}
				b.SoftCap = float64(c.heads - 1)
				noAllocations(t, p, b, do)
				noAllocations(t, p, narrow(b), narrowed(do))
			}
		}
	})
}

func noAllocations[E attn.Elem](t *testing.T, p path, b *attn.Block[E], do []E) {
	t.Helper()
	s := newState(b)
	out, lse := finish(p, s, b.DV)
	g := newGrad(p, b, do, out, lse)
	sink, halves := make([]float32, b.QHeads), make([]attn.BF16, len(s.Acc))
	fresh := [3]*Scratch{}
	for i := range fresh {
		fresh[i] = NewScratch(b.D, b.DV, b.Group, len(b.Mask))
	}
	call := 0
	if n := testing.AllocsPerRun(len(fresh)-1, func() {
		sc := fresh[call]
		call++
		g.AddKV = !g.AddKV
		for task := range ForwardTasks(b) {
			Forward(p.isa, b, s, task, sc)
		}
		Finalize(p.isa, out, lse, s, sink, b.DV, 0, len(lse))
		Delta(p.isa, g.Delta, do, out, b.DV, 0, len(lse))
		Delta(p.isa, g.Delta, do, do, b.DV, 0, len(lse))
		for task := range BackwardTasks(b) {
			Backward(p.isa, b, g, task, sc)
		}
		for grid, i := BackwardGrid(b, 3), 0; i < grid.Len(); i++ {
			BackwardPiece(p.isa, b, g, grid.Piece(i), grid.Parts, sc)
			grid.Needs(i)
		}
		Accumulate(p.isa, g.DQ, g.DQ, 0, len(g.DQ))
		FinalizeNarrow(p.isa, halves, s, nil, b.DV, 0, len(lse))
	}); n != 0 {
		t.Errorf("%d rows, %d heads of %d and %d, elements %T: %v allocations", len(lse)/b.QHeads,
			b.QHeads, b.D, b.DV, do[0], n)
	}
}
