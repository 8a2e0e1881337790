package attn

import (
	"cmp"
	"slices"
	"sort"
)

// Index is a mask of thousands of slices made ready to be asked about few queries at a time. It is
// built once, never changes, and may be used by many at once.
type Index struct {
	mask  Mask  // in order of Q0
	reach []int // largest Q1 of mask[:n+1]
}

// NewIndex is the index of a mask, which it copies.
func NewIndex(m Mask) *Index {
	x := &Index{mask: slices.Clone(m), reach: make([]int, len(m))}
	slices.SortStableFunc(x.mask, func(a, b Slice) int { return cmp.Compare(a.Q0, b.Q0) })
	top := 0
	for n, s := range x.mask {
		top = max(top, s.Q1)
		x.reach[n] = top
	}
	return x
}

// Near is the slices that may allow queries of [q0,q1) something, and perhaps some others: a mask
// that says of these queries what the whole one says. The caller must not write to it. It takes two
// binary searches and allocates nothing; a mask of packed documents gives those of the documents
// that the queries lie in.
func (x *Index) Near(q0, q1 int) Mask {
	end := sort.Search(len(x.mask), func(n int) bool { return x.mask[n].Q0 >= q1 })
	first := sort.Search(end, func(n int) bool { return x.reach[n] > q0 })
	return x.mask[first:end:end]
}
