package simd

import (
	"sort"

	"github.com/kvloom/kvloom/attn"
)

// Grid is how the backward pass of a block is cut so that more workers than KV heads can do it:
// each head into Parts of its keys, at ends of tiles, by Passes of its queries. A piece loads the
// sum of dQ that the part before it left, and adds to the dK and dV that the pass before it left,
// so each sum is made in the order of Backward, whoever does a piece.
//
//	        part 0    part 1    part 2
//	pass 0  0      -> 1      -> 3          dQ goes to the right, dK and dV go down;
//	        |         |         |          pieces are numbered by diagonals, all heads
//	        v         v         v          of a diagonal together: those of one diagonal
//	pass 1  2      -> 4      -> 5          may run at once
type Grid struct{ Heads, Parts, Passes int }

// Piece is a pass of the queries over a part of the keys of a held KV head.
type Piece struct{ KVHead, Part, Pass int }

// BackwardGrid is the grid of b with so many parts, or one for each tile of keys if those are
// fewer.
func BackwardGrid[E attn.Elem](b *attn.Block[E], parts int) Grid {
	g := Grid{b.KHeads, max(1, min(parts, cuts(b.KSpans, maxKeys))), 1}
	for head := range b.KHeads {
		g.Passes = max(g.Passes, passes(b, head))
	}
	return g
}

// Len is the number of pieces.
func (g Grid) Len() int { return g.Heads * g.Parts * g.Passes }

// Piece is piece i, 0 <= i < Len().
func (g Grid) Piece(i int) Piece {
	cell := i / g.Heads
	diagonal := sort.Search(g.Parts+g.Passes-1, func(d int) bool { return g.before(d+1) > cell })
	part := g.first(diagonal) + cell - g.before(diagonal)
	return Piece{i % g.Heads, part, diagonal - part}
}

// Needs is the pieces that must be over before piece i begins: that of the part before it and that
// of the pass before it, -1 where there is none. Both are less than i.
func (g Grid) Needs(i int) (part, pass int) {
	p := g.Piece(i)
	part, pass = -1, -1
	if p.Part > 0 {
		part = g.index(Piece{p.KVHead, p.Part - 1, p.Pass})
	}
	if p.Pass > 0 {
		pass = g.index(Piece{p.KVHead, p.Part, p.Pass - 1})
	}
	return part, pass
}

// index is the number of a piece.
func (g Grid) index(p Piece) int {
	diagonal := p.Part + p.Pass
	return (g.before(diagonal)+p.Part-g.first(diagonal))*g.Heads + p.KVHead
}

// first is the first part on a diagonal, from which on there is one piece of a head in each part.
func (g Grid) first(diagonal int) int { return max(0, diagonal-g.Passes+1) }

// before is the pieces of a head on the diagonals before one: a triangle less those of its corners
// that lie beyond the grid.
func (g Grid) before(diagonal int) int {
	triangle := func(n int) int { n = max(n, 0); return n * (n + 1) / 2 }
	return triangle(diagonal) - triangle(diagonal-g.Parts) - triangle(diagonal-g.Passes)
}

// queries is the rows that a KV head takes: none where no query head reads it.
func queries[E attn.Elem](b *attn.Block[E], kvHead int) cursor {
	if h0, h1 := readers(b, kvHead); h0 == h1 {
		return cursor{}
	}
	return cursor{set: b.QSpans}
}

// passRows is the most query rows of a pass of a KV head with so many readers.
func passRows(readers int) int { return max(1, backwardPack/max(1, readers)) }

// passes is the passes of a KV head: one at least, which clears what nobody sees.
func passes[E attn.Elem](b *attn.Block[E], kvHead int) int {
	h0, h1 := readers(b, kvHead)
	return max(1, cuts(queries(b, kvHead).set, passRows(h1-h0)))
}
