package kernel

import "github.com/kvloom/kvloom/attn"

// tileRows is the number of query rows and of keys of a tile: the bits of a word, and few enough
// that a tile of keys of 64 elements stays in a first-level cache.
const tileRows = 64

// Scratch is what one running task needs besides its block. It may serve one task after another,
// of any block and pass, but not two at once. The zero Scratch is ready for use.
type Scratch[T attn.Float] struct {
	q, do, k, v []T // packed rows of one head: [tileRows, D or DV], q times the scale
	p, ds       []T // scores, then weights, of a tile: [tileRows, tileRows]
	sum         []T // two rows of sums over the tile: [2, max(D, DV)]

	powers  powers
	near    []attn.Slice // slices of the mask that the task can meet
	queries axisTile
	keys    axisTile
	pos     [tileRows]int    // position of each query row
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
// where it has none, else copied to buf.
func headRows[T attn.Float](buf, src []T, at, n, heads, head, w int) []T {
	if heads == 1 {
		return src[at*w : (at+n)*w]
	}
	for r := range n {
		copy(buf[r*w:(r+1)*w], src[((at+r)*heads+head)*w:][:w])
	}
	return buf[:n*w]
}

// scaledRows is headRows times scale, always in buf.
func scaledRows[T attn.Float](buf, src []T, at, n, heads, head, w int, scale float64) []T {
	for r := range n {
		from := src[((at+r)*heads+head)*w:][:w]
		to := buf[r*w:][:len(from)]
		for i, x := range from {
			to[i] = T(float64(x) * scale)
		}
	}
	return buf[:n*w]
}

// tilesOf is the number of tiles that n rows take.
func tilesOf(n int) int { return (n + tileRows - 1) / tileRows }
