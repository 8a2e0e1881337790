package plan

import (
	"cmp"
	"math/bits"
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
	t := &f.tileSum
	*t = tileSum{f: f, a: a, b: b}
	x.sweep(&a.runs, &b.runs, t)
	return t.sum
}

// tileSum adds up what a sweep tells.
type tileSum struct {
	f    *field
	a, b *setInfo
	sum  uint64
}

func (t *tileSum) whole(i0, i1, j0, j1 int) {
	rows, keys := fsub(t.a.xs[i1], t.a.xs[i0]), fsub(t.b.ys[j1], t.b.ys[j0])
	t.sum = fadd(t.sum, fmul(rows, keys))
}

func (t *tileSum) border(s *attn.Slice, i, j int) {
	q, k := spanClip(t.a.spans[i], s.Q0, s.Q1), spanClip(t.b.spans[j], s.K0, s.K1)
	t.sum = fadd(t.sum, t.f.band(q, k, s.Lo, s.Hi))
}

// tile is the sum of a tile by the numbers of its sets.
func (v *verifier) tile(q, k SetID) uint64 {
	a, b := &v.sets[q], &v.sets[k]
	sum, known := v.tiles.at(a.same, b.same, len(v.sets))
	if !known {
		*sum = v.field.tile(v.mask, a, b)
	}
	return *sum
}

// tileMemo remembers figures of tiles, since the backward pass attends those of the forward pass,
// and head ranks those of each other. It is direct-mapped.
type tileMemo struct {
	cells []tileCell
	shift int
}

type tileCell struct{ key, value uint64 }

// maxTileBits bounds a memo: 1 MiB.
const maxTileBits = 16

// at is where the figure of tile (a,b) of a header of n sets lies, and whether it is there.
func (m *tileMemo) at(a, b int32, n int) (value *uint64, known bool) {
	if m.cells == nil {
		size := min(2*bits.Len(uint(n)), maxTileBits)
		m.cells, m.shift = make([]tileCell, 1<<size), 64-size
	}
	key := uint64(a)<<32 | uint64(b) + 1
	c := &m.cells[mix64(key)>>m.shift]
	known, c.key = c.key == key, key
	return &c.value, known
}
