package plan

import (
	"cmp"
	"slices"
	"sort"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
)

// maskIndex finds the slices of a mask that may meet a run of queries.
type maskIndex struct {
	slices []attn.Slice // by Q0
	ends   []int        // largest Q1 up to here
}

func newMaskIndex(m attn.Mask) *maskIndex {
	x := &maskIndex{slices: slices.Clone(m)}
	slices.SortStableFunc(x.slices, func(a, b attn.Slice) int { return cmp.Compare(a.Q0, b.Q0) })
	end := 0
	for _, s := range x.slices {
		end = max(end, s.Q1)
		x.ends = append(x.ends, end)
	}
	return x
}

// within is the mask of the pairs inside a rectangle.
func (x *maskIndex) within(r rect) *maskIndex {
	var m attn.Mask
	for _, s := range x.slices {
		s.Q0, s.Q1 = max(s.Q0, r.q0), min(s.Q1, r.q1)
		s.K0, s.K1 = max(s.K0, r.k0), min(s.K1, r.k1)
		if s.Q0 < s.Q1 && s.K0 < s.K1 {
			m = append(m, s)
		}
	}
	return newMaskIndex(m)
}

// rect is queries [q0,q1) times keys [k0,k1).
type rect struct{ q0, q1, k0, k1 int }

// near are the slices that may meet queries lo to hi.
func (x *maskIndex) near(lo, hi int) []attn.Slice {
	if len(x.slices) == 1 {
		return x.slices
	}
	b := sort.Search(len(x.slices), func(n int) bool { return x.slices[n].Q0 > hi })
	a := sort.Search(b, func(n int) bool { return x.ends[n] > lo })
	return x.slices[a:b]
}

// total is the mask's own sum of x^q y^k over its pairs.
func (f *field) total(x *maskIndex) uint64 {
	sum := uint64(0)
	for _, s := range x.slices {
		a := mesh.Span{Start: s.Q0, Stride: 1, Count: s.Q1 - s.Q0}
		b := mesh.Span{Start: s.K0, Stride: 1, Count: s.K1 - s.K0}
		sum = fadd(sum, f.band(a, b, s.Lo, s.Hi))
	}
	return sum
}

// tile is the sum of x^q y^k over the pairs of the mask with q in a and k in b.
func (f *field) tile(x *maskIndex, a, b *setInfo) uint64 {
	sum := uint64(0)
	for _, s := range x.near(a.lo, a.hi) {
		if a.hi < s.Q0 || a.lo >= s.Q1 || b.hi < s.K0 || b.lo >= s.K1 ||
			b.hi-a.lo < s.Lo || b.lo-a.hi > s.Hi {
			continue
		}
		if s.Q0 <= a.lo && a.hi < s.Q1 && s.K0 <= b.lo && b.hi < s.K1 &&
			s.Lo <= b.lo-a.hi && b.hi-a.lo <= s.Hi {
			sum = fadd(sum, fmul(a.x, b.y))
			continue
		}
		sum = fadd(sum, f.spans(&s, a, b))
	}
	return sum
}

// spans is tile for one slice, span by span: pairs of spans that the slice allows wholly cost an
// addition.
func (f *field) spans(s *attn.Slice, a, b *setInfo) uint64 {
	sum := uint64(0)
	i, end := a.near(s.Q0, s.Q1)
	for ; i < end; i++ {
		p := a.spans[i]
		first, last := p.Start, p.Last()
		if last < s.Q0 || first >= s.Q1 {
			continue
		}
		inQ := s.Q0 <= first && last < s.Q1
		whole := uint64(0)
		lo, hi := max(s.K0, first+s.Lo), min(s.K1, last+s.Hi+1)
		j, endK := b.near(lo, hi)
		for ; j < endK; j++ {
			k := b.spans[j]
			k0, k1 := k.Start, k.Last()
			switch {
			case k1 < lo || k0 >= hi:
			case inQ && s.K0 <= k0 && k1 < s.K1 && s.Lo <= k0-last && k1-first <= s.Hi:
				whole = fadd(whole, b.ys[j])
			default:
				q, k := spanClip(p, s.Q0, s.Q1), spanClip(k, s.K0, s.K1)
				sum = fadd(sum, f.band(q, k, s.Lo, s.Hi))
			}
		}
		sum = fadd(sum, fmul(a.xs[i], whole))
	}
	return sum
}
