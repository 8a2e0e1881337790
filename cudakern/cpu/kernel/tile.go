package kernel

import (
	"math"
	"math/bits"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
)

// run is an arithmetic run of positions inside a tile: row at+i of the tile is position
// start+i*stride, 0 <= i < count.
type run struct{ at, start, stride, count int }

// axisTile is the rows of a tile on one axis: their runs of positions and the smallest and largest
// position.
type axisTile struct {
	runs  [tileRows]run
	used  int
	rows  int
	first int
	last  int
}

// cursor walks the rows of a set in order.
type cursor struct {
	set mesh.Set
	off int // rows of set[0] that have been passed
}

// skip passes n rows.
func (c *cursor) skip(n int) {
	for n > 0 {
		step := min(n, c.set[0].Count-c.off)
		c.pass(step)
		n -= step
	}
}

// pass passes n rows of the first span that is left.
func (c *cursor) pass(n int) {
	c.off += n
	if c.off == c.set[0].Count {
		c.set, c.off = c.set[1:], 0
	}
}

// passBeyond passes rows, in whole tiles, that lie in the first span that is left and outside of
// the positions [lo,hi], and returns how many.
func (c *cursor) passBeyond(lo, hi int) (rows int) {
	span := c.set[0]
	first, left := span.At(c.off), span.Count-c.off
	switch {
	case first > hi:
		rows = left
	case first < lo:
		rows = min(left, ceilDiv(lo-first, span.Stride))
	}
	rows -= rows % tileRows
	c.pass(rows)
	return rows
}

// cut makes t of the next rows rows.
func (t *axisTile) cut(c *cursor, rows int) {
	t.used, t.rows, t.first, t.last = 0, 0, math.MaxInt, math.MinInt
	for t.rows < rows {
		span := c.set[0]
		r := run{
			at: t.rows, start: span.At(c.off), stride: span.Stride,
			count: min(rows-t.rows, span.Count-c.off),
		}
		c.pass(r.count)
		t.first = min(t.first, r.start)
		t.last = max(t.last, r.start+(r.count-1)*r.stride)
		t.rows += r.count
		t.runs[t.used] = r
		t.used++
	}
}

// within is the range [a,b) of the rows of the run whose positions lie in [lo,hi); empty when
// a >= b.
func (r *run) within(lo, hi int) (a, b int) {
	if hi <= r.start {
		return 0, 0
	}
	b = r.count
	if lo > r.start {
		a = ceilDiv(lo-r.start, r.stride)
	}
	if hi-r.start < r.count*r.stride {
		b = min(b, ceilDiv(hi-r.start, r.stride))
	}
	return a, b
}

// word is the rows of the tile whose positions lie in [lo,hi), as bits.
func (t *axisTile) word(lo, hi int) (word uint64) {
	if lo >= hi || hi <= t.first || lo > t.last {
		return 0
	}
	for i := range t.runs[:t.used] {
		r := &t.runs[i]
		if a, b := r.within(lo, hi); a < b {
			word |= ^uint64(0) >> (64 - (b - a)) << (r.at + a)
		}
	}
	return word
}

// ceilDiv is n/d rounded up, for positive n and d.
func ceilDiv(n, d int) int {
	if d == 1 {
		return n
	}
	return (n + d - 1) / d
}

// box is pairs of queries in [q0,q1] and keys in [k0,k1].
type box struct{ q0, q1, k0, k1 int }

// meet is the part of the box in which the slice may allow a pair; ok is false where there is none.
// It errs only towards more.
func (b box) meet(s *attn.Slice) (part box, ok bool) {
	b.q0, b.q1 = max(b.q0, s.Q0), min(b.q1, s.Q1-1)
	b.k0, b.k1 = max(b.k0, s.K0), min(b.k1, s.K1-1)
	if b.q0 > b.q1 || b.k0 > b.k1 {
		return b, false
	}
	b.k0, b.k1 = max(b.k0, b.q0+s.Lo), min(b.k1, b.q1+s.Hi)
	b.q0, b.q1 = max(b.q0, b.k0-s.Hi), min(b.q1, b.k1-s.Lo)
	return b, b.q0 <= b.q1 && b.k0 <= b.k1
}

// sift keeps in near the slices of the mask that may allow a pair of the box, and in reach a box
// around what they may allow. It reports whether there is any.
func (s *Scratch[T]) sift(mask attn.Mask, in box) bool {
	s.near = s.near[:0]
	s.reach = box{math.MaxInt, math.MinInt, math.MaxInt, math.MinInt}
	for i := range mask {
		part, ok := in.meet(&mask[i])
		if !ok {
			continue
		}
		s.near = append(s.near, mask[i])
		s.reach.q0, s.reach.q1 = min(s.reach.q0, part.q0), max(s.reach.q1, part.q1)
		s.reach.k0, s.reach.k1 = min(s.reach.k0, part.k0), max(s.reach.k1, part.k1)
	}
	return len(s.near) > 0
}

// permit fills allow for the tile of queries and keys and reports whether any pair is allowed; if
// none is, allow is not to be used. It costs a step for each slice near and each row in a slice
// that the tile meets.
func (s *Scratch[T]) permit() bool {
	q, k := &s.queries, &s.keys
	tile := box{q.first, q.last, k.first, k.last}
	met, union := false, uint64(0)
	for i := range s.near {
		slice := &s.near[i]
		if _, ok := tile.meet(slice); !ok {
			continue
		}
		if !met {
			clear(s.allow[:])
			met = true
		}
		for n := range q.runs[:q.used] {
			r := &q.runs[n]
			a, b := r.within(slice.Q0, slice.Q1)
			for p := r.start + a*r.stride; a < b; p += r.stride {
				word := k.word(max(slice.K0, p+slice.Lo), min(slice.K1, p+slice.Hi+1))
				s.allow[r.at+a] |= word
				union |= word
				a++
			}
		}
	}
	return union != 0
}

// hull is the smallest range [lo,hi) of bits that holds all of a non-zero word.
func hull(word uint64) (lo, hi int) {
	return bits.TrailingZeros64(word), 64 - bits.LeadingZeros64(word)
}

// evenHull is hull with its ends moved outwards to even numbers, as keys are computed in pairs.
func evenHull(word uint64) (lo, hi int) {
	lo, hi = hull(word)
	return lo &^ 1, (hi + 1) &^ 1
}

// transpose turns bit c of word r into bit r of word c: square blocks of 32, 16, ... 1 bits change
// places (Warren, Hacker's Delight, 7-3).
func transpose(w *[tileRows]uint64) {
	mask := uint64(1<<32 - 1)
	for size := 32; size != 0; size >>= 1 {
		for r := 0; r < tileRows; r = (r + size + 1) &^ size {
			a, b := &w[r], &w[(r+size)%tileRows]
			swap := (*a>>size ^ *b) & mask
			*a ^= swap << size
			*b ^= swap
		}
		mask ^= mask << (size >> 1)
	}
}
