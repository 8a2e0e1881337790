package cpu

import (
	"slices"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
)

// sameRows reports whether two sets list the same tokens in the same order, however they are cut.
func sameRows(a, b mesh.Set) bool {
	if slices.Equal(a, b) {
		return true
	}
	var p, q mesh.Span
	for {
		if p.Count == 0 {
			if len(a) == 0 {
				break
			}
			p, a = a[0], a[1:]
		}
		if q.Count == 0 {
			if len(b) == 0 {
				return false
			}
			q, b = b[0], b[1:]
		}
		n := min(p.Count, q.Count)
		if p.Stride != q.Stride {
			n = 1
		}
		if p.Start != q.Start {
			return false
		}
		p, q = past(p, n), past(q, n)
	}
	return q.Count == 0 && len(b) == 0
}

// past is the span without its first n tokens.
func past(p mesh.Span, n int) mesh.Span {
	return mesh.Span{Start: p.Start + n*p.Stride, Stride: p.Stride, Count: p.Count - n}
}

// finder finds the rows of tokens in a set. It looks from where it last was, so that tokens in the
// set's own order cost one pass.
type finder struct {
	set        mesh.Set
	span, base int
}

// find is the row of the first token of rest, and how many tokens of rest lie in consecutive rows
// from there on; 0 when it is not in the set.
func (f *finder) find(rest mesh.Span) (row, run int) {
	if row, run = f.onward(rest); run == 0 {
		f.span, f.base = 0, 0
		row, run = f.onward(rest)
	}
	return row, run
}

func (f *finder) onward(rest mesh.Span) (row, run int) {
	for ; f.span < len(f.set) && f.set[f.span].Start <= rest.Start; f.span++ {
		s := f.set[f.span]
		off := rest.Start - s.Start
		if off%s.Stride == 0 && off/s.Stride < s.Count {
			i := off / s.Stride
			if s.Stride != rest.Stride {
				return f.base + i, 1
			}
			return f.base + i, min(rest.Count, s.Count-i)
		}
		f.base += s.Count
	}
	return 0, 0
}

// walk goes through the tokens of a region that lies in two blocks, in runs of rows that are
// consecutive in both.
//
//	region   . . 4 5 6 . 9      rows a.. of from, rows b.. of to, n of them
type walk struct {
	region   mesh.Set
	rest     mesh.Span
	from, to finder
	a, b, n  int
	lost     bool // a token of the region is not in one of the blocks
}

func newWalk(region, from, to mesh.Set) walk {
	return walk{region: region, from: finder{set: from}, to: finder{set: to}}
}

// next goes to the next run.
func (w *walk) next() bool {
	if w.rest.Count == 0 {
		if len(w.region) == 0 {
			return false
		}
		w.rest, w.region = w.region[0], w.region[1:]
	}
	var na, nb int
	w.a, na = w.from.find(w.rest)
	w.b, nb = w.to.find(w.rest)
	w.n = min(na, nb)
	if w.n == 0 {
		w.lost = true
		return false
	}
	w.rest = past(w.rest, w.n)
	return true
}

// runOf is the row of set at which the tokens of region lie, one after the other; ok says that they
// do.
func runOf(region, set mesh.Set) (row int, ok bool) {
	w := newWalk(region, set, region)
	for first := true; w.next(); first = false {
		if first {
			row = w.a - w.b
		}
		if w.a-w.b != row {
			return 0, false
		}
	}
	return row, !w.lost
}

// inside reports whether all tokens of a region are in both blocks.
func inside(region, from, to mesh.Set) bool {
	w := newWalk(region, from, to)
	for w.next() {
	}
	return !w.lost
}

// clip cuts the run to rows [lo,hi) of to.
func (w *walk) clip(lo, hi int) (a, b, n int) {
	skip := max(lo-w.b, 0)
	n = min(w.b+w.n, hi) - w.b - skip
	return w.a + skip, w.b + skip, n
}

// place copies v's region to its rows and heads of dst, as far as those are rows [lo,hi).
func place[T attn.Float](dst, v *view[T], lo, hi int) {
	for p := range maxParts {
		if v.size(p) > 0 {
			placePart(dst, p, v, p, lo, hi)
		}
	}
}

