package attn

import (
	"cmp"
	"slices"

	"github.com/kvloom/kvloom/mesh"
)

// NeededKeys is the part of ks that some query of qs may see, exactly: what a rank that owns qs
// must get of a block of ks. The spans are runs of those of ks, with their strides, in rising order
// of Start; neighbours that continue each other are one. It is nil where nothing is needed.
func NeededKeys(m Mask, qs, ks mesh.Set) mesh.Set { return needed(m, qs, ks, false) }

// NeededQueries is the part of qs that may see some key of ks, as NeededKeys is of ks.
func NeededQueries(m Mask, qs, ks mesh.Set) mesh.Set { return needed(m, ks, qs, true) }

// needed is the part of the positions to that the mask joins with some position of from. Slices say
// which queries see which keys; flip turns them about, when from is keys.
func needed(m Mask, from, to mesh.Set, flip bool) mesh.Set {
	if len(from) == 0 || len(to) == 0 {
		return nil
	}
	last := 0
	for _, p := range to {
		last = max(last, p.Last())
	}
	var r reach
	fromRising := rising(from)
	for _, s := range m {
		if flip {
			s = s.flipped()
		}
		s.K0, s.K1 = max(s.K0, to[0].Start), min(s.K1, last+1)
		if s.K0 >= s.K1 {
			continue
		}
		lo, hi := max(s.Q0, s.K0-s.Hi), min(s.Q1, s.K1-s.Lo)
		for _, p := range near(from, fromRising, lo, hi) {
			r.add(s, clip(p, lo, hi))
		}
	}
	r.merge()
	var set mesh.Set
	for _, p := range to {
		for _, x := range r.within(p) {
			set = append(set, mesh.Span{Start: p.At(x.lo), Stride: p.Stride, Count: x.hi - x.lo})
		}
	}
	return joined(set)
}

// flipped is the slice with the parts of queries and keys exchanged.
func (s Slice) flipped() Slice {
	return Slice{Q0: s.K0, Q1: s.K1, K0: s.Q0, K1: s.Q1, Lo: -s.Hi, Hi: -s.Lo}
}

// reach is a set of positions that can be reached: runs of positions, and combs, which have holes.
type reach struct {
	runs  []run
	combs []comb
	found []run // of within
}

// comb is what a slice lets positions of a stride reach when its band is narrower than the stride.
type comb struct {
	slice Slice
	from  mesh.Span
}

// add adds what a slice lets the positions p reach. p lies inside the slice's queries.
func (r *reach) add(s Slice, p mesh.Span) {
	if p.Count <= 0 {
		return
	}
	lo, hi := max(s.K0, p.Start+s.Lo), min(s.K1, p.Last()+s.Hi+1)
	switch {
	case lo >= hi:
	case p.Count > 1 && s.Hi-s.Lo+1 < p.Stride:
		r.combs = append(r.combs, comb{s, p})
	default:
		r.runs = extend(r.runs, lo, hi)
	}
}

// merge puts the runs in order and makes one of those that meet.
func (r *reach) merge() {
	slices.SortFunc(r.runs, func(a, b run) int { return cmp.Compare(a.lo, b.lo) })
	all := r.runs
	r.runs = all[:0]
	for _, x := range all {
		r.runs = extend(r.runs, x.lo, x.hi)
	}
}

// extend appends the run [lo,hi), or lengthens the last run where the two meet and the new one does
// not begin before it.
func extend(runs []run, lo, hi int) []run {
	if n := len(runs); n > 0 && runs[n-1].lo <= lo && lo <= runs[n-1].hi {
		runs[n-1].hi = max(runs[n-1].hi, hi)
		return runs
	}
	return append(runs, run{lo, hi})
}

// within is the places of p that can be reached, as runs in order that do not meet. The next call
// writes over them.
func (r *reach) within(p mesh.Span) []run {
	found := r.found[:0]
	n, _ := slices.BinarySearchFunc(r.runs, p.Start, func(x run, at int) int {
		return cmp.Compare(x.hi, at+1)
	})
	for _, x := range r.runs[n:] {
		if x.lo > p.Last() {
			break
		}
		if a, b := within(p, x.lo, x.hi); a < b {
			found = extend(found, a, b)
		}
	}
	solid := len(found)
	for n := range r.combs {
		found = r.combs[n].within(found, p)
	}
	r.found = found
	if len(found) == solid {
		return found
	}
	slices.SortFunc(found, func(a, b run) int { return cmp.Compare(a.lo, b.lo) })
	kept := found[:0]
	for _, x := range found {
		kept = extend(kept, x.lo, x.hi)
	}
	return kept
}

// within appends the places of p that the comb reaches.
func (c *comb) within(found []run, p mesh.Span) []run {
	s, from := &c.slice, c.from
	first, end := within(p, max(s.K0, from.Start+s.Lo), min(s.K1, from.Last()+s.Hi+1))
	if first >= end {
		return found
	}
	if p.Stride == from.Stride {
		// Place b of p and place t of from lie d + stride*(b-t) apart, so that b-t lies in a range,
		// and b in the sum of two.
		d := p.Start - from.Start
		lo, hi := ceilDiv(s.Lo-d, p.Stride), ceilDiv(s.Hi-d+1, p.Stride)-1
		a, b := max(first, lo), min(end, from.Count+hi)
		if lo <= hi && a < b {
			found = append(found, run{a, b})
		}
		return found
	}
	if end-first > from.Count {
		for t := range from.Count {
			i := from.At(t)
			a, b := within(p, max(s.K0, i+s.Lo), min(s.K1, i+s.Hi+1))
			if a < b {
				found = append(found, run{a, b})
			}
		}
		return found
	}
	for b := first; b < end; b++ {
		j := p.At(b)
		if t, u := within(from, j-s.Hi, j-s.Lo+1); t < u {
			found = append(found, run{b, b + 1})
		}
	}
	return found
}

// joined puts spans in order of their starts and makes one of neighbours of one stride of which the
// second continues the first.
func joined(set mesh.Set) mesh.Set {
	byStart := func(a, b mesh.Span) int { return cmp.Compare(a.Start, b.Start) }
	if !slices.IsSortedFunc(set, byStart) {
		slices.SortFunc(set, byStart)
	}
	kept := set[:0]
	for _, p := range set {
		if n := len(kept); n > 0 && kept[n-1].Stride == p.Stride &&
			kept[n-1].Last()+p.Stride == p.Start {
			kept[n-1].Count += p.Count
			continue
		}
		kept = append(kept, p)
	}
	return kept
}
