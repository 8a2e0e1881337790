package simd

import (
	"math"
	"slices"
	"testing"

	"github.com/kvloom/kvloom/mesh"
)

// TestCutsEndWithSpans: a cut ends where a span does if it has half of its size then and the next
// span has as much; else it is full.
func TestCutsEndWithSpans(t *testing.T) {
	for _, c := range []struct {
		spans []int // their rows
		limit int
		want  []int
	}{
		{[]int{1024, 1024}, 384, []int{384, 384, 256, 384, 384, 256}},
		{[]int{1024, 1024}, 96, slices.Concat(slices.Repeat([]int{96}, 10), []int{64},
			slices.Repeat([]int{96}, 10), []int{64})},
		{[]int{100, 900}, 384, []int{384, 384, 232}},
		{[]int{200, 100, 900}, 384, []int{300, 384, 384, 132}},
		{[]int{5, 6, 7, 8, 9}, 16, []int{16, 10, 9}},
		{[]int{300, 20}, 384, []int{320}},
		{[]int{384, 384}, 384, []int{384, 384}},
		{[]int{192, 900}, 384, []int{192, 384, 384, 132}}, // just half
		{[]int{191, 900}, 384, []int{384, 384, 323}},
		{[]int{300, 192, 900}, 384, []int{300, 192, 384, 384, 132}},
		{[]int{300, 191, 900}, 384, []int{384, 384, 384, 239}},
		{[]int{1}, 1, []int{1}},
	} {
		var set mesh.Set
		for _, n := range c.spans {
			set = append(set, mesh.Span{Start: 10000 * len(set), Stride: 1, Count: n})
		}
		var got []int
		for at := (cursor{set: set}); len(at.set) > 0; {
			got = append(got, at.reach(c.limit))
			at.skip(got[len(got)-1])
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("spans of %d rows, at most %d: %d, want %d", c.spans, c.limit, got, c.want)
		}
		if n := cuts(set, c.limit); n != len(got) {
			t.Errorf("spans of %d rows, at most %d: %d cuts", c.spans, c.limit, n)
		}
	}
}

// TestGroupsFillLanes: groups take each query times head once, in order, and waste less than a
// vector where there are queries for more than one.
func TestGroupsFillLanes(t *testing.T) {
	for _, isa := range []ISA{AVX2, AVX512} {
		vec := isa.lanes() / panelVecs
		for rows := 1; rows <= 200; rows++ {
			for heads := 1; heads <= 2; heads++ {
				sc := &Scratch{}
				sc.fitForward(isa, 8, 8, rows*heads)
				sc.setRows(&cursor{set: mesh.Set{{Start: 7, Stride: 3, Count: rows}}}, rows)
				sc.setGroups(isa, 0, rows, 1, 1+heads, 4)
				var items []int
				vecs := 0
				for i := range sc.groups {
					g := &sc.groups[i]
					if g.vecs < 2 || g.vecs > panelVecs || g.n < 1 || g.n > g.vecs*vec {
						t.Fatalf("%v, %d rows: group %d has %d in %d vectors", isa, rows, i, g.n,
							g.vecs)
					}
					items = append(items, g.item[:g.n]...)
					vecs += g.vecs
				}
				if want := max(2, ceilDiv(rows*heads, vec)); vecs != want {
					t.Errorf("%v, %d rows, %d heads: %d vectors, want %d", isa, rows, heads, vecs,
						want)
				}
				for i, x := range items {
					if want := i%rows*4 + 1 + i/rows; x != want {
						t.Fatalf("%v, %d rows, %d heads: lane %d is item %d, want %d", isa, rows,
							heads, i, x, want)
					}
				}
				if len(items) != rows*heads {
					t.Errorf("%v, %d rows, %d heads: %d lanes", isa, rows, heads, len(items))
				}
			}
		}
	}
}

// TestSplit: two floats are x to 2^-45, and neither makes NaN of an infinity.
func TestSplit(t *testing.T) {
	for _, x := range []float64{1 / math.Sqrt(128), -1 / math.Sqrt(3), 0.125, -2, 1e-20, math.Pi} {
		a, b := split(x)
		if sum := float64(a) + float64(b); math.Abs(sum-x) > math.Abs(x)*0x1p-45 {
			t.Errorf("%g is split into %g and %g, off by %g", x, a, b, sum-x)
		}
		if inf := math.Inf(1); math.IsNaN(inf*float64(a) + inf*float64(b)) {
			t.Errorf("%g is split into %g and %g: an infinity times both is NaN", x, a, b)
		}
	}
}
