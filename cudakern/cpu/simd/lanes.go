package simd

import (
	"math"
	"unsafe"

	"github.com/kvloom/kvloom/attn"
)

// lanes is a group of queries that lie side by side in a panel: rows of one head or of several
// heads of a group. The lanes after the last of n are its doubles, so that they never do what it
// does not.
type lanes struct {
	n, vecs     int
	mask        uint64        // all lanes of vecs vectors
	live        uint64        // those that count: not those whose lse is -Inf
	first, last int           // smallest and largest position
	item        [maxLanes]int // row*QHeads + head
	pos         [maxLanes]int
	m, l        [maxLanes]float32 // of the state; in backward lse and delta
	asked       bool              // the caches have been asked for its rows
	loaded      bool
	odd         bool // q or do are not all finite
}

// bit is lane i of a mask word, with its doubles, or 0 if it does not count.
func (g *lanes) bit(i int) uint64 {
	bit := uint64(1) << i
	if i == g.n-1 {
		bit = g.mask &^ (bit - 1)
	}
	return bit & g.live
}

// readers is the range of held query heads that read held KV head kvHead.
func readers[E attn.Elem](b *attn.Block[E], kvHead int) (first, last int) {
	global := b.KHead0 + kvHead
	first = max(0, global*b.Group-b.QHead0)
	return first, max(first, min(b.QHeads, (global+1)*b.Group-b.QHead0))
}

// setRows puts the positions of n rows of the block from row0 on into pos.
func (sc *Scratch) setRows(c *cursor, n int) (first, last int) {
	sc.pos = sc.pos[:cap(sc.pos)]
	first, last = math.MaxInt, math.MinInt
	for at := 0; at < n; {
		r := c.take(n - at)
		for i := range r.count {
			sc.pos[at+i] = r.start + i*r.stride
		}
		at += r.count
		first, last = min(first, r.start), max(last, r.last())
	}
	return first, last
}

// setGroups cuts rows [row0, row0+n), whose positions are in pos, times heads [h0,h1) into groups:
// all rows of a head, then those of the next. Groups have 3 vectors or 2: any number of vectors but
// one alone is some of both.
func (sc *Scratch) setGroups(isa ISA, row0, n, h0, h1, heads int) {
	width, left := isa.lanes(), n*(h1-h0)
	vec := width / panelVecs
	sc.groups = sc.groups[:groupsOf(isa, left)]
	row, head := 0, h0
	for i := range sc.groups {
		g := &sc.groups[i]
		vecs := panelVecs
		if v := ceilDiv(left, vec); v == 4 || v < panelVecs {
			vecs--
		}
		all := uint64(1)<<(vecs*vec) - 1
		*g = lanes{
			n: min(vecs*vec, left), vecs: vecs, mask: all, live: all,
			first: math.MaxInt, last: math.MinInt,
		}
		left -= g.n
		for j := range width {
			if j >= g.n {
				g.item[j], g.pos[j] = g.item[g.n-1], g.pos[g.n-1]
				continue
			}
			p := sc.pos[row]
			g.item[j], g.pos[j] = (row0+row)*heads+head, p
			g.first, g.last = min(g.first, p), max(g.last, p)
			if row++; row == n {
				row, head = 0, head+1
			}
		}
	}
}

// loadLanes copies the rows of src [items, w] that the group holds to dst, padded with zeros to
// padded(w) floats, and zeros for the doubles.
func loadLanes[E attn.Elem](isa ISA, dst []float32, src []E, g *lanes, w int) {
	pad := padded(w)
	for i, x := range g.item[:g.n] {
		row := dst[i*pad : (i+1)*pad]
		loadRow(isa, row[:w], src[x*w:][:w])
		clear(row[w:])
	}
	clear(dst[g.n*pad : isa.lanes()*pad])
}

// touch asks the caches for w numbers of each row of src that items names, rows being step apart.
func touch[E attn.Elem](isa ISA, src []E, items []int, step, w int) {
	if len(items) > 0 {
		size := int(unsafe.Sizeof(src[0]))
		isa.touch((*byte)(unsafe.Pointer(&src[0])), &items[0], len(items), step*size, w*size)
	}
}

// own is the items of a copy that loadLanes made, with the last for its doubles.
func (sc *Scratch) own(g *lanes) *int {
	for i := range sc.alone {
		sc.alone[i] = min(i, g.n-1)
	}
	return &sc.alone[0]
}
