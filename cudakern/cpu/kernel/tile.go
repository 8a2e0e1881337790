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

// word is the rows of the run whose positions lie in [lo,hi), as bits of the tile.
func (r run) word(lo, hi int) uint64 {
	a, b := 0, r.count
	if lo > r.start {
		a = ceilDiv(lo-r.start, r.stride)
	}
	if hi <= r.start {
		return 0
	}
	if hi-r.start < r.count*r.stride {
		b = ceilDiv(hi-r.start, r.stride)
	}
	if a >= b {
		return 0
	}
	return ^uint64(0) >> (64 - (b - a)) << (r.at + a)
}

// ceilDiv is n/d rounded up, for positive n and d.
func ceilDiv(n, d int) int {
	if d == 1 {
		return n
	}
	return (n + d - 1) / d
}

// touches reports whether a slice may allow a pair of queries in [q0,q1] and keys in [k0,k1]. It
// errs only towards yes.
func touches(s *attn.Slice, q0, q1, k0, k1 int) bool {
	q0, q1 = max(q0, s.Q0), min(q1, s.Q1-1)
	return q0 <= q1 && k1 >= max(s.K0, q0+s.Lo) && k0 <= min(s.K1-1, q1+s.Hi)
}

// sift keeps in near the slices of the mask that may allow a pair of the box.
func (s *Scratch[T]) sift(mask attn.Mask, q0, q1, k0, k1 int) {
	s.near = s.near[:0]
	for i := range mask {
		if touches(&mask[i], q0, q1, k0, k1) {
			s.near = append(s.near, mask[i])
		}
	}
}

// permit fills allow for the tile of queries and keys and reports whether any pair is allowed.
func (s *Scratch[T]) permit() bool {
	q, k := &s.queries, &s.keys
	met := false
	for i := range s.near {
		met = met || touches(&s.near[i], q.first, q.last, k.first, k.last)
	}
	if !met {
		return false
	}
	union := uint64(0)
	for r, p := range s.pos[:q.rows] {
		word := uint64(0)
		for i := range s.near {
			lo, hi := s.near[i].KeyRange(p)
			if lo >= hi || hi <= k.first || lo > k.last {
				continue
			}
			for _, run := range k.runs[:k.used] {
				word |= run.word(lo, hi)
			}
		}
		s.allow[r] = word
		union |= word
	}
	clear(s.allow[q.rows:])
	return union != 0
}

// cutQueries makes queries and pos of the next rows rows.
func (s *Scratch[T]) cutQueries(c *cursor, rows int) {
	s.queries.cut(c, rows)
	for _, r := range s.queries.runs[:s.queries.used] {
		for i := range r.count {
			s.pos[r.at+i] = r.start + i*r.stride
		}
	}
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
