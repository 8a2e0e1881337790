package simd

import (
	"math"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
)

// run is an arithmetic run of positions among the keys of a tile: key at+i is position
// start+i*stride, 0 <= i < count.
type run struct{ at, start, stride, count int }

// span is the keys [a,b) of the run, as keys of the tile, whose positions lie in [lo,hi).
func (r *run) span(lo, hi int) (a, b int) {
	b = r.count
	if lo > r.start {
		a = ceilDiv(lo-r.start, r.stride)
	}
	if hi-r.start < r.count*r.stride {
		b = ceilDiv(hi-r.start, r.stride)
	}
	return r.at + a, r.at + b
}

// ceilDiv is n/d rounded up, and at least 0, for positive d.
func ceilDiv(n, d int) int {
	if n <= 0 {
		return 0
	}
	if d == 1 {
		return n
	}
	return (n + d - 1) / d
}

// cursor walks the rows of a set in order.
type cursor struct {
	set mesh.Set
	off int // rows of set[0] that have been passed
}

// take gives the next rows, at most limit, that lie in one span.
func (c *cursor) take(limit int) run {
	span := c.set[0]
	r := run{
		start: span.At(c.off), stride: span.Stride, count: min(limit, span.Count-c.off),
	}
	if c.off += r.count; c.off == span.Count {
		c.set, c.off = c.set[1:], 0
	}
	return r
}

// skip passes n rows.
func (c *cursor) skip(n int) {
	for n > 0 {
		n -= c.take(n).count
	}
}

// bounds is where the next n rows lie, which it passes.
func (c *cursor) bounds(n int) box {
	b := box{math.MaxInt, math.MinInt, math.MinInt, math.MaxInt}
	for n > 0 {
		r := c.take(n)
		n -= r.count
		b.q0, b.q1 = min(b.q0, r.start), max(b.q1, r.last())
	}
	return b
}

// pass passes the next cuts, n of them if there are so many, of up to limit rows each.
func (c *cursor) pass(limit, n int) (rows int) {
	for ; n > 0 && len(c.set) > 0; n-- {
		cut := c.reach(limit)
		c.skip(cut)
		rows += cut
	}
	return rows
}

// reach is how many of the next rows a cut takes that may have limit: up to the last end of a span
// where that is at least half of them and the next span has as many, since what lies in one span
// has fewer borders of the mask; else all.
func (c *cursor) reach(limit int) int {
	n, off := 0, c.off
	for i := range c.set {
		left := c.set[i].Count - off
		off = 0
		if n+left > limit {
			if 2*n >= limit && 2*left >= limit {
				return n
			}
			return limit
		}
		n += left
	}
	return n
}

// last is the position of the run's last row.
func (r *run) last() int { return r.start + (r.count-1)*r.stride }

// tile is a cut of the keys: its rows in K and V, their positions, and where the kernels read them.
type tile struct {
	row0, n     int // keys [row0, row0+n) of the block
	runs        []run
	first, last int // smallest and largest position
	k, v        rows
	woven       bool // Scratch.dot holds its keys and values
}

// cut makes t of the next keys.
func (t *tile) cut(c *cursor, row0, n int) {
	t.row0, t.n, t.runs = row0, n, t.runs[:0]
	t.first, t.last = math.MaxInt, math.MinInt
	t.k, t.v, t.woven = rows{}, rows{}, false
	for at := 0; at < n; {
		r := c.take(n - at)
		r.at = at
		at += r.count
		t.first, t.last = min(t.first, r.start), max(t.last, r.last())
		t.runs = append(t.runs, r)
	}
}

// start begins to cut keys into tiles: next gives one after the other, while keys are left.
func (sc *Scratch) start(keys mesh.Set) {
	sc.keys, sc.tile.row0, sc.tile.n = cursor{set: keys}, 0, 0
}

// startPart is start of a part of parts of the tiles; it ends before key end.
func (sc *Scratch) startPart(keys mesh.Set, part, parts int) (end int) {
	sc.start(keys)
	if parts == 1 {
		return keys.Len()
	}
	all := cuts(keys, maxKeys)
	from, to := all*part/parts, all*(part+1)/parts
	sc.tile.row0 = sc.keys.pass(maxKeys, from)
	at := sc.keys
	return sc.tile.row0 + at.pass(maxKeys, to-from)
}