// placePart is place for one part of v, which becomes part to of dst.
func placePart[T attn.Float](dst *view[T], to int, v *view[T], from, lo, hi int) {
	src, out := v.part8(from), dst.part8(to)
	ws, wd := v.size(from), dst.size(to)
	hs, hd := v.heads.Len(), dst.heads.Len()
	heads := v.region.heads
	s0, d0 := int(heads.Lo-v.heads.Lo), int(heads.Lo-dst.heads.Lo)
	for at := newWalk(v.region.set, v.set, dst.set); at.next(); {
		a, b, n := at.clip(lo, hi)
		if n > 0 && heads.Len() == hs && hs == hd {
			put[T](out[b*hd*wd:(b+n)*hd*wd], src[a*hs*ws:(a+n)*hs*ws], wd < ws)
			continue
		}
		for i := range n {
			x, y := (a+i)*hs+s0, (b+i)*hd+d0
			put[T](out[y*wd:][:heads.Len()*wd], src[x*ws:][:heads.Len()*ws], wd < ws)
		}
	}
}

// put copies a run of elements; narrow says that they are of T and become BF16.
func put[T attn.Float](to, from []byte, narrow bool) {
	if narrow {
		attn.Narrow(cast[attn.BF16](to), cast[T](from))
		return
	}
	copy(to, from)
}

// gather sums sources into dst, as far as that is rows [lo,hi): in the order of the sources, the
// first that has a row and head sets it and later ones are added.
func gather[T attn.Float](dst *view[T], sources []view[T], lo, hi int) {
	for i := range sources {
		v := &sources[i]
		for p, w := range v.widths() {
			if w == 0 {
				continue
			}
			from, to := v.part(p), dst.part(p)
			ws, wd := v.heads.Len()*w, dst.heads.Len()*w
			for at := newWalk(v.region.set, v.set, dst.set); at.next(); {
				a, b, n := at.clip(lo, hi)
				for ; n > 0; a, b, n = a+1, b+1, n-1 {
					gatherRow(to[b*wd:], from[a*ws:], dst, sources, i, b, w)
				}
			}
		}
	}
}

// sum adds sources of contributors (heads) into dst, which has one head, as far as that is rows
// [lo,hi): in the order of the sources and their heads; head 0 sets a row and the others are added.
func sum[T attn.Float](dst *view[T], sources []view[T], lo, hi int) {
	to := dst.part(0)
	for i := range sources {
		v := &sources[i]
		from, heads := v.part(0), v.heads.Len()
		for h := v.region.heads.Lo; h < v.region.heads.Hi; h++ {
			for at := newWalk(v.region.set, v.set, dst.set); at.next(); {
				a, b, n := at.clip(lo, hi)
				if n > 0 {
					sumRun(to[b:b+n], from[a*heads+int(h-v.heads.Lo):], heads, h == 0)
				}
			}
		}
	}
}

// sumRun sets to, or adds to it, every stride-th of from.
func sumRun[T attn.Float](to, from []T, stride int, set bool) {
	switch {
	case set:
		for i := range to {
			to[i] = from[i*stride]
		}
	case stride == 1:
		for i, x := range from[:len(to)] {
			to[i] += x
		}
	default:
		for i := range to {
			to[i] += from[i*stride]
		}
	}
}

// gatherRow sets or adds the heads of row b of dst that source i has.
func gatherRow[T attn.Float](to, from []T, dst *view[T], sources []view[T], i, b, w int) {
	v := &sources[i]
	for h := v.region.heads.Lo; h < v.region.heads.Hi; h++ {
		src := from[int(h-v.heads.Lo)*w:][:w]
		sum := to[int(h-dst.heads.Lo)*w:][:w]
		if !begun(dst, sources[:i], b, h) {
			copy(sum, src)
			continue
		}
		for e, x := range src {
			sum[e] += x
		}
	}
}

// begun reports whether one of the sources has head h of row b of dst.
func begun[T attn.Float](dst *view[T], sources []view[T], b int, h int32) bool {
	for i := range sources {
		r := &sources[i].region
		if h < r.heads.Lo || h >= r.heads.Hi {
			continue
		}
		if slices.Equal(r.set, dst.set) || hasToken(r.set, token(dst.set, b)) {
			return true
		}
	}
	return false
}

// token is the token of row b of a set.
func token(set mesh.Set, b int) int {
	for _, s := range set {
		if b < s.Count {
			return s.At(b)
		}
		b -= s.Count
	}
	panic("cpu: row outside its set")
}

func hasToken(set mesh.Set, t int) bool {
	f := finder{set: set}
	_, n := f.onward(mesh.Span{Start: t, Stride: 1, Count: 1})
	return n > 0
}
