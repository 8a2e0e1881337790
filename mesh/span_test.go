package mesh_test

import (
	"slices"
	"testing"

	"github.com/kvloom/kvloom/mesh"
	"pgregory.net/rapid"
)

// drawSet draws a set of up to five disjoint spans, one after the other, of any stride.
func drawSet(t *rapid.T) mesh.Set {
	var set mesh.Set
	at := 0
	for range rapid.IntRange(0, 5).Draw(t, "spans") {
		s := mesh.Span{
			Start:  at + rapid.IntRange(0, 4).Draw(t, "gap"),
			Stride: rapid.IntRange(1, 4).Draw(t, "stride"),
			Count:  rapid.IntRange(1, 9).Draw(t, "count"),
		}
		set = append(set, s)
		at = s.Last() + 1
	}
	return set
}

func TestSpan(t *testing.T) {
	s := mesh.Span{Start: 3, Stride: 4, Count: 5}
	if got := (mesh.Set{s}).Positions(); !slices.Equal(got, []int{3, 7, 11, 15, 19}) {
		t.Errorf("positions %v", got)
	}
	if s.Last() != 19 || s.At(2) != 11 {
		t.Errorf("last %d, third %d", s.Last(), s.At(2))
	}
}

// TestRowsAreSlicesOfPositions: rows [lo,hi) of a set are positions [lo,hi) of its list, and what
// Rows gives is well-formed again.
func TestRowsAreSlicesOfPositions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := drawSet(t)
		all := set.Positions()
		if len(all) != set.Len() {
			t.Fatalf("%v lists %d positions, Len is %d", set, len(all), set.Len())
		}
		lo := rapid.IntRange(0, set.Len()).Draw(t, "lo")
		hi := rapid.IntRange(lo, set.Len()).Draw(t, "hi")
		rows := set.Rows(lo, hi)
		if got := rows.Positions(); !slices.Equal(got, all[lo:hi]) {
			t.Fatalf("rows [%d,%d) of %v are %v, want %v", lo, hi, set, got, all[lo:hi])
		}
		for _, s := range rows {
			if s.Count < 1 || s.Stride < 1 {
				t.Fatalf("rows [%d,%d) of %v have the span %+v", lo, hi, set, s)
			}
		}
	})
}

func TestRowsOutOfRangePanics(t *testing.T) {
	set := mesh.Set{{Start: 0, Stride: 1, Count: 3}}
	for _, r := range [][2]int{{-1, 2}, {2, 1}, {0, 4}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("rows %v of %v: no panic", r, set)
				}
			}()
			set.Rows(r[0], r[1])
		}()
	}
}

// TestCutEven: the runs follow one another from 0 to n, sizes fall by one at most once.
func TestCutEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 300).Draw(t, "n")
		parts := rapid.IntRange(1, 40).Draw(t, "parts")
		at, before := 0, n
		for i := range parts {
			lo, hi := mesh.CutEven(n, parts, i)
			size := hi - lo
			if lo != at || size > before {
				t.Fatalf("run %d of %d of %d is [%d,%d): it must start at %d, no longer than %d",
					i, parts, n, lo, hi, at, before)
			}
			if small := n / parts; size < small || size > small+1 {
				t.Fatalf("run %d of %d of %d has %d, want %d or one more", i, parts, n, size, small)
			}
			at, before = hi, size
		}
		if at != n {
			t.Fatalf("%d runs of %d end at %d", parts, n, at)
		}
	})
}
