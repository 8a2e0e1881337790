package attn

import (
	"sort"

	"github.com/kvloom/kvloom/mesh"
)

// Class says how much of a tile, all pairs of a query span and a key span, a mask allows.
type Class uint8

// The classes of a tile. A tile without pairs is Empty.
const (
	Empty  Class = iota // no pair is allowed
	Whole               // every pair is allowed
	Border              // some are
)

// String is the class in a word.
func (c Class) String() string {
	switch c {
	case Empty:
		return "empty"
	case Whole:
		return "whole"
	}
	return "border"
}

// TotalPairs counts the allowed pairs of the whole mask.
func (m Mask) TotalPairs() int64 {
	var n int64
	for _, s := range m {
		n += s.total()
	}
	return n
}

// Pairs counts the allowed pairs of the tile qs x ks. Span pairs of equal stride (contiguous runs
// among them) cost a closed form each; others a loop over the shorter span. It does not allocate.
func (m Mask) Pairs(qs, ks mesh.Set) int64 {
	var n int64
	qRising, kRising := rising(qs), rising(ks)
	for x := range m {
		s := &m[x]
		for _, q := range near(qs, qRising, s.Q0, s.Q1) {
			lo, hi := max(s.K0, q.Start+s.Lo), min(s.K1, q.Last()+s.Hi+1)
			for _, k := range near(ks, kRising, lo, hi) {
				n += s.pairs(q, k)
			}
		}
	}
	return n
}

// Class sorts the tile q x k: exactly, also where several slices cover it together. It takes a few
// nanoseconds a slice where spans have equal strides, and does not allocate.
func (m Mask) Class(q, k mesh.Span) Class {
	area := int64(q.Count) * int64(k.Count)
	var n int64
	for x := range m {
		n += m[x].pairs(q, k)
		if n == area {
			break
		}
	}
	switch {
	case n == 0:
		return Empty
	case n == area:
		return Whole
	}
	return Border
}

// total counts the pairs of the slice.
func (s Slice) total() int64 {
	d := s.K0 - s.Q0
	return band(s.Q1-s.Q0, s.K1-s.K0, s.Lo-d, s.Hi-d)
}

// pairs counts the pairs of the tile q x k that the slice allows.
func (s *Slice) pairs(q, k mesh.Span) int64 {
	qLast, kLast := q.Last(), k.Last()
	if qLast < s.Q0 || q.Start >= s.Q1 || kLast < s.K0 || k.Start >= s.K1 ||
		kLast-q.Start < s.Lo || k.Start-qLast > s.Hi {
		return 0
	}
	if s.Q0 <= q.Start && qLast < s.Q1 && s.K0 <= k.Start && kLast < s.K1 &&
		s.Lo <= k.Start-qLast && kLast-q.Start <= s.Hi {
		return int64(q.Count) * int64(k.Count)
	}
	q, k = clip(q, s.Q0, s.Q1), clip(k, s.K0, s.K1)
	if q.Count <= 0 || k.Count <= 0 {
		return 0
	}
	// The stride of a single token is any stride: take the other's, for the closed form.
	if q.Count == 1 {
		q.Stride = k.Stride
	} else if k.Count == 1 {
		k.Stride = q.Stride
	}
	d := k.Start - q.Start
	switch {
	case q.Stride != k.Stride:
		return s.pairsByRow(q, k)
	case q.Stride == 1:
		return band(q.Count, k.Count, s.Lo-d, s.Hi-d)
	}
	// j-i = d + stride*(b-a) for row a and key b.
	return band(q.Count, k.Count, ceilDiv(s.Lo-d, q.Stride), ceilDiv(s.Hi-d+1, q.Stride)-1)
}

// pairsByRow counts with a loop over the shorter span, for strides that differ.
func (s *Slice) pairsByRow(q, k mesh.Span) int64 {
	var n int64
	if q.Count <= k.Count {
		for a := range q.Count {
			i := q.At(a)
			lo, hi := within(k, i+s.Lo, i+s.Hi+1)
			n += int64(max(hi-lo, 0))
		}
		return n
	}
	for b := range k.Count {
		j := k.At(b)
		lo, hi := within(q, j-s.Hi, j-s.Lo+1)
		n += int64(max(hi-lo, 0))
	}
	return n
}

// band counts the pairs (a,b), 0 <= a < nq, 0 <= b < nk, with lo <= b-a <= hi.
func band(nq, nk, lo, hi int) int64 {
	if nq <= 0 || nk <= 0 || lo > hi {
		return 0
	}
	return stairs(nq, nk, hi+1) - stairs(nq, nk, lo)
}

// stairs counts the pairs with b-a < c: the sum over a of a+c clamped to [0,nk], that is of
// max(a+c,0) - max(a+c-nk,0). c is clamped first, which changes nothing, ends the second sum's run
// of zeros inside it and keeps the products small.
func stairs(nq, nk, c int) int64 {
	c = min(max(c, -nq), nk)
	return triangle(c+nq-1) - triangle(c-1) - triangle(c+nq-1-nk)
}

// triangle is 1 + 2 + ... + n, 0 for n < 1.
func triangle(n int) int64 {
	x := int64(max(n, 0))
	return x * (x + 1) / 2
}

// within is the range [a,b) of the places of p whose positions lie in [lo,hi); empty when a >= b.
func within(p mesh.Span, lo, hi int) (a, b int) {
	if p.Stride == 1 {
		return max(lo-p.Start, 0), min(hi-p.Start, p.Count)
	}
	return max(ceilDiv(lo-p.Start, p.Stride), 0), min(ceilDiv(hi-p.Start, p.Stride), p.Count)
}

// clip is the part of p inside [lo,hi); its Count is 0 or less when there is none.
func clip(p mesh.Span, lo, hi int) mesh.Span {
	a, b := within(p, lo, hi)
	return mesh.Span{Start: p.At(a), Stride: p.Stride, Count: b - a}
}

// ceilDiv is x/y rounded up, y > 0.
func ceilDiv(x, y int) int {
	q := x / y
	if x%y > 0 {
		q++
	}
	return q
}

// rising reports whether the spans lie one after the other, so that Last rises with Start. Strided
// spans may interleave.
func rising(set mesh.Set) bool {
	for n := 1; n < len(set); n++ {
		if set[n-1].Last() >= set[n].Start {
			return false
		}
	}
	return true
}

// near drops spans at both ends of the set that cannot meet [lo,hi).
func near(set mesh.Set, rising bool, lo, hi int) mesh.Set {
	end := sort.Search(len(set), func(n int) bool { return set[n].Start >= hi })
	set = set[:end]
	if !rising {
		return set
	}
	return set[sort.Search(end, func(n int) bool { return set[n].Last() >= lo }):]
}