// tiles counts the tiles of keys that rows may see, and starts.
func (sc *Scratch) tiles(keys mesh.Set, rows box) (n int) {
	for sc.start(keys); len(sc.keys.set) > 0; {
		if sc.next(rows) {
			n++
		}
	}
	sc.start(keys)
	return n
}

// next makes tile of the next keys and reports whether rows may see them.
func (sc *Scratch) next(rows box) bool {
	t := &sc.tile
	t.cut(&sc.keys, t.row0+t.n, sc.keys.reach(maxKeys))
	rows.k0, rows.k1 = t.first, t.last
	return anyTouches(sc.near, rows)
}

// box is a range of positions of queries and one of keys, both ends included.
type box struct{ q0, q1, k0, k1 int }

// touches reports whether a slice may allow a pair of the box. It errs only towards yes.
func touches(s *attn.Slice, b box) bool {
	q0, q1 := max(b.q0, s.Q0), min(b.q1, s.Q1-1)
	return q0 <= q1 && b.k1 >= max(s.K0, q0+s.Lo) && b.k0 <= min(s.K1-1, q1+s.Hi)
}

// covers reports whether a slice allows every pair of the box.
func covers(s *attn.Slice, b box) bool {
	return s.Q0 <= b.q0 && b.q1 < s.Q1 && s.K0 <= b.k0 && b.k1 < s.K1 &&
		b.k0-b.q1 >= s.Lo && b.k1-b.q0 <= s.Hi
}

// anyTouches reports whether one of the slices may allow a pair of the box.
func anyTouches(near []attn.Slice, b box) bool {
	for i := range near {
		if touches(&near[i], b) {
			return true
		}
	}
	return false
}

// sift keeps in near the slices of the mask that may allow a pair of the box.
func sift(near []attn.Slice, mask attn.Mask, b box) []attn.Slice {
	near = near[:0]
	for i := range mask {
		if touches(&mask[i], b) {
			near = append(near, mask[i])
		}
	}
	return near
}

// seen is what a group of lanes sees of a tile: keys [lo,hi), of which Scratch.words says which,
// unless all are seen. hi-lo is at least minKeys, with keys beyond the tile for a smaller one.
type seen struct {
	lo, hi int
	all    bool
}

// minKeys is the least number of keys that a call of scores takes, of any instruction set.
const minKeys = 8

// look finds what the lanes see of t; nothing where hi is 0. Bit i of words[c] is set where lane i
// sees key c.
func (sc *Scratch) look(g *lanes, t *tile) seen {
	b := box{g.first, g.last, t.first, t.last}
	met, full := false, false
	for i := range sc.near {
		met = met || touches(&sc.near[i], b)
		full = full || covers(&sc.near[i], b)
	}
	if !met {
		return seen{}
	}
	if full && g.live == g.mask && t.n >= minKeys {
		return seen{hi: t.n, all: true}
	}
	lo, hi := sc.mark(g, t, b)
	if lo >= hi {
		return seen{}
	}
	all := sc.fold(g, t.n, lo, hi)
	if all && t.n >= minKeys {
		return seen{hi: t.n, all: true}
	}
	lo = max(0, min(lo, t.n-minKeys))
	return seen{lo: lo, hi: max(hi, lo+minKeys)}
}

// mark flips, in words, the bit of each lane where a range of its keys begins and where it ends,
// and returns the hull of all ranges. The lanes and the tile lie in b.
func (sc *Scratch) mark(g *lanes, t *tile, b box) (lo, hi int) {
	lo = t.n
	clear(sc.words[:max(t.n, minKeys)+1])
	for s := range sc.near {
		slice := &sc.near[s]
		if !touches(slice, b) {
			continue
		}
		for i := range g.n {
			k0, k1 := slice.KeyRange(g.pos[i])
			bit := g.bit(i)
			if k0 >= k1 || k1 <= t.first || k0 > t.last || bit == 0 {
				continue
			}
			for r := range t.runs {
				begin, end := t.runs[r].span(k0, k1)
				if begin < end {
					sc.words[begin] ^= bit
					sc.words[end] ^= bit
					lo, hi = min(lo, begin), max(hi, end)
				}
			}
		}
	}
	return lo, hi
}

// fold turns the flips into words and reports whether all lanes see all n keys.
func (sc *Scratch) fold(g *lanes, n, lo, hi int) (all bool) {
	word, every := uint64(0), g.mask
	words := sc.words[lo:hi]
	for c := range words {
		word ^= words[c]
		words[c] = word
		every &= word
	}
	sc.words[hi] = 0
	return lo == 0 && hi == n && every == g.mask
}
