package plan

import (
	"sort"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
)

// runs is a token set as a sweep needs it.
type runs struct {
	spans  mesh.Set
	lo, hi int  // smallest and largest token
	rising bool // spans lie one after the other
}

func newRuns(set mesh.Set) runs {
	r := runs{spans: set, rising: true}
	for i, p := range set {
		if i == 0 {
			r.lo, r.hi = p.Start, p.Last()
			continue
		}
		r.rising = r.rising && r.hi < p.Start
		r.lo, r.hi = min(r.lo, p.Start), max(r.hi, p.Last())
	}
	return r
}

// near gives the range [a,b) of spans that may meet tokens [lo,hi).
func (r *runs) near(lo, hi int) (a, b int) {
	if len(r.spans) < 8 || !r.rising {
		return 0, len(r.spans)
	}
	b = sort.Search(len(r.spans), func(n int) bool { return r.spans[n].Start >= hi })
	return sort.Search(b, func(n int) bool { return r.spans[n].Last() >= lo }), b
}

// from is the first span of rising ones with a token at lo or after. The search begins at hint,
// the answer to a question before, which is mostly near.
func (r *runs) from(lo, hint int) int {
	const nearby = 8
	if hint > 0 && r.spans[hint-1].Last() >= lo {
		hint = 0
	}
	for n := range nearby {
		if i := hint + n; i >= len(r.spans) || r.spans[i].Last() >= lo {
			return min(i, len(r.spans))
		}
	}
	at := hint + nearby
	if at >= len(r.spans) {
		return len(r.spans)
	}
	return at + sort.Search(len(r.spans)-at, func(n int) bool {
		return r.spans[at+n].Last() >= lo
	})
}

// until is the end of the spans from i on that begin below hi.
func (r *runs) until(hi, i int) int {
	const nearby = 8
	for n := range nearby {
		if at := i + n; at >= len(r.spans) || r.spans[at].Start >= hi {
			return at
		}
	}
	at := i + nearby
	return at + sort.Search(len(r.spans)-at, func(n int) bool {
		return r.spans[at+n].Start >= hi
	})
}

// tiler is told what a mask allows of a tile of query spans and key spans.
type tiler interface {
	// whole: all pairs of query spans i0 to i1-1 and key spans j0 to j1-1.
	whole(i0, i1, j0, j1 int)
	// border: what the slice allows of query span i and key span j, maybe nothing.
	border(s *attn.Slice, i, j int)
}

// sweep tells t what the mask allows of the tile a x b, each allowed pair once. Where the spans of
// both sets lie one after the other, it goes over slices, query spans and key spans once; of
// shards of a thousand documents neither spans nor slices are looked for.
func (x *maskIndex) sweep(a, b *runs, t tiler) {
	if len(a.spans) == 0 || len(b.spans) == 0 {
		return
	}
	i, j := 0, 0
	near := x.near(a.lo, a.hi)
	for n := range near {
		s := &near[n]
		switch {
		case a.hi < s.Q0 || a.lo >= s.Q1 || b.hi < s.K0 || b.lo >= s.K1 ||
			b.hi-a.lo < s.Lo || b.lo-a.hi > s.Hi:
		case s.Q0 <= a.lo && a.hi < s.Q1 && s.K0 <= b.lo && b.hi < s.K1 &&
			s.Lo <= b.lo-a.hi && b.hi-a.lo <= s.Hi:
			t.whole(0, len(a.spans), 0, len(b.spans))
		case a.rising && b.rising:
			i, j = a.from(s.Q0, i), b.from(s.K0, j)
			sweepSlice(s, a, b, i, j, t)
		default:
			sweepSpans(s, a, b, t)
		}
	}
}

// sweepSlice is sweep for one slice and rising spans, of which i and j are the first that reach
// into the slice. While key span j rises, so do four bounds among the query spans:
//
//	p1 first that reaches the band     p2 first wholly below its upper edge
//	p3 end of those above the lower    p4 end of those that reach the band
//
//	     p1        p2           p3       p4
//	 ....|  border |   whole    | border |....
func sweepSlice(s *attn.Slice, a, b *runs, i, j int, t tiler) {
	as, bs := a.spans, b.spans
	iEnd, jEnd := a.until(s.Q1, i), b.until(s.K1, j)
	if i >= iEnd || j >= jEnd {
		return
	}
	// [w0,w1) and [v0,v1) are those that lie in the slice's rectangle to their last token.
	w0, w1, v0, v1 := i, iEnd, j, jEnd
	if as[i].Start < s.Q0 {
		w0++
	}
	if as[iEnd-1].Last() >= s.Q1 {
		w1--
	}
	if bs[j].Start < s.K0 {
		v0++
	}
	if bs[jEnd-1].Last() >= s.K1 {
		v1--
	}
	if w0 == i && w1 == iEnd && v0 == j && v1 == jEnd && s.Lo <= bs[v0].Start-as[w1-1].Last() &&
		bs[v1-1].Last()-as[w0].Start <= s.Hi {
		t.whole(w0, w1, v0, v1)
		return
	}
	p1, p2, p3, p4 := i, w0, w0, i
	for ; j < jEnd && p1 < iEnd; j++ {
		k0, k1 := bs[j].Start, bs[j].Last()
		for p1 < iEnd && as[p1].Last() < k0-s.Hi {
			p1++
		}
		for p4 < iEnd && as[p4].Start <= k1-s.Lo {
			p4++
		}
		c, d := p4, p4
		if v0 <= j && j < v1 {
			for p2 < w1 && as[p2].Start < k1-s.Hi {
				p2++
			}
			for p3 < w1 && as[p3].Last() <= k0-s.Lo {
				p3++
			}
			if p2 < p3 {
				c, d = p2, p3
				t.whole(c, d, j, j+1)
			}
		}
		for n := p1; n < c; n++ {
			t.border(s, n, j)
		}
		for n := d; n < p4; n++ {
			t.border(s, n, j)
		}
	}
}

// sweepSpans is sweep for one slice, span by span.
func sweepSpans(s *attn.Slice, a, b *runs, t tiler) {
	i, iEnd := a.near(s.Q0, s.Q1)
	for ; i < iEnd; i++ {
		p := spanClip(a.spans[i], s.Q0, s.Q1)
		if p.Count == 0 {
			continue
		}
		first, last := p.Start, p.Last()
		inQ := p.Count == a.spans[i].Count
		lo, hi := max(s.K0, first+s.Lo), min(s.K1, last+s.Hi+1)
		j, jEnd := b.near(lo, hi)
		for ; j < jEnd; j++ {
			k := b.spans[j]
			k0, k1 := k.Start, k.Last()
			switch {
			case k1 < lo || k0 >= hi:
			case inQ && s.K0 <= k0 && k1 < s.K1 && s.Lo <= k0-last && k1-first <= s.Hi:
				t.whole(i, i+1, j, j+1)
			default:
				t.border(s, i, j)
			}
		}
	}
}
