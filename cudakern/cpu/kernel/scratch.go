package kernel

import "github.com/kvloom/kvloom/attn"

// tileRows is the number of query rows and of keys of a tile: the bits of a word, and few enough
// that a tile of keys of 64 elements stays in a first-level cache.
const tileRows = 64

// Scratch is what one running task needs besides its block. It may serve one task after another,
// of any block and pass, but not two at once. The zero Scratch is ready for use.
type Scratch[T attn.Float] struct {
	q, do, k, v []T         // packed rows of one head: [tileRows, D or DV], q times the scale
	p, ds       []T         // scores, then weights, of a tile: [tileRows, tileRows]
	sum         []T         // two rows of sums over the tile: [2, max(D, DV)]
	slope       [tileRows]T // of the soft cap, for one row of a tile

	powers  powers
	near    []attn.Slice // slices of the mask that the task can meet
	reach   box          // around all pairs that they allow the task
	queries axisTile
	keys    axisTile
	allow   [tileRows]uint64 // bit c of word r: query row r sees key c
	seen    [tileRows]uint64 // the transpose: bit r of word c
}

// NewScratch makes a Scratch that need not grow for blocks of up to d and dv elements a head and
// up to slices slices of mask.
func NewScratch[T attn.Float](d, dv, slices int) *Scratch[T] {
	s := &Scratch[T]{near: make([]attn.Slice, 0, slices)}
	s.fit(d, dv)
	return s
}

// fit makes room for heads of d and dv elements.
func (s *Scratch[T]) fit(d, dv int) {
	s.powers.fill()
	grow := func(a *[]T, n int) {
		if len(*a) < n {
			*a = make([]T, n)
		}
	}
	grow(&s.q, tileRows*d)
	grow(&s.k, tileRows*d)
	grow(&s.v, tileRows*dv)
	grow(&s.do, tileRows*dv)
	grow(&s.p, tileRows*tileRows)
	grow(&s.ds, tileRows*tileRows)
	grow(&s.sum, 2*max(d, dv))
}

// headRows is rows [at, at+n) of one head of src [rows, heads, w], without gaps: src's own memory
// where it has none and its elements are of type T, else copied to buf, BF16 widened.
func headRows[E attn.Elem, T attn.Float](buf []T, src []E, at, n, heads, head, w int) []T {
	if narrow, ok := any(src).([]attn.BF16); ok {
		for r := range n {
			attn.Widen(buf[r*w:(r+1)*w], narrow[((at+r)*heads+head)*w:][:w])
		}
		return buf[:n*w]
	}
	same := any(src).([]T)
	if heads == 1 {
		return same[at*w : (at+n)*w]
	}
	for r := range n {
		copy(buf[r*w:(r+1)*w], same[((at+r)*heads+head)*w:][:w])
	}
	return buf[:n*w]
}

// scaledRows is headRows times scale, always in buf.
func scaledRows[E attn.Elem, T attn.Float](buf []T, src []E, at, n, heads, head, w int,
	scale float64,
) []T {
	rows := headRows(buf, src, at, n, heads, head, w)
	buf = buf[:len(rows)]
	for i, x := range rows {
		buf[i] = T(float64(x) * scale)
	}
	return buf
}

// tilesOf is the number of tiles that n rows take.
func tilesOf(n int) int { return (n + tileRows - 1) / tileRows }
